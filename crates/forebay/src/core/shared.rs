//! What all threads of an engine share: the pool of frames, the level of dirty pages, the table of
//! open inodes, and the way to the contexts.

use crate::platform::sync::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::task::Waker;

use crate::platform::{Arena, ForkGuard};
use crate::platform::{Buffers, Identity};
use forebay_block::Target;
use forebay_cache::file::Reserving;
use forebay_cache::{Caching, Candidate, FrameRuns, Settled, Verdict};

use crate::core::context::Message;
use crate::core::contexts::Contexts;
use crate::core::counters::Counters;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::inode::After;
use crate::core::level::Level;
use crate::core::limits::{
    EVICT_BATCH, HIGH_ONE_IN, LOW_ONE_IN, RECLAIM_FRAMES, RESERVE_OF_LOW, STARVED_BELOW,
    UNREAD_ONE_IN,
};
use crate::core::pool::Pool;
use crate::core::settings::Settings;
use crate::core::standby::Standby;
use crate::core::table::Table;
use crate::core::user_code;

/// Whom an engine tells of errors that no caller waits for.
pub(crate) type OnError = Box<dyn Fn(&Error) + Send + Sync>;

/// Shared by handles, context and lease watch.
pub(crate) struct Shared {
    pub(crate) pool: Pool,
    pub(crate) level: Arc<Level>,
    pub(crate) table: Mutex<Table>,
    /// Signalled when an open or the closing of a file ends, and when the engine stops.
    opening_ended: Condvar,
    pub(crate) counters: Counters,
    on_error: OnError,
    /// Aligned memory for direct I/O.
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) contexts: Contexts,
    /// Whoever finishes what this process had accepted, should it die.
    pub(crate) keeper: Option<Box<dyn Standby>>,
    /// What the knobs stand at.
    pub(crate) settings: Mutex<Settings>,
    fork: ForkGuard,
    /// Of the file that is opened next.
    generation: AtomicU16,
    stopping: AtomicBool,
    /// Pages go when they were written or read, unless a handle says otherwise.
    uncached: AtomicBool,
    /// Space is reserved ahead of data.
    reserving: Mutex<Reserving>,
    /// Somebody makes room ahead.
    evicting: AtomicBool,
    /// Pages brought in that wait for their reader.
    unread: AtomicU64,
    /// There is no context any more.
    orphaned: AtomicBool,
    /// What is not written is the keeper's.
    left: AtomicBool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Shared").field("level", &self.level).finish_non_exhaustive()
    }
}

/// What an engine is made from.
pub(crate) struct Parts {
    pub(crate) arena: Arc<Arena>,
    /// Whether another process can finish what is in the arena.
    pub(crate) is_survived: bool,
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) settings: Settings,
    pub(crate) on_error: OnError,
    pub(crate) fork: ForkGuard,
    pub(crate) keeper: Option<Box<dyn Standby>>,
}

impl Shared {
    pub(crate) fn new(parts: Parts, contexts: Contexts) -> Self {
        let Parts { arena, is_survived, buffers, settings, on_error, fork, keeper } = parts;
        Self {
            pool: Pool::new(arena, is_survived),
            buffers,
            level: Arc::new(Level::new(settings.throttle())),
            table: Mutex::new(Table::default()),
            opening_ended: Condvar::new(),
            counters: Counters::default(),
            on_error,
            contexts,
            keeper,
            fork,
            generation: AtomicU16::new(1),
            stopping: AtomicBool::new(false),
            uncached: AtomicBool::new(settings.caching == Caching::Uncached),
            reserving: Mutex::new(settings.reserving),
            settings: Mutex::new(settings),
            evicting: AtomicBool::new(false),
            unread: AtomicU64::new(0),
            orphaned: AtomicBool::new(false),
            left: AtomicBool::new(false),
        }
    }

    /// Whether the calling process is the one that made the engine.
    pub(crate) fn is_parent(&self) -> bool {
        self.fork.is_parent()
    }

    /// Whether calls may be served.
    pub(crate) fn check(&self) -> Result<()> {
        if !self.is_parent() {
            return Err(Error::new(
                ErrorKind::Forked,
                "cannot use the engine of the parent process in a forked child",
            )
            .remedy("build an engine in the child, or fork before building one"));
        }
        if self.stopping.load(Ordering::Acquire) {
            return Err(Error::shut_down());
        }
        Ok(())
    }

    /// Tells the program of an error that no caller waits for. No lock may be held.
    pub(crate) fn report(&self, error: &Error) {
        user_code::run("the callback given to Builder::on_error", || (self.on_error)(error));
    }

    /// Stops serving; true for the first who asks.
    pub(crate) fn stop(&self) -> bool {
        let is_first = !self.stopping.swap(true, Ordering::AcqRel);
        // An open that has looked before, under the lock, sleeps by now.
        drop(self.table());
        self.wake_opening();
        is_first
    }

    /// Waits until an open has ended, or the engine stops.
    pub(crate) fn wait_for_opening<'a>(
        &self,
        table: MutexGuard<'a, Table>,
    ) -> MutexGuard<'a, Table> {
        self.opening_ended.wait(table)
    }

    /// Wakes the opens that wait for another one.
    pub(crate) fn wake_opening(&self) {
        self.opening_ended.notify_all();
    }

    /// The context has ended, by request or by a bug of ours: nobody may wait for it any more.
    pub(crate) fn orphan(&self) {
        self.stop();
        self.mark_orphaned();
        // Not under the table's lock: a waker is the caller's code, and may come back here.
        let table = self.table();
        let (direct, mut cached) = (table.direct_inodes(), table.inodes());
        cached.extend(table.closing_inodes());
        drop(table);
        direct.iter().for_each(|inode| inode.wake_all());
        cached.iter().for_each(|inode| inode.orphan());
        self.pool.wake_all();
        self.level.wake_all();
    }

    /// No context is left that would give a lease up when another program asks for it, or write
    /// under it.
    pub(crate) fn release_leases(&self) {
        let inodes = self.table().inodes();
        inodes.iter().for_each(|inode| inode.file.release_lease());
    }

    /// What is not written is left to the keeper, where there is one. Lock and lease stay with the
    /// open files, which it has, too: nobody gets in before it is done, and no context closes a
    /// file.
    pub(crate) fn leave_files(&self) {
        if !self.keeper.as_ref().is_some_and(|keeper| keeper.is_there()) {
            return;
        }
        self.left.store(true, Ordering::SeqCst);
        let inodes = self.table().inodes();
        inodes.iter().for_each(|inode| inode.file.leave());
    }

    /// This process does nothing more about what is not written: the keeper, where there is one,
    /// does it now.
    pub(crate) fn leave_to_keeper(&self) {
        self.leave_files();
        if let Some(keeper) = &self.keeper {
            keeper.leave_it();
        }
    }

    /// Whether what is not written is left to the keeper.
    pub(crate) fn is_left(&self) -> bool {
        self.left.load(Ordering::SeqCst)
    }

    /// Whether there is no context any more.
    pub(crate) fn is_orphaned(&self) -> bool {
        self.orphaned.load(Ordering::SeqCst)
    }

    /// There is no context from now on.
    pub(crate) fn mark_orphaned(&self) {
        self.orphaned.store(true, Ordering::SeqCst);
    }

    /// Sends a message to the context, or contexts, that it concerns.
    pub(crate) fn send(&self, message: Message) {
        self.contexts.send(message);
    }

    /// Says what part of the level each file system has that is being written.
    pub(crate) fn share_out(&self) {
        let volumes = self.table().volumes();
        if let Some(volumes) = volumes {
            let written: Vec<_> = volumes
                .iter()
                .map(|volume| &**volume)
                .filter(|volume| volume.share.is_written())
                .collect();
            self.level.share_out(&written);
        }
    }

    /// Tells a file from those that had its number before it; never zero.
    pub(crate) fn next_generation(&self) -> u16 {
        let next = |generation: u16| Some(generation.checked_add(1).unwrap_or(1));
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        self.generation.fetch_update(set, fetch, next).expect("there is always a next one")
    }

    /// Of the files that are opened from now on none has this generation, or one before it.
    pub(crate) fn pass_generation(&self, generation: u16) {
        self.generation.store(generation.checked_add(1).unwrap_or(1), Ordering::Relaxed);
    }

    /// Fills a file's stash: generously while frames are plenty.
    pub(crate) fn refill(&self, stash: &mut FrameRuns, wanted: usize) {
        let generous = (self.pool.free() as usize / 256).min(32);
        self.pool.take(wanted.max(generous), stash);
    }

    /// Makes room ahead of whoever wants it next, where little is left: a part of it, in batches;
    /// the next caller makes the next part. While somebody is at it, the others go on.
    pub(crate) fn make_room_ahead(&self) {
        let (free, frames) = (self.pool.free(), self.pool.arena().frames());
        if free >= frames / LOW_ONE_IN || self.evicting.swap(true, Ordering::Acquire) {
            return;
        }
        let wanted = (frames / HIGH_ONE_IN - free) as usize;
        self.evict(wanted.min(4 * EVICT_BATCH), 8 * EVICT_BATCH);
        self.evicting.store(false, Ordering::Release);
    }

    /// Too few frames are free: evicts clean pages, or makes `waker` be woken when frames come
    /// back. True when there is something to take now.
    pub(crate) fn reclaim_or_wait(&self, waker: &Waker) -> bool {
        // A page that was used three times stays for as many rounds, one that nobody has read yet
        // for one.
        let all = self.pool.evictor().len();
        if self.evict(RECLAIM_FRAMES, 4 * all + EVICT_BATCH) < RECLAIM_FRAMES {
            self.collect_unused();
        }
        if self.pool.free() >= STARVED_BELOW {
            return true;
        }
        self.pool.wait(waker);
        self.send(Message::Look);
        // Frames may have come back between the look and the registering.
        self.pool.free() >= STARVED_BELOW
    }

    /// Asks about clean pages, `looks` at most, until `wanted` are dropped; returns how many were.
    fn evict(&self, wanted: usize, looks: usize) -> usize {
        let mut batch = Vec::with_capacity(EVICT_BATCH.min(wanted));
        let mut after = After::default();
        let (mut dropped, mut looked) = (0, 0);
        while dropped < wanted && looked < looks {
            batch.clear();
            self.pool.evictor().candidates((wanted - dropped).min(EVICT_BATCH), &mut batch);
            if batch.is_empty() {
                break;
            }
            looked += batch.len();
            self.ask_files(&mut batch, &mut after);
            self.pool.evictor().settle(&batch);
            after.finish(self);
            dropped +=
                batch.iter().filter(|candidate| candidate.verdict == Verdict::Dropped).count();
        }
        Counters::add(&self.counters.evicted_pages, dropped as u64);
        dropped
    }

    /// Has each candidate judged by its file, one file after the other.
    fn ask_files(&self, batch: &mut [Candidate], after: &mut After) {
        batch.sort_by_key(|candidate| candidate.target);
        for of_file in batch.chunk_by_mut(|one, next| one.target == next.target) {
            let inode = self.table().by_target(of_file[0].target);
            if let Some(inode) = inode {
                inode.lock().evict(self, of_file, after);
            }
        }
    }

    /// Frames that reading ahead may take: none that somebody may want sooner.
    pub(crate) fn room_ahead(&self) -> u64 {
        let frames = self.pool.arena().frames();
        let spare =
            u64::from(self.pool.free().saturating_sub(frames / LOW_ONE_IN / RESERVE_OF_LOW));
        let unread = self.unread.load(Ordering::Relaxed);
        u64::from(frames / UNREAD_ONE_IN).saturating_sub(unread).min(spare)
    }

    /// The pages of a file that wait for a reader were so many, and are so many now.
    pub(crate) fn count_unread(&self, before: u64, now: u64) {
        if before != now {
            self.unread.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
        }
    }

    /// Whether pages go when they were written or read, on handles that do not say.
    pub(crate) fn caching(&self) -> Caching {
        if self.uncached.load(Ordering::Relaxed) { Caching::Uncached } else { Caching::Cached }
    }

    /// Changes what [`Shared::caching`] says.
    pub(crate) fn set_caching(&self, caching: Caching) {
        self.uncached.store(caching == Caching::Uncached, Ordering::Relaxed);
    }

    /// Whether space is reserved ahead of data, in files where it can be.
    pub(crate) fn reserving(&self) -> Reserving {
        *self.reserving.lock()
    }

    /// Changes what [`Shared::reserving`] says; whether it said otherwise before.
    pub(crate) fn set_reserving(&self, reserving: Reserving) -> bool {
        std::mem::replace(&mut *self.reserving.lock(), reserving) != reserving
    }

    /// Collects unused credit (and frames) of all files.
    pub(crate) fn collect_unused(&self) {
        let inodes = self.table().inodes();
        let mut after = After::default();
        for inode in inodes {
            inode.lock().give_back_unused(&mut after);
        }
        after.finish(self);
    }

    /// Takes in what a run of completions, or a copy, has freed.
    pub(crate) fn absorb(&self, settled: &mut Settled, wakers: &mut Vec<Waker>) {
        self.pool.give(&mut settled.freed, wakers);
        self.level.remove(std::mem::take(&mut settled.uncharged), wakers);
    }

    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }

    /// Returns the table once a file is not being closed, so that an open of it finds it gone
    /// altogether or there altogether. Waits as long as the closing takes, or until the engine
    /// stops; no context calls this.
    pub(crate) fn table_unless_closing(&self, identity: Identity) -> MutexGuard<'_, Table> {
        let mut table = self.table();
        while table.is_closing(identity) && self.check().is_ok() {
            table = self.opening_ended.wait(table);
        }
        table
    }

    /// A file is closed: wakes the callers that wait to open it.
    pub(crate) fn end_closing(&self, identity: Identity, target: Target) {
        self.table().end_closing(identity, target);
        self.wake_opening();
    }
}
