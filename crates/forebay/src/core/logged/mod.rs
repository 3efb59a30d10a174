//! The engine's use of the intent log of a directory: small syncs become records of the log, and
//! the files are written in place later.
//!
//! ```text
//!                    +-- ordinary: writes in place, flush                 no live records
//! sync --route.rs----+-- record: queue --> batches.rs: copy, write, flush  the file is marked
//!                    +-- emptied: queue --> emptying.rs                    live records, no record
//!
//! emptying: write in place -> flush -> move the mark -> flush -> the records are dead
//! ```
//!
//! Two threads belong to a log. One writes batches, the other empties files. A writeback context
//! waits for neither of them, and a caller of a sync may wait for both. The emptying thread waits
//! for contexts, as a caller of a sync does.
//!
//! - [`atomic`]: writes of several files, all or none. `asked`: such a call.
//! - [`logging`]: the part of a file. The page of [`logging::Logging`] has the rules.
//! - [`route`]: the way of a sync. `batches`: group commit. `emptying`: files are brought into
//!   place. `promises`: marks of files. `open`: the log at the start of the engine. `both_threads`:
//!   their start.
//!
//! The format, the file and the recovery are in `intent_log` and in the crate `forebay-log`.

mod asked;
pub(crate) mod atomic;
pub(crate) mod batches;
pub(crate) mod both_threads;
pub(crate) mod bounds;
pub(crate) mod emptying;
pub(crate) mod logging;
pub(crate) mod open;
mod promises;
mod queues;
mod reserving;
pub(crate) mod route;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use forebay_log::{BLOCK, LogId, Wall};

use self::asked::Asked;
use self::logging::Logging;
use self::queues::{LiveFile, Queues};
use crate::core::base::{LogUse, OpenLog};
use crate::core::inode::Inode;
use crate::core::inode::state::State;
use crate::core::intent_log::file::LogFile;
use crate::core::logged::bounds::{LOG_EMPTY_FILES, LOG_FLUSH, LOG_PROMISE_LEFT, LOG_RETRY};
use crate::core::space::volume::Volume;
use crate::core::threads::{ThreadGuard, ThreadsEnd};
use crate::platform::clock;
use crate::platform::sync::{Condvar, Mutex};

/// The log of a directory, as all threads of the engine see it.
#[derive(Debug)]
pub(crate) struct IntentLog {
    directory: PathBuf,
    /// Device of its file system.
    device: u64,
    id: LogId,
    how: LogUse,
    /// Blocks of its ring.
    blocks: u64,
    /// Logged files may be changed in place until then, in nanoseconds since 1970.
    promise: AtomicI64,
    queues: Mutex<Queues>,
    /// Held while the mark of a file is written.
    marking: Mutex<()>,
    /// Notified when the thread of the batches has something to do.
    has_work: Condvar,
    /// Notified when the thread that empties files has something to do.
    has_files: Condvar,
    /// Syncs in progress.
    syncs: AtomicUsize,
    pub(crate) numbers: Numbers,
    /// Reports the end of both threads.
    ended: Arc<ThreadsEnd>,
    /// Taken by the threads.
    guard: Mutex<Option<ThreadGuard>>,
}

/// Counters of a log.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    /// Syncs that were logged.
    pub(crate) syncs: AtomicU64,
    /// Batches written.
    pub(crate) batches: AtomicU64,
    /// Bytes of files in records.
    pub(crate) bytes: AtomicU64,
    /// Emptyings that ended well.
    pub(crate) emptied: AtomicU64,
}

/// Work for the thread of the batches.
#[derive(Debug)]
enum Work {
    /// Files with syncs that wait.
    Files(Vec<Arc<Inode>>),
    /// Atomic writes.
    Atomic(Vec<Arc<Asked>>),
    /// Space may be free, the promise nears its end, or a failed log may be empty.
    Look,
    End,
}

impl IntentLog {
    pub(crate) fn new(opened: &OpenLog) -> Self {
        let OpenLog { file, directory, how } = opened;
        let ring = file.ring();
        let (next, used) = (ring.next().sequence, ring.used());
        let queues = Queues { next, used, ..Queues::default() };
        let (ended, guard) = ThreadsEnd::new();
        Self {
            ended,
            guard: Mutex::new(Some(guard)),
            directory: directory.clone(),
            device: file.file().identity().device,
            id: file.id(),
            how: *how,
            blocks: ring.blocks(),
            promise: AtomicI64::new(file.promise().0),
            queues: Mutex::new(queues),
            marking: Mutex::default(),
            has_work: Condvar::default(),
            has_files: Condvar::default(),
            syncs: AtomicUsize::new(0),
            numbers: Numbers::default(),
        }
    }

    /// Returns whether logging a sync of a file of this file system is worth it.
    pub(crate) fn is_worth(&self, volume: &Volume) -> bool {
        self.is_forced() || volume.price().flush >= LOG_FLUSH
    }

    /// Returns the directory, and whether and when syncs are logged.
    pub(crate) fn describe(&self) -> String {
        let queues = self.queues.lock();
        let state = match self.how {
            _ if queues.has_failed => "a write of it has failed, syncs write in place".to_owned(),
            LogUse::Always => "every sync that can be logged is".to_owned(),
            LogUse::ByPrice => {
                format!("used where a flush takes {} us or more", LOG_FLUSH.as_micros())
            }
        };
        format!("; intent log in {}: {state}", self.directory.display())
    }

    /// Returns the bytes of the ring in use.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.queues.lock().used * BLOCK as u64
    }

    /// Returns whether syncs may be logged now.
    pub(crate) fn is_open(&self) -> bool {
        let queues = self.queues.lock();
        !queues.has_failed && !queues.is_closed && queues.used * 4 <= self.blocks * 3
    }

    /// Returns whether a sync of a file may be logged, as far as log, lease and failures are
    /// concerned.
    fn may_log(&self, file: &State) -> bool {
        file.logging.may_log()
            && !file.failures.is_interrupted()
            && !file.ownership.is_breaking()
            && self.is_open()
    }

    /// Returns whether a file with live records may be changed in place now.
    pub(crate) fn may_change(&self, logging: &Logging) -> bool {
        self.is_promised() || logging.may_change(Wall(clock::wall()))
    }

    /// Returns whether the promise of the log has not ended.
    fn is_promised(&self) -> bool {
        clock::wall() < self.promise.load(Ordering::Acquire)
    }

    /// Enters a file whose syncs wait for a record.
    pub(crate) fn queue(&self, inode: &Arc<Inode>) {
        let mut queues = self.queues.lock();
        queues.to_log.push(Arc::clone(inode));
        drop(queues);
        self.has_work.notify_one();
    }

    /// Enters a file that has to be emptied. One that another program waits for comes first.
    pub(crate) fn queue_to_empty(&self, inode: &Arc<Inode>, is_first: bool) {
        let mut queues = self.queues.lock();
        if is_first {
            queues.to_empty.push_front(Arc::clone(inode));
        } else {
            queues.to_empty.push_back(Arc::clone(inode));
        }
        drop(queues);
        self.has_files.notify_one();
    }

    /// Notes a record of a file, whose oldest live record was `first`. The file is locked. Returns
    /// false if the log has failed or is closed.
    fn note_live(
        &self,
        inode: &Arc<Inode>,
        first: Option<u64>,
        sequence: u64,
        grows: bool,
    ) -> bool {
        let mut queues = self.queues.lock();
        if queues.is_closed || queues.has_failed {
            return false;
        }
        let key = (first.unwrap_or(sequence), inode.target.0);
        let is_first = queues.live.is_empty();
        let live = queues.live.entry(key).or_insert_with(|| LiveFile::new(inode, false));
        let is_sooner = grows && !live.grows;
        live.grows |= grows;
        drop(queues);
        if is_first || is_sooner {
            // It sleeps without a deadline, or with a later one.
            self.has_files.notify_one();
        }
        true
    }

    /// Notes that a file was emptied, whose oldest live record was `before` and is `first` now.
    fn note_emptied(&self, inode: &Arc<Inode>, before: Option<u64>, first: Option<u64>) {
        if before == first {
            return;
        }
        let mut queues = self.queues.lock();
        let removed = before.map(|before| {
            let removed = queues.live.remove(&(before, inode.target.0));
            removed.expect("space of live records would be used again")
        });
        if let Some(first) = first {
            let grows = removed.is_some_and(|live| live.grows);
            queues.live.insert((first, inode.target.0), LiveFile::new(inode, grows));
        }
        queues.is_look_due |= queues.has_failed || queues.used * 4 > self.blocks;
        let is_look_due = queues.is_look_due;
        drop(queues);
        if is_look_due {
            self.has_work.notify_one();
        }
    }

    /// Returns a number that no record of a file without live records has yet, and that none of its
    /// later ones is below.
    fn next_sequence(&self) -> u64 {
        self.queues.lock().next
    }

    /// Notes the state of the ring, and whether a write of it has failed.
    fn note_ring(&self, file: &LogFile, has_failed: bool) {
        let ring = file.ring();
        self.promise.store(file.promise().0, Ordering::Release);
        let mut queues = self.queues.lock();
        queues.next = ring.next().sequence;
        queues.used = ring.used();
        // The promise may have ended.
        queues.is_look_due |= has_failed && !queues.has_failed;
        queues.has_failed = has_failed;
        let has_files = has_failed || queues.is_half_full(self.blocks);
        drop(queues);
        if has_files {
            self.has_files.notify_one();
        }
    }

    /// Notes that the records of a file from this one on can only be saved by a recovery.
    fn note_saved(&self, inode: &Arc<Inode>, first: Option<u64>) {
        let Some(first) = first else { return };
        let mut queues = self.queues.lock();
        let removed = queues.live.remove(&(first, inode.target.0));
        assert!(removed.is_some(), "space of live records would be used again");
        queues.first_saved = Some(queues.first_saved.map_or(first, |saved| saved.min(first)));
    }

    /// Returns the oldest sequence number that the log has to keep.
    fn first_live(&self) -> Option<u64> {
        let queues = self.queues.lock();
        let live = queues.live.first_key_value().map(|((first, _), _)| *first);
        live.into_iter().chain(queues.first_saved).min()
    }

    /// Lets no more syncs be logged. Returns the files with live records.
    pub(crate) fn close(&self) -> Vec<Arc<Inode>> {
        let mut queues = self.queues.lock();
        queues.is_closed = true;
        drop(queues);
        self.has_work.notify_one();
        self.live_files()
    }

    /// Returns the files with live records.
    fn live_files(&self) -> Vec<Arc<Inode>> {
        self.queues.lock().live.values().map(|live| Arc::clone(&live.inode)).collect()
    }

    /// Returns the guard of the threads, which are started once.
    fn take_guard(&self) -> ThreadGuard {
        self.guard.lock().take().expect("a log is started once")
    }

    /// Ends the threads once they have nothing to do. Returns false if that is not before the
    /// deadline.
    pub(crate) fn end(&self, deadline: Option<Instant>) -> bool {
        let mut queues = self.queues.lock();
        queues.is_ending = true;
        drop(queues);
        self.has_work.notify_all();
        self.has_files.notify_all();
        self.ended.wait(deadline)
    }

    fn is_forced(&self) -> bool {
        self.how == LogUse::Always
    }

    /// Waits for work of the batches.
    fn wait_for_work(&self) -> Work {
        let mut queues = self.queues.lock();
        loop {
            let is_atomic =
                !queues.atomic.is_empty() && (queues.is_atomic_next || queues.to_log.is_empty());
            if is_atomic {
                queues.is_atomic_next = false;
                return Work::Atomic(std::mem::take(&mut queues.atomic));
            }
            if !queues.to_log.is_empty() {
                queues.is_atomic_next = true;
                return Work::Files(std::mem::take(&mut queues.to_log));
            }
            if std::mem::take(&mut queues.is_look_due) {
                return Work::Look;
            }
            if queues.is_ending {
                return Work::End;
            }
            // Without live records there is no promise to keep.
            let is_due = queues.has_failed || !queues.live.is_empty();
            let deadline = is_due.then(|| {
                if queues.has_failed {
                    return clock::instant() + LOG_RETRY;
                }
                let left = self.promise.load(Ordering::Acquire) - clock::wall();
                let left = Duration::from_nanos(left.max(0).unsigned_abs());
                clock::instant() + left.saturating_sub(LOG_PROMISE_LEFT).max(LOG_RETRY)
            });
            let (guard, is_late) = self.has_work.wait_until(queues, deadline);
            queues = guard;
            if is_late {
                return Work::Look;
            }
        }
    }

    /// Waits for files to empty. Returns none once the log ends.
    fn wait_to_empty(&self) -> Vec<Arc<Inode>> {
        let mut queues = self.queues.lock();
        loop {
            // All files that can be brought into place were, before this is set.
            if queues.is_ending {
                return Vec::new();
            }
            let asked = queues.to_empty.len().min(LOG_EMPTY_FILES);
            let files: Vec<_> = queues.to_empty.drain(..asked).collect();
            if !files.is_empty() {
                return files;
            }
            let now = clock::instant();
            let files = queues.due(now, self.blocks);
            if !files.is_empty() {
                return files;
            }
            let first_due = queues.live.values().map(LiveFile::due_at).min();
            let deadline = first_due.map(|due| match queues.is_urgent(self.blocks) {
                true => now + LOG_RETRY,
                false => due.max(now + LOG_RETRY),
            });
            queues = self.has_files.wait_until(queues, deadline).0;
        }
    }
}
