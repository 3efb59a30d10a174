//! The state of an open inode, under its lock: the cache and what surrounds it.
//!
//! | part | contents | changed by |
//! |---|---|---|
//! | [`CachedFile`] | pages, tickets, sizes | every verb, through `Changing` |
//! | [`Account`] | the file's record in the arena | every change of a page |
//! | [`Charges`] | frames and pages that the file counts for | writes and completions |
//! | [`Service`] | the context that serves the file, and callers that wait for pages | both |
//! | [`Ownership`] | the lease, and the turn to move the end | leases and appends |
//! | [`Syncing`] | callers that wait for tickets, and the one that leads | `sync/` |
//! | [`Failures`] | pages that cannot be written, and a panic | completions |
//! | [`Logging`] | records of the intent log | `logged/` |
//!
//! Each part has its own fields, methods and `verify`. Debug builds verify all of them whenever the
//! lock is released.

use std::task::Waker;
use std::time::{Duration, Instant};

use forebay_cache::file::Entry;
use forebay_cache::limits::PAGE;
use forebay_cache::samples::Samples;
use forebay_cache::{CachedFile, Lists, Rare};

use super::counts::{Charges, Failures};
use super::record::Account;
use super::wakers::Wakers;
use crate::core::base::Base;
use crate::core::logged::logging::Logging;
use crate::core::sync::lead::Syncing;

/// State of an inode, under its lock.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) cache: CachedFile,
    pub(crate) account: Account,
    pub(crate) charges: Charges,
    pub(crate) service: Service,
    pub(crate) ownership: Ownership,
    pub(crate) syncing: Syncing,
    pub(crate) failures: Failures,
    pub(crate) logging: Logging,
    /// Writes whose latency is measured.
    pub(crate) samples: Samples,
}

impl State {
    pub(crate) fn new(cache: CachedFile) -> Self {
        Self {
            cache,
            account: Account::default(),
            charges: Charges::default(),
            service: Service::default(),
            ownership: Ownership::default(),
            syncing: Syncing::default(),
            failures: Failures::default(),
            logging: Logging::default(),
            samples: Samples::default(),
        }
    }

    /// Asserts that the parts agree with the cache. A state that a panic has interrupted is only
    /// counted until its context gives it up.
    pub(crate) fn verify(&self) {
        self.failures.verify(&self.cache);
        self.account.verify();
        if !self.failures.is_interrupted() {
            self.charges.verify(&self.cache);
            self.service.verify();
            self.ownership.verify(&self.cache);
            self.syncing.verify(&self.cache);
        }
    }

    /// Begins to close the file on the thread of a caller: no context attaches it from now on.
    /// Returns its entry and its generation in the arena, or `None` if a context has to close it.
    pub(crate) fn begin_closing_here(
        &mut self,
        begin: impl FnOnce() -> bool,
    ) -> Option<(Entry, Option<u16>)> {
        let is_over = self.service.is_young()
            && !self.is_busy()
            && !self.failures.is_interrupted()
            && !self.cache.is_dirty();
        if !is_over || !begin() {
            return None;
        }
        debug_assert!(!self.service.is_listed(), "a context would write a file that is closed");
        self.service.attached = Attached::Never;
        Some((self.cache.entry(), self.account.generation()))
    }

    /// Returns whether a caller waits for the file, a request of it is in flight, or the intent log
    /// has records of it.
    pub(crate) fn is_busy(&self) -> bool {
        !self.failures.is_interrupted()
            && (self.cache.has_tickets() || self.cache.in_flight() || self.logging.is_busy())
    }

    /// Returns whether somebody waits for the end of completed writes of the file.
    pub(crate) fn awaits_settling(&self) -> bool {
        self.failures.is_interrupted()
            || self.service.awaits_pages
            || self.ownership.is_breaking()
            || self.cache.has_tickets()
    }

    /// Zeroes and copies memory as the cache asks for, under its lock.
    pub(crate) fn finish_memory(&mut self, base: &Base, lists: &mut Lists) {
        for (frame, from) in lists.zero.drain(..) {
            base.pool.zero(frame, from..PAGE as usize);
        }
        for patch in lists.patches.drain(..) {
            base.pool.patch(&patch);
            self.account.report_filled(&self.cache, patch.page, patch.to);
        }
    }
}

/// When the context looks at a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Look {
    /// When it next wakes by itself, at the latest.
    Soon,
    Now,
}

/// Whether a context has a file. Until one has it, a caller may close it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Attached {
    #[default]
    NotYet,
    Yes,
    /// A caller has closed it.
    Never,
}

/// The file and the context that serves it, with the callers that wait for a page.
#[derive(Debug, Default)]
pub(crate) struct Service {
    attached: Attached,
    /// When the context was asked to look at this file, if it has not done so.
    asked: Option<Look>,
    /// Whether the context has it in its list of dirty files.
    is_listed: bool,
    /// When the oldest dirty page of this file became dirty.
    dirty_since: Option<Instant>,
    pub(crate) page_wakers: Wakers,
    /// Whether one of them waits for the end of a write.
    awaits_pages: bool,
    /// Whether the context holds completed writes of the file, and looks if a caller waits for one.
    is_held: bool,
    /// Whether the descriptor was replaced, and the context has not registered the new one.
    is_renewing: bool,
    /// Set once the contexts have stopped; no I/O can complete after that.
    is_orphan: bool,
}

impl Service {
    /// Notes that a context has the file. Returns false if a caller has closed it; its number may
    /// belong to another file by now.
    pub(crate) fn attach(&mut self) -> bool {
        let attaches = self.attached != Attached::Never;
        if attaches {
            self.attached = Attached::Yes;
        }
        attaches
    }

    /// Returns whether no context has had the file yet.
    pub(crate) fn is_young(&self) -> bool {
        self.attached == Attached::NotYet
    }

    /// Notes that the context is asked to look. Returns false if it has been asked already, for as
    /// soon.
    #[inline]
    pub(crate) fn ask_to_look(&mut self, look: Option<Look>) -> bool {
        let is_sooner = look > self.asked;
        if is_sooner {
            self.asked = look;
        }
        is_sooner
    }

    /// Notes that the context looks at the file.
    pub(crate) fn looked_at(&mut self) {
        self.asked = None;
    }

    /// Enters the file in the context's list of dirty files. Returns false if it is there.
    pub(crate) fn list(&mut self) -> bool {
        !std::mem::replace(&mut self.is_listed, true)
    }

    /// Returns whether the context has the file in its list of dirty files.
    pub(crate) fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// Takes the file off that list. It may be dirty, and is entered again.
    pub(crate) fn unlist(&mut self) {
        self.is_listed = false;
    }

    /// Notes that the file became dirty.
    pub(crate) fn became_dirty(&mut self, now: Instant) {
        self.dirty_since = Some(now);
    }

    /// Notes that the file is dirty again: it counts from now on, unless it was dirty before.
    pub(crate) fn is_dirty_again(&mut self, now: impl FnOnce() -> Instant) {
        self.dirty_since.get_or_insert_with(now);
    }

    /// Notes that the file has no dirty page.
    pub(crate) fn became_clean(&mut self) {
        self.is_listed = false;
        self.dirty_since = None;
    }

    /// Returns whether the file has been dirty for `age`, and counts the time anew if so.
    pub(crate) fn is_overdue(&mut self, now: Instant, age: Duration) -> bool {
        let is_overdue = self.dirty_since.is_some_and(|since| now - since >= age);
        if is_overdue {
            self.dirty_since = Some(now);
        }
        is_overdue
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

    /// Returns whether a caller waits for a change of a page.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        !self.page_wakers.is_empty()
    }

    /// Moves the wakers of callers that wait for a page to `wakers`. They look again.
    pub(crate) fn take_waiting(&mut self, wakers: &mut Vec<Waker>) {
        self.page_wakers.drain_of_pages(wakers);
        self.awaits_pages = false;
    }

    /// As [`Service::take_waiting`], also of writers that wait for room.
    pub(crate) fn take_all_waiting(&mut self, wakers: &mut Vec<Waker>) {
        self.page_wakers.drain_into(wakers);
        self.awaits_pages = false;
    }

    /// Notes that the context holds completed writes of the file.
    pub(crate) fn hold(&mut self) {
        self.is_held = true;
    }

    /// Notes that the held writes are settled.
    pub(crate) fn end_hold(&mut self) {
        self.is_held = false;
    }

    /// Returns whether the context holds completed writes of the file.
    pub(crate) fn is_held(&self) -> bool {
        self.is_held
    }

    /// Notes that the descriptor was replaced.
    pub(crate) fn begin_renewing(&mut self) {
        self.is_renewing = true;
    }

    /// Notes that the context has registered the new descriptor.
    pub(crate) fn end_renewing(&mut self) {
        self.is_renewing = false;
    }

    /// Returns whether the context has not registered a new descriptor yet.
    pub(crate) fn is_renewing(&self) -> bool {
        self.is_renewing
    }

    /// Notes that the contexts have stopped.
    pub(crate) fn orphan(&mut self) {
        self.is_orphan = true;
    }

    /// Returns whether the contexts have stopped.
    pub(crate) fn is_orphaned(&self) -> bool {
        self.is_orphan
    }

    pub(super) fn interrupt(&mut self) {
        self.dirty_since = None;
        self.is_renewing = false;
        self.asked = None;
    }

    fn verify(&self) {
        let is_served = self.attached == Attached::Yes;
        assert!(is_served || !self.is_held, "no context would settle the writes it holds");
        assert!(!self.awaits_pages || self.has_waiting(), "a hold would end for no caller");
    }
}

/// Rights to the file: of the engine its lease, of one caller the turn to move the end.
#[derive(Debug, Default)]
pub(crate) struct Ownership {
    /// Deadline for the release of the lease, while another program waits for it.
    deadline: Option<Instant>,
    /// Whether an append, or another change of the end, is in progress, from its look at the end
    /// on.
    is_appending: bool,
    /// Whether an append copies bytes to the end that it found under the lease.
    holds_end: bool,
    /// Appends that wait.
    append_wakers: Rare<Vec<Waker>>,
}

impl Ownership {
    /// Notes that another program waits for the lease, unless one does already.
    pub(crate) fn begin_break(&mut self, deadline: Instant) {
        self.deadline.get_or_insert(deadline);
    }

    /// Notes that the lease is released.
    pub(crate) fn end_break(&mut self) {
        assert!(self.is_breaking(), "a lease that nobody asked for would be released");
        self.deadline = None;
    }

    /// Returns the deadline for the release of the lease, while another program waits for it.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns whether another program waits for the lease.
    pub(crate) fn is_breaking(&self) -> bool {
        self.deadline.is_some()
    }

    /// Returns whether an append, or another change of the end, is in progress.
    pub(crate) fn is_appending(&self) -> bool {
        self.is_appending
    }

    /// Gives a caller the turn to move the end.
    pub(crate) fn begin_append(&mut self) {
        self.is_appending = true;
    }

    /// Ends the turn. Returns the callers that wait for it.
    pub(crate) fn end_append(&mut self) -> Vec<Waker> {
        self.is_appending = false;
        self.take_appends()
    }

    /// Registers a caller that waits for the turn.
    pub(crate) fn wait_to_append(&mut self, waker: Waker) {
        debug_assert!(self.is_appending, "an append would wait for a turn that nobody has");
        self.append_wakers.push(waker);
    }

    /// Returns the callers that wait for the turn, because no one ends it.
    pub(crate) fn take_appends(&mut self) -> Vec<Waker> {
        self.append_wakers.take()
    }

    /// Notes that an append begins to copy bytes to the end that it found under the lease.
    pub(crate) fn hold_end(&mut self) {
        self.holds_end = true;
    }

    /// Notes that these bytes are copied.
    pub(crate) fn let_end_go(&mut self) {
        self.holds_end = false;
    }

    /// Returns whether an append copies bytes to the end that it found under the lease.
    pub(crate) fn holds_end(&self) -> bool {
        self.holds_end
    }

    pub(super) fn interrupt(&mut self) {
        self.deadline = None;
    }

    fn verify(&self, cache: &CachedFile) {
        let is_breaking = self.is_breaking();
        assert_eq!(is_breaking, cache.is_breaking(), "the lease would never be released");
    }
}
