//! The level of dirty pages of an engine, and the writers that wait for it to fall.
//!
//! Freed room goes to whoever waits longest, in shares: a waiter is granted a share of pages at once, charged
//! already, and runs on it without asking again. So nobody overtakes, and a wait costs two context switches per
//! share rather than per page.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use forebay_block::{Moment, Target};
use forebay_cache::{Admission, Throttle};
use forebay_uring::clock;

/// The level.
#[derive(Debug)]
pub(crate) struct Level {
    throttle: Throttle,
    share: u64,
    dirty: AtomicU64,
    /// Of these, pages that cannot be written, beyond the share of their device.
    beyond: AtomicU64,
    peak: AtomicU64,
    waits: AtomicU64,
    /// The longest a writer has waited, in nanoseconds.
    longest_wait: AtomicU64,
    waiting: Mutex<VecDeque<Arc<Waiter>>>,
    queued: AtomicU64,
}

#[derive(Debug)]
struct Waiter {
    /// The file it wants to write.
    target: Target,
    /// Pages granted; and who to tell.
    granted: Mutex<(u64, Option<Waker>)>,
}

/// Whether adding to the level made the context's help due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Crossed {
    /// The background level was reached by this.
    Background,
    /// Nothing changed.
    Nothing,
}

impl Level {
    pub(crate) fn new(throttle: Throttle) -> Self {
        Self {
            throttle,
            share: (throttle.limit / 256).clamp(16, 1024),
            dirty: AtomicU64::new(0),
            beyond: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            longest_wait: AtomicU64::new(0),
            waiting: Mutex::new(VecDeque::new()),
            queued: AtomicU64::new(0),
        }
    }

    pub(crate) fn dirty(&self) -> u64 {
        self.dirty.load(Ordering::Relaxed)
    }

    /// Pages from which on writers wait.
    pub(crate) fn limit(&self) -> u64 {
        self.throttle.limit
    }

    /// Pages that are held against a writer.
    fn counted(&self) -> u64 {
        self.dirty().saturating_sub(self.beyond.load(Ordering::Acquire))
    }

    /// So many pages of a device were beyond its share, and are now; whom to wake is appended. Who waits to write to
    /// that device hears why, and who waits for room elsewhere may have it.
    pub(crate) fn change_beyond(&self, before: u64, now: u64, wakers: &mut Vec<Waker>) {
        if before < now {
            self.beyond.fetch_add(now - before, Ordering::AcqRel);
            let waiting = self.lock();
            wakers.extend(waiting.iter().filter_map(|waiter| lock(&waiter.granted).1.take()));
            drop(waiting);
            self.remove(0, wakers);
        } else {
            self.beyond.fetch_sub(before - now, Ordering::AcqRel);
        }
    }

    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    pub(crate) fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    pub(crate) fn longest_wait(&self) -> Duration {
        Duration::from_nanos(self.longest_wait.load(Ordering::Relaxed))
    }

    /// Whether writers wait.
    pub(crate) fn has_waiters(&self) -> bool {
        self.queued.load(Ordering::Acquire) > 0
    }

    /// Whether background writeback has work.
    pub(crate) fn wants_writeback(&self) -> bool {
        self.dirty() >= self.throttle.background
    }

    /// May a writer of a file with `file_dirty` dirty pages go on?
    pub(crate) fn admit(&self, file_dirty: u64) -> Admission {
        self.throttle.admit(self.counted(), file_dirty)
    }

    /// Pages became dirty.
    pub(crate) fn add(&self, pages: u64) -> Crossed {
        if pages == 0 {
            return Crossed::Nothing;
        }
        let before = self.dirty.fetch_add(pages, Ordering::Relaxed);
        let now = before + pages;
        if now > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(now, Ordering::Relaxed);
        }
        let background = self.throttle.background;
        if before < background && now >= background { Crossed::Background } else { Crossed::Nothing }
    }

    /// Pages are dirty no more; whom to wake is appended.
    pub(crate) fn remove(&self, pages: u64, wakers: &mut Vec<Waker>) {
        if pages > 0 {
            let before = self.dirty.fetch_sub(pages, Ordering::AcqRel);
            assert!(before >= pages, "more pages cleaned than were dirty");
        }
        if self.queued.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut waiting = self.lock();
        while self.counted() + self.share <= self.throttle.limit {
            let Some(waiter) = waiting.pop_front() else { break };
            self.queued.fetch_sub(1, Ordering::Release);
            let _ = self.add(self.share);
            let mut granted = lock(&waiter.granted);
            granted.0 = self.share;
            wakers.extend(granted.1.take());
        }
    }

    /// A page of a file could not be written: who waits to write more of it has to look, and keeps its place.
    pub(crate) fn look_again(&self, target: Target, wakers: &mut Vec<Waker>) {
        if self.queued.load(Ordering::Acquire) == 0 {
            return;
        }
        for waiter in self.lock().iter().filter(|waiter| waiter.target == target) {
            wakers.extend(lock(&waiter.granted).1.take());
        }
    }

    /// Wakes whoever waits for room, with or without.
    pub(crate) fn wake_all(&self) {
        let waiting: Vec<_> = self.lock().iter().map(Arc::clone).collect();
        let wakers = waiting.iter().filter_map(|waiter| lock(&waiter.granted).1.take());
        wakers.collect::<Vec<_>>().into_iter().for_each(Waker::wake);
    }

    /// Waits for a share, to write a file; drop it to stop waiting.
    pub(crate) fn queue(self: &Arc<Self>, target: Target) -> Queued {
        self.waits.fetch_add(1, Ordering::Relaxed);
        let waiter = Arc::new(Waiter { target, granted: Mutex::new((0, None)) });
        let mut waiting = self.lock();
        waiting.push_back(Arc::clone(&waiter));
        self.queued.fetch_add(1, Ordering::Release);
        drop(waiting);
        // The level may have fallen between the look and the queueing, with nobody there to be told.
        let mut wakers = Vec::new();
        self.remove(0, &mut wakers);
        wakers.into_iter().for_each(Waker::wake);
        Queued { level: Arc::clone(self), waiter, since: clock::now(), taken: Taken::No }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Arc<Waiter>>> {
        lock(&self.waiting)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A place in the queue for room.
#[derive(Debug)]
pub(crate) struct Queued {
    level: Arc<Level>,
    waiter: Arc<Waiter>,
    since: Moment,
    taken: Taken,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Taken {
    Yes,
    No,
}

impl Queued {
    /// The pages granted, charged already.
    pub(crate) fn poll(&mut self, context: &Context<'_>) -> Poll<u64> {
        let mut granted = lock(&self.waiter.granted);
        if granted.0 > 0 {
            self.taken = Taken::Yes;
            let waited = clock::now().nanoseconds_since(self.since);
            self.level.longest_wait.fetch_max(waited, Ordering::Relaxed);
            return Poll::Ready(granted.0);
        }
        granted.1 = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        if self.taken == Taken::Yes {
            return;
        }
        let mut waiting = self.level.lock();
        if let Some(at) = waiting.iter().position(|waiter| Arc::ptr_eq(waiter, &self.waiter)) {
            waiting.remove(at);
            self.level.queued.fetch_sub(1, Ordering::Release);
            return;
        }
        drop(waiting);
        let granted = lock(&self.waiter.granted).0;
        let mut wakers = Vec::new();
        self.level.remove(granted, &mut wakers);
        wakers.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level() -> Arc<Level> {
        Arc::new(Level::new(Throttle::new(1024, 512)))
    }

    fn poll(queued: &mut Queued) -> Poll<u64> {
        queued.poll(&Context::from_waker(Waker::noop()))
    }

    #[test]
    fn contract_15_room_goes_to_who_waits_longest() {
        let level = level();
        assert_eq!(level.add(1024), Crossed::Background);
        assert_eq!(level.admit(900), Admission::Wait);
        let (mut first, mut second) = (level.queue(Target(0)), level.queue(Target(0)));
        assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
        let mut wakers = Vec::new();
        level.remove(16, &mut wakers);
        assert_eq!(wakers.len(), 1);
        assert_eq!(poll(&mut first), Poll::Ready(16));
        assert!(poll(&mut second).is_pending());
        level.remove(16, &mut wakers);
        assert_eq!(poll(&mut second), Poll::Ready(16));
        assert_eq!(level.dirty(), 1024);
    }

    #[test]
    fn contract_02_who_waits_hears_of_a_failure_of_its_file() {
        let level = level();
        level.add(1024);
        let (mut mine, mut other) = (level.queue(Target(1)), level.queue(Target(2)));
        assert!(poll(&mut mine).is_pending() && poll(&mut other).is_pending());
        let mut wakers = Vec::new();
        level.look_again(Target(1), &mut wakers);
        assert_eq!(wakers.len(), 1);
        level.remove(16, &mut wakers);
        assert_eq!(poll(&mut mine), Poll::Ready(16), "its place is kept");
    }

    #[test]
    fn contract_02_what_a_dead_device_holds_is_not_held_against_others() {
        let level = level();
        level.add(1024);
        let mut elsewhere = level.queue(Target(1));
        assert!(poll(&mut elsewhere).is_pending());
        let mut wakers = Vec::new();
        level.change_beyond(0, 768, &mut wakers);
        assert_eq!(wakers.len(), 1, "who waits looks again");
        assert_eq!(poll(&mut elsewhere), Poll::Ready(16), "and has room");
        assert_eq!(level.admit(900), Admission::Granted);
        level.change_beyond(768, 0, &mut wakers);
        assert_eq!(level.admit(900), Admission::Wait);
    }

    #[test]
    fn a_place_given_up_gives_its_share_to_the_next() {
        let level = level();
        level.add(1024);
        let (first, mut second) = (level.queue(Target(0)), level.queue(Target(0)));
        level.remove(16, &mut Vec::new());
        drop(first);
        assert_eq!(poll(&mut second), Poll::Ready(16));
        drop(level.queue(Target(0)));
        assert_eq!(level.queued.load(Ordering::Relaxed), 0);
    }
}
