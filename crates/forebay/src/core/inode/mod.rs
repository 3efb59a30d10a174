//! An open inode: the single cache of a file, which all handles of an engine share, also those
//! opened by another name.
//!
//! The modules in this directory need only [`Base`]:
//!
//! - `change`: the one way to change the cache, and the effects of changes.
//! - `settle`: completed bios. `failures`: pages that cannot be written.
//! - `record`: the file's account in the arena.
//! - `guard`: the end of a file's service after a panic.
//!
//! The calls of users are above: `core/write`, `core/read` and others.
//!
//! No two locks are held together here, except the file's state and then the pool's. No lock is
//! held during a copy, a system call or a wake.

pub(crate) mod change;
pub(crate) mod failures;
mod guard;
mod record;
pub(crate) mod settle;
mod wakers;

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;
use std::time::Instant;

use forebay_cache::file::Entry;
use forebay_cache::limits::{MAX_OFFSET, PAGE};
use forebay_cache::samples::Samples;
use forebay_cache::{CachedFile, FrameRuns, Liberties, Lists, Rare};

use crate::core::base::Base;
use crate::core::context::home::Home;
use crate::core::inode::wakers::Wakers;
use crate::core::open::common::Common;
use crate::core::share::Crossed;
use crate::core::space::volume::Volume;
use crate::core::sync::lead::{Lead, Waiter};
use crate::core::user_code;
use crate::platform::Kind;
use crate::platform::clock;
use crate::platform::sync::Mutex;
pub(crate) use guard::{Heard, Locked};

/// Reason why no other program changes a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hold {
    /// None: other programs may have it open.
    Shared,
    /// The engine has a lease that counts.
    Leased,
    /// The caller that opened it promised so.
    Promised,
    /// It is a temporary file, or a block device that is opened exclusively.
    Private,
}

impl Hold {
    pub(crate) fn liberties(self) -> Liberties {
        if self == Self::Shared { Liberties::Shared } else { Liberties::Exclusive }
    }
}

/// One inode in the cache.
#[derive(Debug)]
pub(crate) struct Inode {
    common: Common,
    pub(crate) volume: Arc<Volume>,
    pub(crate) home: Home,
    /// Size of a block device in bytes, which never changes.
    pub(crate) fixed_size: Option<u64>,
    /// Whether it is a temporary file or a block device.
    pub(crate) is_private: bool,
    /// Whether the file is shared without a lease.
    pub(crate) needs_lease: bool,
    /// Largest file end that its file system is known to accept.
    pub(crate) reach: AtomicU64,
    /// Whether the last write was of one whole page that was dirty before.
    pub(crate) rewrites: AtomicBool,
    /// Time when the lease was last seen to be held, in nanoseconds of the clock.
    pub(crate) lease_looked: AtomicU64,
    /// Whether the file has the reservation mark. Locked while the file system changes it, which
    /// may block: no context locks it. Taken before the state's lock.
    pub(crate) marked: Mutex<bool>,
    pub(crate) state: Mutex<State>,
    pub(crate) alarm: guard::Alarm,
}

/// Whether a context has a file. Until one has it, a caller may close it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Attached {
    NotYet,
    Yes,
    /// A caller has closed it.
    Never,
}

/// State of an inode, under its lock.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) cache: CachedFile,
    /// Record of the file in the arena, if the engine has a keeper.
    pub(crate) record: Option<Box<record::Record>>,
    /// The same record once a panic has interrupted a change of the file: another process reads it
    /// as it was then.
    pub(crate) marked_record: Option<Box<record::Record>>,
    /// Frames taken from the pool and not used yet.
    pub(crate) stash: FrameRuns,
    /// Unread pages, as counted in `Base`.
    pub(crate) reported_unread: u64,
    /// Uncached pages written since the context was last asked to write them out.
    pub(crate) passing: u64,
    /// Pages charged to the level and not used yet.
    pub(crate) credit: u64,
    /// Pages counted in the share of its file system.
    pub(crate) counted: u64,
    pub(crate) page_wakers: Wakers,
    /// Whether one of them waits for the end of a write.
    pub(crate) awaits_pages: bool,
    /// Whether the context holds completed writes of the file, and looks if a caller waits for one.
    pub(crate) is_held: bool,
    pub(crate) ticket_wakers: Rare<Vec<Waiter>>,
    /// The thread that serves the tickets.
    pub(crate) lead: Lead,
    pub(crate) reported_tickets: u64,
    /// Whether the context was asked to look at this file and has not done so.
    pub(crate) kicked: Option<change::Look>,
    pub(crate) attached: Attached,
    /// Whether the context has it in its list of dirty files.
    pub(crate) listed: bool,
    /// Writes whose latency is measured.
    pub(crate) samples: Samples,
    /// When the oldest dirty page of this file became dirty.
    pub(crate) dirty_since: Option<Instant>,
    /// Whether an append is in progress, from its look at the end on.
    pub(crate) appending: bool,
    /// Whether an append copies bytes to the end that it found under the lease.
    pub(crate) holds_end: bool,
    /// Appends that wait.
    pub(crate) append_wakers: Rare<Vec<Waker>>,
    /// Deadline for the release of the lease, while another program waits for it.
    pub(crate) break_deadline: Option<Instant>,
    /// Whether the descriptor was replaced, and the context has not registered the new one.
    pub(crate) is_renewing: bool,
    /// Set once the contexts have stopped; no I/O can complete after that.
    pub(crate) is_orphan: bool,
    /// Failing pages, as counted against the device.
    pub(crate) unwritable: u64,
    /// Whether a panic has interrupted a change of this state. `cache` is an empty one since then.
    pub(crate) is_interrupted: bool,
    /// Pages that the level still counts for the file after a panic.
    pub(crate) owed: u64,
    /// Whether all counts of the file were taken back.
    pub(crate) is_given_up: bool,
}

impl Deref for Inode {
    type Target = Common;

    fn deref(&self) -> &Common {
        &self.common
    }
}

impl Inode {
    pub(crate) fn new(
        cache: CachedFile,
        file: crate::platform::OpenFile,
        volume: Arc<Volume>,
        path: PathBuf,
        hold: Hold,
    ) -> Self {
        let state = State {
            cache,
            record: None,
            marked_record: None,
            stash: FrameRuns::default(),
            reported_unread: 0,
            passing: 0,
            credit: 0,
            counted: 0,
            page_wakers: Wakers::default(),
            awaits_pages: false,
            is_held: false,
            ticket_wakers: Rare::default(),
            lead: Lead::Context,
            reported_tickets: 0,
            kicked: None,
            attached: Attached::NotYet,
            listed: false,
            samples: Samples::default(),
            dirty_since: None,
            appending: false,
            holds_end: false,
            append_wakers: Rare::default(),
            break_deadline: None,
            is_renewing: false,
            is_orphan: false,
            unwritable: 0,
            is_interrupted: false,
            owed: 0,
            is_given_up: false,
        };
        let fixed_size = (file.kind() == Kind::Block).then(|| state.cache.size());
        volume.learn(&file);
        let home = Home::new(&file, &path, &volume, state.cache.disk_size());
        let reach = AtomicU64::new(file.sure_end());
        let aside = Arc::clone(&volume.aside);
        Self {
            common: Common::new(state.cache.target(), path, file, aside),
            volume,
            home,
            fixed_size,
            is_private: hold == Hold::Private,
            needs_lease: matches!(hold, Hold::Shared | Hold::Leased),
            reach,
            rewrites: AtomicBool::new(false),
            lease_looked: AtomicU64::new(clock::now().nanoseconds()),
            marked: Mutex::new(false),
            state: Mutex::new(state),
            alarm: guard::Alarm::default(),
        }
    }

    /// Returns whether a file of its file system can be `end` bytes long.
    pub(crate) fn can_reach(&self, end: u64) -> bool {
        if end <= self.reach.load(Ordering::Relaxed) {
            return true;
        }
        let roomy = end.saturating_mul(2).min(MAX_OFFSET);
        let reach = [roomy, end].into_iter().find(|end| self.file.can_hold(*end));
        self.reach.fetch_max(reach.unwrap_or(0), Ordering::Relaxed);
        reach.is_some()
    }

    /// Ends every wait for a file that is closed.
    pub(crate) fn closed(&self) {
        self.end_waits(|_| ());
    }

    /// Notes that the contexts have stopped, and ends every wait for one.
    pub(crate) fn orphan(&self) {
        let appends = self.end_waits(|state| {
            state.is_orphan = true;
            state.append_wakers.take()
        });
        user_code::wake_all(appends);
    }

    fn end_waits<T>(&self, note: impl FnOnce(&mut State) -> T) -> T {
        let mut wakers = Vec::new();
        let mut state = self.lock();
        let noted = note(&mut state);
        state.page_wakers.drain_into(&mut wakers);
        wakers.extend(state.ticket_wakers.take().into_iter().map(|waiter| waiter.waker));
        drop(state);
        user_code::wake_all(wakers);
        noted
    }

    /// Locks the file for the look that its context was asked for.
    pub(crate) fn looked_at(&self) -> Locked<'_> {
        let mut state = self.lock();
        state.kicked = None;
        state
    }
}

impl State {
    /// Notes that a context has the file. Returns false if a caller has closed it; its number may
    /// belong to another file by now.
    pub(crate) fn attach(&mut self) -> bool {
        let attaches = self.attached != Attached::Never;
        if attaches {
            self.attached = Attached::Yes;
        }
        attaches
    }

    /// Returns whether an append, or another change of the end, is in progress.
    pub(crate) fn is_appending(&self) -> bool {
        self.appending
    }

    /// Returns whether no context has had the file yet.
    pub(crate) fn is_young(&self) -> bool {
        self.attached == Attached::NotYet
    }

    /// Begins to close the file on the thread of a caller: no context attaches it from now on.
    /// Returns its entry and its generation in the arena, or `None` if a context has to close it.
    pub(crate) fn begin_closing_here(
        &mut self,
        begin: impl FnOnce() -> bool,
    ) -> Option<(Entry, Option<u16>)> {
        let is_over = self.attached == Attached::NotYet
            && !self.is_busy()
            && !self.is_interrupted
            && !self.cache.is_dirty();
        if !is_over || !begin() {
            return None;
        }
        self.attached = Attached::Never;
        Some((self.cache.entry(), self.generation()))
    }

    /// Returns whether the contexts have stopped.
    pub(crate) fn is_orphaned(&self) -> bool {
        self.is_orphan
    }

    /// Returns whether a caller waits for the file, or a request of it is in flight.
    pub(crate) fn is_busy(&self) -> bool {
        !self.is_interrupted && (self.cache.has_tickets() || self.cache.in_flight())
    }

    /// Registers a caller to wake when a page of the file, or its size, has changed. If writes of
    /// the file are held, the context has to look.
    pub(crate) fn wait_for_pages(&mut self, waker: Waker) {
        self.page_wakers.push(waker);
        self.awaits_pages = true;
    }

    /// Registers a caller to wake when a page of the file has changed. It waits for no write.
    pub(crate) fn wait_for_turn(&mut self, waker: Waker) {
        self.page_wakers.push(waker);
    }

    /// Returns whether somebody waits for the end of completed writes of the file.
    pub(crate) fn awaits_settling(&self) -> bool {
        self.is_interrupted
            || self.awaits_pages
            || self.break_deadline.is_some()
            || self.cache.has_tickets()
    }

    /// Notes that the file has no dirty page.
    pub(crate) fn unlist(&mut self) {
        self.listed = false;
        self.dirty_since = None;
    }

    /// Zeroes and copies memory as the cache asks for, under its lock.
    fn finish_memory(&mut self, base: &Base, lists: &mut Lists) {
        for (frame, from) in lists.zero.drain(..) {
            base.pool.zero(frame, from..PAGE as usize);
        }
        for patch in lists.patches.drain(..) {
            base.pool.patch(&patch);
            self.report_filled(base, patch.page, patch.to);
        }
    }

    /// Updates the file's part of its file system's share of the level. The count does not depend
    /// on earlier ones, so it is right after any change.
    #[inline]
    fn recount(&mut self, volume: &Volume) -> Crossed {
        let now = self.cache.dirty_pages() + self.credit;
        let before = std::mem::replace(&mut self.counted, now);
        if now == before { Crossed::Nothing } else { volume.share.recount(before, now) }
    }

    /// Updates the count of unread pages.
    #[inline]
    fn report_unread(&mut self, base: &Base) {
        let unread = self.cache.unread_pages();
        base.count_unread(std::mem::replace(&mut self.reported_unread, unread), unread);
    }
}
