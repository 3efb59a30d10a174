//! The arena and its free frames, shared by callers and contexts.
//!
//! Frame numbers become memory here. The rule of the cache makes this sound: until a plan of copies
//! is published or ended, no other code reads or writes its frames in a conflicting way.

use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::task::Waker;

use forebay_block::limits::PAGE;
use forebay_block::{Frame, Target};
use forebay_cache::{CleanRun, Copy, Evictor, FrameRuns, Frames, Patch, Prepare, ReadStep};
use smallvec::SmallVec;

use crate::core::limits::{TOUCHED_AHEAD, TOUCHES_FROM};
use crate::core::slices::{Slices, SlicesMut};
use crate::core::user_code;
use crate::platform::Arena;
use crate::platform::sync::{Mutex, MutexGuard};

/// Frames, the eviction order of clean ones, and the tasks that wait for one.
#[derive(Debug)]
pub(crate) struct Pool {
    arena: Arc<Arena>,
    /// Whether another process can finish the writing, so that the arena has to describe its
    /// content.
    is_survived: bool,
    frames: Mutex<Frames>,
    /// Number of free frames, readable without the lock.
    free: AtomicU32,
    /// No frame from here on was ever taken.
    peak: AtomicU32,
    /// The memory of frames from here on was not taken from the kernel ahead.
    touched: AtomicU32,
    evictor: Mutex<Evictor>,
    waiting: Mutex<Vec<Waiting>>,
    /// Number of waiting tasks, readable without the lock: every read checks it.
    waiters: AtomicUsize,
}

/// A task that waits for free frames.
#[derive(Debug)]
struct Waiting {
    waker: Waker,
    /// Number of frames without which it cannot continue.
    needed: u32,
}

/// Copies of one step of a write or read. Those of a small one need no memory of their own.
#[derive(Debug)]
pub(crate) struct Plan<T>(SmallVec<[T; 2]>);

impl<T> Plan<T> {
    pub(crate) fn new() -> Self {
        Self(SmallVec::new())
    }
}

impl<T> Deref for Plan<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

/// Copies come one at a time. The list's own method is slow for one.
impl<T> Extend<T> for Plan<T> {
    #[inline]
    fn extend<I: IntoIterator<Item = T>>(&mut self, copies: I) {
        copies.into_iter().for_each(|copy| self.0.push(copy));
    }
}

impl Pool {
    pub(crate) fn new(arena: Arc<Arena>, is_survived: bool) -> Self {
        let frames = Mutex::new(Frames::new(arena.frames()));
        let evictor = Mutex::new(Evictor::new(arena.frames()));
        let free = AtomicU32::new(arena.frames());
        let (peak, touched) = (AtomicU32::new(0), AtomicU32::new(0));
        let (waiting, waiters) = (Mutex::default(), AtomicUsize::new(0));
        Self { arena, is_survived, frames, free, peak, touched, evictor, waiting, waiters }
    }

    pub(crate) fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Returns whether the arena has to describe its content.
    pub(crate) fn is_survived(&self) -> bool {
        self.is_survived
    }

    pub(crate) fn free(&self) -> u32 {
        self.free.load(Ordering::SeqCst)
    }

    /// Takes up to `wanted` frames.
    pub(crate) fn take(&self, wanted: usize, stash: &mut FrameRuns) -> usize {
        let mut frames = self.frames();
        let taken = frames.take(wanted, stash);
        assert!(taken <= wanted, "frames would belong to two files: {taken} for {wanted}");
        self.free.store(frames.free(), Ordering::SeqCst);
        self.peak.store(frames.peak(), Ordering::Relaxed);
        taken
    }

    /// Returns the next frames whose memory should be taken from the kernel ahead, and counts them
    /// as touched. Small arenas have none.
    pub(crate) fn next_to_touch(&self) -> Option<Range<u32>> {
        let (peak, touched) =
            (self.peak.load(Ordering::Relaxed), self.touched.load(Ordering::Relaxed));
        let frames = self.arena.frames();
        let is_due = peak >= TOUCHES_FROM && touched < frames.min(peak + TOUCHED_AHEAD / 2);
        if !is_due || frames < 4 * TOUCHED_AHEAD {
            return None;
        }
        let end = (peak + TOUCHED_AHEAD).next_multiple_of(TOUCHED_AHEAD / 2).min(frames);
        let relaxed = Ordering::Relaxed;
        let claimed = self.touched.compare_exchange(touched, end, relaxed, relaxed);
        debug_assert!(end <= frames && touched < end, "memory behind the arena would be touched");
        claimed.ok().map(|start| start..end)
    }

    /// Takes these frames, whose content is known.
    pub(crate) fn take_these(&self, runs: &FrameRuns) {
        let mut frames = self.frames();
        let free = frames.free();
        runs.runs().iter().for_each(|run| frames.take_these(*run));
        assert_eq!(free - frames.free(), runs.len() as u32, "a frame would belong to two pages");
        self.free.store(frames.free(), Ordering::SeqCst);
    }

    /// Gives frames back. Adds to `wakers` the tasks that have enough frames now.
    pub(crate) fn give(&self, freed: &mut FrameRuns, wakers: &mut Vec<Waker>) {
        if freed.is_empty() {
            return;
        }
        debug_assert!(
            !self.is_survived || freed.frames().all(|frame| self.arena.published(frame).is_none()),
            "a free frame has no header"
        );
        // Before others can take them.
        let mut evictor = self.evictor();
        freed.frames().for_each(|frame| evictor.leave(frame));
        drop(evictor);
        let mut frames = self.frames();
        for run in freed.drain() {
            frames.give_run(run);
        }
        self.free.store(frames.free(), Ordering::SeqCst);
        drop(frames);
        self.take_served(wakers);
    }

    /// Enters clean pages of a file with the evictor. Called under the file's lock.
    pub(crate) fn enter_clean(&self, target: Target, clean: &mut Vec<CleanRun>) {
        if clean.is_empty() {
            return;
        }
        let mut evictor = self.evictor();
        for run in clean.drain(..) {
            for (page, frame) in (run.page..).zip(run.frames.frames()) {
                evictor.enter(target, page, frame);
            }
        }
    }

    /// Returns the eviction order of clean pages. No other lock is taken while this one is held.
    pub(crate) fn evictor(&self) -> MutexGuard<'_, Evictor> {
        self.evictor.lock()
    }

    /// Registers a waker for the time when this many frames are free. The caller must look again
    /// after this, before it waits. Returns whether no other task waited.
    pub(crate) fn wait(&self, waker: &Waker, needed: u32) -> bool {
        assert!(needed <= self.arena.frames(), "a task would wait for frames that do not exist");
        let waker = waker.clone();
        let mut waiting = self.waiting.lock();
        waiting.push(Waiting { waker, needed });
        // Before that look: a thread that frees frames updates their number first, and reads this
        // one afterwards.
        self.waiters.store(waiting.len(), Ordering::SeqCst);
        waiting.len() == 1
    }

    /// Returns whether a task waits for frames.
    pub(crate) fn has_waiting(&self) -> bool {
        self.waiters.load(Ordering::SeqCst) > 0
    }

    /// Removes the wakers of tasks that wait for frames: pages have become clean and can be
    /// evicted.
    pub(crate) fn take_waiting(&self, wakers: &mut Vec<Waker>) {
        if self.has_waiting() {
            let mut waiting = self.waiting.lock();
            wakers.extend(waiting.drain(..).map(|waiting| waiting.waker));
            self.waiters.store(0, Ordering::SeqCst);
        }
    }

    /// Removes the wakers of tasks that need no more frames than are free. A task that needs more
    /// would take the free ones, give them back, and so wake itself again and again.
    fn take_served(&self, wakers: &mut Vec<Waker>) {
        if self.has_waiting() {
            let mut waiting = self.waiting.lock();
            let free = self.free();
            let served = waiting.extract_if(.., |waiting| waiting.needed <= free);
            wakers.extend(served.map(|waiting| waiting.waker));
            self.waiters.store(waiting.len(), Ordering::SeqCst);
        }
    }

    /// Wakes all tasks that wait for frames.
    pub(crate) fn wake_all(&self) {
        let mut waiting = Vec::new();
        self.take_waiting(&mut waiting);
        user_code::wake_all(waiting);
    }

    /// Makes the copies of a plan, from the caller's memory.
    pub(crate) fn copy_in(&self, copies: &[Copy], mut from: Slices<'_>) {
        let bytes = copies.iter().map(|copy| copy.length).sum::<usize>();
        debug_assert!(bytes <= from.len(), "pages would have bytes that no caller wrote");
        for copy in copies {
            match copy.prepare {
                Prepare::Nothing => {}
                Prepare::Zero => {
                    self.zero(copy.frame, 0..copy.at);
                    self.zero(copy.frame, copy.at + copy.length..PAGE);
                }
                // SAFETY: `copy.frame` is planned for this copy alone. The old frame is in flight
                // as the source of a write, so no code changes it. It is not freed before the page
                // is published, because the page is busy.
                Prepare::From(old) => unsafe { self.arena.copy_frame(old, copy.frame) },
            }
            let mut done = 0;
            while done < copy.length {
                let part = from.take(copy.length - done);
                // SAFETY: the page is busy: until it is published, no other code reads, sends or
                // drops its frame.
                unsafe { self.arena.copy_in(copy.frame, copy.at + done, part) };
                done += part.len();
            }
        }
    }

    /// Makes the copies of a plan into the caller's memory, and advances that.
    pub(crate) fn copy_out(&self, steps: &[ReadStep], into: &mut SlicesMut<'_, '_>) {
        let bytes = steps.iter().map(|step| step.length).sum::<usize>();
        debug_assert!(bytes <= into.len(), "bytes of the file would be lost");
        for step in steps {
            let mut done = 0;
            while done < step.length {
                let part = into.take(step.length - done);
                match step.frame {
                    None => part.fill(0),
                    // SAFETY: the page is pinned: its frame is neither written nor freed until the
                    // plan is ended.
                    Some(frame) => unsafe { self.arena.copy_out(frame, step.at + done, part) },
                }
                done += part.len();
            }
        }
    }

    /// Copies the first bytes of a dirty page that nobody copies into. Called under the file's
    /// lock.
    pub(crate) fn read(&self, frame: Frame, into: &mut [u8]) {
        debug_assert!(into.len() <= PAGE, "bytes of another frame");
        // SAFETY: nobody writes into the frame before the lock is released, and nobody frees it.
        unsafe { self.arena.copy_out(frame, 0, into) };
    }

    /// Zeroes a part of a frame that only the caller uses. It is in a planned copy, or in a page
    /// under the file's lock that no reader has pinned.
    pub(crate) fn zero(&self, frame: Frame, range: Range<usize>) {
        if !range.is_empty() {
            debug_assert!(range.end <= PAGE, "a range beyond the frame");
            // SAFETY: only the caller uses the frame, as described above.
            unsafe { self.arena.zero(frame, range) };
        }
    }

    /// Copies the missing bytes of a page into its frame. Called under the file's lock. No code
    /// uses the missing bytes yet, and only the caller uses the frame that they come from.
    pub(crate) fn patch(&self, patch: &Patch) {
        for bytes in &patch.bytes {
            debug_assert!(bytes.end <= PAGE, "a range beyond the frame");
            let filled = patch.filled.clamp(bytes.start, bytes.end);
            // SAFETY: no code reads or writes the missing bytes of a page, and only the caller
            // knows the frame that they come from.
            unsafe { self.arena.copy_part(patch.from, patch.to, bytes.start..filled) };
            self.zero(patch.to, filled..bytes.end);
        }
    }

    fn frames(&self) -> MutexGuard<'_, Frames> {
        self.frames.lock()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use forebay_cache::FrameRuns;

    use super::*;

    #[test]
    fn frames_given_back_wake_only_tasks_for_which_they_are_enough() {
        let pool = Pool::new(Arc::new(Arena::shared(64).unwrap()), false);
        let (mut all, mut one, mut woken) =
            (FrameRuns::default(), FrameRuns::default(), Vec::new());
        pool.take(64, &mut all);
        pool.wait(Waker::noop(), 2);
        pool.wait(Waker::noop(), 1);
        one.push(all.take().unwrap());
        pool.give(&mut one, &mut woken);
        assert_eq!((woken.len(), pool.has_waiting()), (1, true));
        // The task that needs two tries again, and gives back the frame that it got.
        for _ in 0..3 {
            assert_eq!(pool.take(2, &mut one), 1);
            pool.wait(Waker::noop(), 2);
            pool.give(&mut one, &mut woken);
        }
        assert_eq!(woken.len(), 1);
        pool.give(&mut all, &mut woken);
        assert_eq!((woken.len(), pool.has_waiting()), (5, false));
    }
}
