//! The one way to change the cache of a file.
//!
//! The cache reports what follows from a change: frames to zero, to free, to enter with the
//! evictor, pages that are no longer dirty. Some of that must happen under the same lock, in this
//! order:
//!
//! ```text
//! change --> memory zeroed and copied --> arena updated --> clean pages entered with the evictor
//!        --> counts: share of the level, unread pages, failing pages --> ended tickets
//!        --> wakers of pages, the context's look (if the change asked for them) --> lock released
//! ```
//!
//! Memory comes before the arena, so that the arena never describes bytes that are not there yet.
//! The arena comes before the lock is released, because a writer may touch the pages then.
//! [`Inode::change`] runs a closure and then all of it, so no caller can forget a step. The
//! closure gets at what the cache reports only through [`Changing::apply`]. If the closure panics,
//! none of the steps is run, and the guard of the lock ends the file's service (`guard.rs`).
//!
//! Effects of a change that need no lock are only recorded ([`After`]), so a file does not have to
//! know the contexts that act on them. `Shared::finish` carries them out once the lock is released.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::task::Waker;

use forebay_block::Bio;
use forebay_cache::samples::Reported;
use forebay_cache::{CachedFile, Copy, FrameRuns, Lists, Settled};

use super::Inode;
use super::state::{Look, State};
use crate::core::base::Base;
use crate::core::limits::UNCACHED_DIRTY_PAGES;
use crate::core::share::Crossed;
use crate::core::user_code;
use crate::platform::thread;

/// A file that is being changed, under its lock.
#[derive(Debug)]
pub(crate) struct Changing<'a> {
    inode: &'a Arc<Inode>,
    base: &'a Base,
    state: &'a mut State,
    after: &'a mut After,
    /// The context has to look at the level, or at the file.
    looks_at_level: bool,
    looks_at_file: Option<Look>,
    /// Callers that wait for a page, or for the size, look again.
    wakes: bool,
}

impl Inode {
    /// Changes the file under its lock. Effects for after the lock are added to `after`.
    #[inline]
    pub(crate) fn change<T>(
        self: &Arc<Self>,
        base: &Base,
        after: &mut After,
        change: impl FnOnce(&mut Changing<'_>) -> T,
    ) -> T {
        self.change_locked(base, &mut self.lock(), after, change)
    }

    /// As [`Inode::change`], by a caller that has the lock.
    #[inline]
    pub(crate) fn change_locked<T>(
        self: &Arc<Self>,
        base: &Base,
        state: &mut State,
        after: &mut After,
        change: impl FnOnce(&mut Changing<'_>) -> T,
    ) -> T {
        let (looks_at_level, looks_at_file, wakes) = (false, None, false);
        let mut changing =
            Changing { inode: self, base, state, after, looks_at_level, looks_at_file, wakes };
        let done = change(&mut changing);
        changing.end();
        done
    }
}

impl Deref for Changing<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        self.state
    }
}

impl DerefMut for Changing<'_> {
    fn deref_mut(&mut self) -> &mut State {
        self.state
    }
}

impl Changing<'_> {
    pub(crate) fn inode(&self) -> &Arc<Inode> {
        self.inode
    }

    /// Changes the cache, and carries out the changes of memory that it reports.
    #[inline]
    pub(crate) fn apply<T>(
        &mut self,
        change: impl FnOnce(&mut CachedFile, &mut Settled) -> T,
    ) -> T {
        let done = change(&mut self.state.cache, &mut self.after.settled);
        if let Some(lists) = self.after.settled.lists() {
            self.state.finish_memory(self.base, lists);
        }
        done
    }

    /// Updates the arena and the evictor now, before something that must come after both.
    #[inline]
    pub(crate) fn publish(&mut self) {
        if !self.after.settled.is_empty() || self.state.account.is_kept() {
            self.publish_changes();
        }
    }

    #[inline(never)]
    fn publish_changes(&mut self) {
        let is_finished = |lists: &mut Lists| lists.zero.is_empty() && lists.patches.is_empty();
        debug_assert!(
            self.after.settled.lists().is_none_or(is_finished),
            "the arena would describe bytes that are not there"
        );
        let State { cache, account, .. } = &mut *self.state;
        let mut retired = account.report_settled(cache, &mut self.after.settled);
        if !retired.is_empty() {
            self.after.effects().retired.append(&mut retired);
        }
        if let Some(lists) = self.after.settled.lists() {
            self.base.pool.enter_clean(self.inode.target, &mut lists.clean);
        }
    }

    /// Removes clean frames from the arena before a write is copied into them.
    pub(crate) fn touch(&mut self, copies: &[Copy]) {
        self.state.account.report_touched(copies);
    }

    /// Enters copies in the arena that were made and published.
    pub(crate) fn copied(&mut self, copies: &[Copy]) {
        let State { cache, account, .. } = &mut *self.state;
        account.report_copied(cache, copies);
    }

    /// Has the context look at the file now.
    pub(crate) fn look(&mut self) {
        self.looks_at_file = Some(Look::Now);
    }

    /// Has the context look at the file when it next wakes by itself, at the latest.
    pub(crate) fn look_soon(&mut self) {
        self.looks_at_file = self.looks_at_file.max(Some(Look::Soon));
    }

    /// Has the contexts look at the level.
    pub(crate) fn look_at_level(&mut self) {
        self.looks_at_level = true;
    }

    /// Has the context write out pages that are dropped after their write.
    pub(crate) fn write_uncached(&mut self) {
        self.after.push(Effect::Uncached(Arc::clone(self.inode)));
    }

    /// Has the context submit bios of a caller.
    pub(crate) fn submit(&mut self, bios: impl IntoIterator<Item = Bio>) {
        for bio in bios {
            // Checked in every build: otherwise bytes of another file would be overwritten.
            assert_eq!(bio.target, self.inode.target, "a bio goes to the file that made it");
            self.after.push(Effect::Submit(Arc::clone(self.inode), bio));
        }
    }

    /// Registers a caller to wake when a page of the file, or its size, has changed. It waits for
    /// `page`. The context has to look if it holds the write of that page.
    pub(crate) fn wait_for_page(&mut self, waker: Waker, page: u64) {
        if !self.state.cache.is_page_in_flight(page) {
            return self.state.service.wait_for_turn(waker);
        }
        self.state.service.wait_for_pages(waker);
        if self.state.service.is_held() {
            self.look();
        }
    }

    /// Wakes callers that wait for a change of a page, or of the size.
    pub(crate) fn wake(&mut self) {
        self.wakes = true;
    }

    /// Wakes as many uncached writers as there is room for now, or all of them.
    pub(crate) fn let_writers_through(&mut self, all: bool) {
        if self.state.service.page_wakers.is_line_empty() {
            return;
        }
        let room = UNCACHED_DIRTY_PAGES.saturating_sub(self.state.cache.dirty_pages());
        let room = if all { u64::MAX } else { room };
        self.state.service.page_wakers.let_through(room, &mut self.after.effects().wakers);
    }

    /// Returns the wakers to wake once the lock is released.
    pub(crate) fn wakers(&mut self) -> &mut Vec<Waker> {
        &mut self.after.effects().wakers
    }

    /// Returns the latencies of completed writes.
    pub(crate) fn latencies(&mut self) -> (&mut State, &mut Reported) {
        (self.state, &mut self.after.effects().reported)
    }

    /// Counts the file's share of the level now, before something that may panic: the level has
    /// just counted pages for the file.
    #[inline]
    pub(crate) fn count(&mut self) {
        let State { cache, charges, .. } = &mut *self.state;
        let crossed = charges.recount(cache, &self.inode.volume);
        self.looks_at_level |= crossed == Crossed::Background;
    }

    /// Frees frames that were taken from the pool and not used.
    pub(crate) fn free(&mut self, frames: &mut FrameRuns) {
        if !frames.is_empty() {
            self.after.settled.freed.append(frames);
        }
    }

    /// Gives back the frames and credit kept for the next write of the file.
    pub(crate) fn give_back_unused(&mut self) {
        if !self.state.charges.is_unused() {
            let settled = &mut self.after.settled;
            settled.uncharged += self.state.charges.give_back(&mut settled.freed);
        }
    }

    /// The steps that follow every change. Each cached write and read comes here twice.
    #[inline(always)]
    fn end(mut self) {
        self.publish();
        self.count();
        if !self.state.cache.in_flight() {
            // No completion comes that would wake them.
            self.let_writers_through(true);
        }
        let Self { inode, base, state, after, .. } = self;
        if let Some(lists) = after.settled.lists() {
            let uncharged = std::mem::take(&mut lists.uncharged);
            let charged = std::mem::take(&mut lists.charged);
            after.effects().uncharged += uncharged;
            base.level.add(charged);
        }
        if self.looks_at_level {
            after.push(Effect::Look);
        }
        let State { cache, charges, syncing, failures, .. } = &mut *state;
        charges.report_unread(cache, base);
        let failing = &inode.volume.failing;
        failures.recount(cache, failing, &base.level, || &mut after.effects().wakers);
        if syncing.has_ended(cache) {
            report_ended(state, after);
        }
        let service = &mut state.service;
        if self.wakes && service.has_waiting() {
            service.take_waiting(&mut after.effects().wakers);
        }
        if service.ask_to_look(self.looks_at_file) {
            let inode = Arc::clone(inode);
            after.push(match self.looks_at_file {
                Some(Look::Soon) => Effect::LookSoon(inode),
                _ => Effect::LookAt(inode),
            });
        }
    }
}

/// Wakes callers whose tickets have ended. The end of a change of length lets waiting calls
/// continue, too.
#[inline(never)]
fn report_ended(state: &mut State, after: &mut After) {
    let wakers = &mut after.effects().wakers;
    state.syncing.take_ended(&state.cache, wakers);
    state.service.take_all_waiting(wakers);
}

/// Something for a context to do.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Look at the level.
    Look,
    /// Look at this file: it is dirty now, or a caller waits for it.
    LookAt(Arc<Inode>),
    /// As `LookAt`, but when the context next wakes by itself is soon enough.
    LookSoon(Arc<Inode>),
    /// This file has many dirty pages that are dropped after their write.
    Uncached(Arc<Inode>),
    /// Submit this bio of a caller.
    Submit(Arc<Inode>, Bio),
}

/// Effects to carry out once the lock is released. Most changes have none, so memory for them is
/// allocated by the first one.
#[derive(Debug, Default)]
pub(crate) struct After {
    /// [`Changing`](super::change::Changing) alone fills this, and empties the parts that need the
    /// lock.
    pub(crate) settled: Settled,
    effects: Option<Box<Effects>>,
}

/// Effects of some changes.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    pub(crate) wakers: Vec<Waker>,
    pub(crate) of_contexts: Vec<Effect>,
    /// Number of pages to subtract from the level, for completed changes.
    pub(crate) uncharged: u64,
    /// Freed frames whose headers are already removed from the arena.
    pub(crate) retired: FrameRuns,
    pub(crate) reported: Reported,
}

impl After {
    /// Returns whether there is nothing to carry out.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.settled.is_empty() && self.effects.is_none()
    }

    /// Returns the effects so far, to add to them.
    pub(crate) fn effects(&mut self) -> &mut Effects {
        self.effects.get_or_insert_default()
    }

    /// Has a context do something.
    pub(crate) fn push(&mut self, effect: Effect) {
        self.effects().of_contexts.push(effect);
    }

    /// Frees frames, lowers the level and counts latencies. Adds the tasks to wake to the wakers.
    /// No file may be locked.
    pub(crate) fn settle(&mut self, base: &Base) {
        let mut freed = std::mem::take(&mut self.settled).freed();
        let Effects { wakers, uncharged, retired, reported, .. } = self.effects();
        freed.append(retired);
        if !freed.is_empty() {
            base.pool.give(&mut freed, wakers);
        }
        base.level.remove(std::mem::take(uncharged), wakers);
        if !reported.is_empty() {
            base.counters.add_latencies(reported);
        }
    }

    /// Appends the effects of another step.
    pub(crate) fn append(&mut self, other: &mut Self) {
        self.settled.append(&mut other.settled);
        let Some(mut other) = other.effects.take() else { return };
        let effects = self.effects();
        effects.wakers.append(&mut other.wakers);
        effects.of_contexts.append(&mut other.of_contexts);
        effects.uncharged += std::mem::take(&mut other.uncharged);
        effects.retired.append(&mut other.retired);
        effects.reported.written.append(&mut other.reported.written);
        effects.reported.durable.append(&mut other.reported.durable);
    }

    /// Drops the part of a step that a panic ended. Its frames are leaked: they may be in use, and
    /// frames to be zeroed or patched may belong to other files by now. Wakers, effects and the
    /// pages of completed changes stay.
    pub(crate) fn forget_frames(&mut self) {
        self.settled = Settled::default();
        if let Some(effects) = &mut self.effects {
            effects.retired = FrameRuns::default();
            effects.reported = Reported::default();
        }
    }
}

impl Effects {
    /// Removes and returns the effects for contexts, in the order of their recording.
    pub(crate) fn of_contexts(&mut self) -> impl Iterator<Item = Effect> {
        self.of_contexts.drain(..)
    }
}

/// A panic between a change and [`After::settle`] must not keep callers waiting.
impl Drop for Effects {
    fn drop(&mut self) {
        if thread::panicking() {
            user_code::wake_all(self.wakers.drain(..));
        }
    }
}
