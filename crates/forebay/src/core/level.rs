//! The level of dirty pages of an engine, and the writers that wait for it to fall.
//!
//! Freed room goes to the waiter that has waited longest, among those whose file system may have
//! more. A waiter is granted several pages at once, already charged, and uses them without asking
//! again. So waiters of one file system stay in order, and a slow file system delays no other. A
//! wait costs two context switches per grant, not per page.
//!
//! A task that does not take its grant, because it is not polled again, must not hold the room for
//! ever. While others wait, a context takes it back after a while. The task asks again when it is
//! polled, and its next grant lasts twice as long: so tasks that are always polled late get on.
//!
//! When the engine stops, every waiter is refused and every grant that was not taken comes back, so
//! the shutdown does not wait for tasks that are not polled.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use forebay_block::{Moment, Target};
use forebay_cache::{Admission, DevicePart, Dirty, Throttle};

use crate::core::share::Crossed;
use crate::core::share::subtract;
use crate::core::space::volume::Volume;
use crate::core::user_code;
use crate::platform::sync::Mutex;
use crate::platform::{Home, clock};

/// Level of dirty pages.
#[derive(Debug)]
pub(crate) struct Level {
    /// Pages at which writers wait, and at which background writeback starts. They are changed one
    /// after the other; in between, the lower one applies.
    limit: AtomicU64,
    background: AtomicU64,
    dirty: AtomicU64,
    /// Pages among them that cannot be written, beyond the share of their device.
    beyond: AtomicU64,
    peak: AtomicU64,
    waits: AtomicU64,
    /// Longest wait of a writer, in nanoseconds.
    longest_wait: AtomicU64,
    waiting: Mutex<Waiting>,
    queued: AtomicU64,
    home: Home,
}

/// Waiting writers.
#[derive(Debug, Default)]
struct Waiting {
    /// One line for each file system with waiters, and one for its small files.
    lines: Vec<Line>,
    /// Number of waiters so far, which is the number of the next one.
    came: u64,
    /// Waiters whose grant may not have been taken, and when they got it.
    granted: Vec<(Moment, Arc<Waiter>)>,
    /// Whether all writers are refused.
    is_closed: bool,
}

/// Writers that wait for one file system, in order of arrival.
#[derive(Debug)]
struct Line {
    volume: Arc<Volume>,
    /// Whether their files are small: they may use the room beyond the limit.
    is_small: bool,
    waiters: VecDeque<Arc<Waiter>>,
}

impl Waiting {
    fn iter(&self) -> impl Iterator<Item = &Arc<Waiter>> {
        self.lines.iter().flat_map(|line| &line.waiters)
    }

    fn push(&mut self, writer: &Writer<'_>, is_small: bool) -> Arc<Waiter> {
        let (number, volume) = (self.came, Arc::clone(writer.volume));
        self.came += 1;
        let is_its = |line: &Line| Arc::ptr_eq(&line.volume, &volume) && line.is_small == is_small;
        let at = self.lines.iter().position(is_its);
        let at = at.unwrap_or_else(|| {
            let (volume, waiters) = (Arc::clone(&volume), VecDeque::new());
            self.lines.push(Line { volume, is_small, waiters });
            self.lines.len() - 1
        });
        let (target, patience, granted) = (writer.target, writer.patience, Mutex::default());
        let waiter = Arc::new(Waiter { number, target, volume, patience, granted });
        let last = self.lines[at].waiters.back();
        let is_in_order = last.is_none_or(|last| last.number < number);
        debug_assert!(is_in_order, "a writer would pass those that came before it");
        self.lines[at].waiters.push_back(Arc::clone(&waiter));
        waiter
    }

    /// Removes a waiter. Returns false if it is not there.
    fn remove(&mut self, waiter: &Arc<Waiter>) -> bool {
        for line in &mut self.lines {
            if let Some(at) = line.waiters.iter().position(|other| Arc::ptr_eq(other, waiter)) {
                line.waiters.remove(at);
                self.tidy();
                return true;
            }
        }
        false
    }

    fn tidy(&mut self) {
        self.lines.retain(|line| !line.waiters.is_empty());
    }
}

#[derive(Debug)]
struct Waiter {
    /// Number in order of arrival.
    number: u64,
    /// File system of the file.
    volume: Arc<Volume>,
    /// File to write.
    target: Target,
    /// How long a grant lasts while others wait.
    patience: Duration,
    granted: Mutex<Granted>,
}

/// Grant of a waiter.
#[derive(Debug, Default)]
struct Granted {
    /// Pages that are charged and not taken.
    pages: u64,
    /// Whether they were taken back, or the writer is refused.
    is_over: bool,
    waker: Option<Waker>,
}

/// A writer that has to wait.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    pub(crate) target: Target,
    pub(crate) volume: &'a Arc<Volume>,
    /// Dirty pages of the file.
    pub(crate) of_file: u64,
    /// How long a grant lasts while others wait.
    pub(crate) patience: Duration,
}

impl Level {
    pub(crate) fn new(throttle: Throttle) -> Self {
        Self {
            limit: AtomicU64::new(throttle.limit),
            background: AtomicU64::new(throttle.background),
            dirty: AtomicU64::new(0),
            beyond: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            longest_wait: AtomicU64::new(0),
            waiting: Mutex::default(),
            queued: AtomicU64::new(0),
            home: Home::here(),
        }
    }

    pub(crate) fn dirty(&self) -> u64 {
        self.dirty.load(Ordering::Relaxed)
    }

    /// Returns the pages at which writers wait.
    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    fn background(&self) -> u64 {
        self.background.load(Ordering::Relaxed)
    }

    fn throttle(&self) -> Throttle {
        Throttle::new(self.limit(), self.background())
    }

    /// Changes the levels. Adds the tasks to wake to `wakers`. Returns whether the limit was
    /// different before.
    pub(crate) fn set_throttle(&self, throttle: Throttle, wakers: &mut Vec<Waker>) -> bool {
        let is_sound = throttle.background <= throttle.limit && throttle.limit > 0;
        assert!(is_sound, "writers would wait for writeback that never begins");
        self.background.store(throttle.background, Ordering::Relaxed);
        let before = self.limit.swap(throttle.limit, Ordering::AcqRel);
        // Waiters may have room now.
        self.remove(0, wakers);
        before != throttle.limit
    }

    /// Returns the pages that count against a writer.
    fn counted(&self) -> u64 {
        self.dirty().saturating_sub(self.beyond.load(Ordering::Acquire))
    }

    /// Replaces a device's count of pages beyond its share. Adds the tasks to wake to `wakers`:
    /// writers to that device fail, and other waiters may have room.
    pub(crate) fn change_beyond(&self, before: u64, now: u64, wakers: &mut Vec<Waker>) {
        if before < now {
            self.beyond.fetch_add(now - before, Ordering::AcqRel);
            let waiting = self.lock();
            wakers.extend(waiting.iter().filter_map(|waiter| waiter.granted.lock().waker.take()));
            drop(waiting);
            self.remove(0, wakers);
        } else {
            let slip = "more pages beyond the share removed than counted";
            subtract(&self.beyond, before - now, Ordering::AcqRel, slip);
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

    /// Returns whether writers wait.
    pub(crate) fn has_waiters(&self) -> bool {
        self.queued.load(Ordering::Acquire) > 0
    }

    /// Returns whether there is more to write than the contexts have written.
    pub(crate) fn is_behind(&self) -> bool {
        self.dirty() >= self.background()
    }

    /// Returns whether background writeback to a file system has work.
    pub(crate) fn wants_writeback(&self, volume: &Volume) -> bool {
        self.dirty() >= self.background() || volume.share.dirty() >= self.part(volume).background
    }

    /// Decides whether a writer of a file with `of_file` dirty pages may continue.
    pub(crate) fn admit(&self, volume: &Volume, of_file: u64) -> Admission {
        let throttle = self.throttle();
        throttle.admit(self.dirty_of(volume, of_file), part_of(volume, &throttle))
    }

    /// Decides whether a writer of `pages` pages may continue with all of them.
    pub(crate) fn admit_all(&self, volume: &Volume, pages: u64) -> Admission {
        let Dirty { all, of_device, .. } = self.dirty_of(volume, 0);
        let dirty = Dirty { all: all + pages, of_device: of_device + pages, of_file: u64::MAX };
        self.throttle().admit(dirty, self.part(volume))
    }

    /// Sets the part of the level for each file system that is written.
    pub(crate) fn share_out(&self, volumes: &[&Volume]) {
        let rates: Vec<_> = volumes.iter().map(|volume| volume.share.rate()).collect();
        let is_alone = volumes.len() < 2;
        for (volume, part) in volumes.iter().zip(self.throttle().parts(&rates)) {
            volume.share.set_part((!is_alone).then_some(part));
        }
    }

    fn dirty_of(&self, volume: &Volume, of_file: u64) -> Dirty {
        Dirty { all: self.counted(), of_device: volume.share.dirty(), of_file }
    }

    fn part(&self, volume: &Volume) -> DevicePart {
        part_of(volume, &self.throttle())
    }

    /// Counts pages that became dirty.
    pub(crate) fn add(&self, pages: u64) -> Crossed {
        if pages == 0 {
            return Crossed::Nothing;
        }
        let before = self.dirty.fetch_add(pages, Ordering::Relaxed);
        let now = before + pages;
        if now > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(now, Ordering::Relaxed);
        }
        let background = self.background();
        if before < background && now >= background {
            Crossed::Background
        } else {
            Crossed::Nothing
        }
    }

    /// Counts pages that are no longer dirty. Adds the tasks to wake to `wakers`.
    #[inline]
    pub(crate) fn remove(&self, pages: u64, wakers: &mut Vec<Waker>) {
        if pages > 0 {
            subtract(&self.dirty, pages, Ordering::AcqRel, "more pages cleaned than were dirty");
        }
        if self.has_waiters() {
            self.grant(wakers);
        }
    }

    /// Gives free room to waiters.
    #[inline(never)]
    fn grant(&self, wakers: &mut Vec<Waker>) {
        let mut waiting = self.lock();
        let mut now = None;
        while let Some((at, grant)) = self.next_grant(&waiting) {
            let Some(waiter) = waiting.lines[at].waiters.pop_front() else { break };
            waiting.tidy();
            self.uncount_waiter();
            assert!(grant > 0, "a grant without a page would be granted for ever");
            let _ = self.add(grant);
            // Counted here until it is taken and counted for the file.
            let _ = waiter.volume.share.recount(0, grant);
            let mut granted = waiter.granted.lock();
            granted.pages = grant;
            wakers.extend(granted.waker.take());
            drop(granted);
            if now.is_none() {
                waiting.granted.retain(|(_, waiter)| waiter.granted.lock().pages > 0);
            }
            waiting.granted.push((*now.get_or_insert_with(clock::now), waiter));
        }
    }

    /// Notes that a writer has left the queue.
    fn uncount_waiter(&self) {
        subtract(&self.queued, 1, Ordering::Release, "a waiter leaves the queue once");
    }

    /// Takes back grants that were not taken in time, if others wait for room. Adds the tasks to
    /// wake to `wakers`.
    pub(crate) fn take_back(&self, now: impl FnOnce() -> Moment, wakers: &mut Vec<Waker>) {
        if !self.has_waiters() {
            return;
        }
        let mut waiting = self.lock();
        if waiting.granted.is_empty() {
            return;
        }
        let (now, mut pages) = (now(), 0);
        waiting.granted.retain(|(since, waiter)| {
            let is_late = u128::from(now.nanoseconds_since(*since)) >= waiter.patience.as_nanos();
            if is_late {
                pages += waiter.take_back();
            }
            !is_late
        });
        drop(waiting);
        self.remove(pages, wakers);
    }

    /// Returns the line with the longest waiting writer that has room, and its grant. A small file
    /// gets a page as soon as a grant fits: those behind it use the rest without a wait.
    fn next_grant(&self, waiting: &Waiting) -> Option<(usize, u64)> {
        let lines = waiting.lines.iter().enumerate().filter_map(|(at, line)| {
            let throttle = self.throttle();
            let grant = throttle.grant(line.volume.share.rate(), line.waiters.len() as u64);
            let (dirty, part) = (self.dirty_of(&line.volume, 0), self.part(&line.volume));
            let number = line.waiters.front()?.number;
            if line.is_small {
                throttle.fits_small(dirty, part, grant).then_some((number, at, 1))
            } else {
                throttle.fits(dirty, part, grant).then_some((number, at, grant))
            }
        });
        lines.min().map(|(_, at, grant)| (at, grant))
    }

    /// Wakes the writers of a file after a failed write of a page. They check the error, and keep
    /// their places.
    pub(crate) fn look_again(&self, target: Target, wakers: &mut Vec<Waker>) {
        if self.queued.load(Ordering::Acquire) == 0 {
            return;
        }
        for waiter in self.lock().iter().filter(|waiter| waiter.target == target) {
            wakers.extend(waiter.granted.lock().waker.take());
        }
    }

    /// Refuses all writers that wait or come later, and takes back grants that were not taken. The
    /// writers find that the engine stops. No lock may be held.
    pub(crate) fn close(&self) {
        let mut waiting = self.lock();
        waiting.is_closed = true;
        let granted = std::mem::take(&mut waiting.granted);
        let lines = std::mem::take(&mut waiting.lines);
        let waiters: Vec<_> = lines.into_iter().flat_map(|line| line.waiters).collect();
        waiters.iter().for_each(|_| self.uncount_waiter());
        drop(waiting);
        let mut wakers: Vec<_> = waiters.iter().filter_map(|waiter| waiter.refuse()).collect();
        let pages = granted.iter().map(|(_, waiter)| waiter.take_back()).sum();
        self.remove(pages, &mut wakers);
        user_code::wake_all(wakers);
    }

    /// Queues a writer for a grant. Dropping the result stops the wait.
    pub(crate) fn queue(self: &Arc<Self>, writer: &Writer<'_>) -> Queued {
        self.waits.fetch_add(1, Ordering::Relaxed);
        let is_small = self.throttle().is_small(self.dirty_of(writer.volume, writer.of_file));
        let mut waiting = self.lock();
        let waiter = waiting.push(writer, is_small);
        let is_first = self.queued.fetch_add(1, Ordering::Release) == 0;
        let is_closed = waiting.is_closed;
        drop(waiting);
        if is_closed {
            self.close();
        }
        // The level may have fallen before this waiter was in the queue.
        let mut wakers = Vec::new();
        self.remove(0, &mut wakers);
        user_code::wake_all(wakers);
        let (level, since) = (Arc::clone(self), clock::now());
        Queued { level, waiter, since, is_first, taken: Taken::No }
    }

    fn lock(&self) -> crate::platform::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock()
    }
}

fn part_of(volume: &Volume, throttle: &Throttle) -> DevicePart {
    let (part, whole) = (volume.share.part(), throttle.whole());
    DevicePart {
        limit: part.limit.min(whole.limit),
        background: part.background.min(whole.background),
    }
}

/// Place in the queue for room.
#[derive(Debug)]
pub(crate) struct Queued {
    level: Arc<Level>,
    waiter: Arc<Waiter>,
    since: Moment,
    is_first: bool,
    taken: Taken,
}

impl Waiter {
    /// Takes the grant back if it was not taken. Returns its pages, which the level still counts.
    fn take_back(&self) -> u64 {
        let mut granted = self.granted.lock();
        let pages = std::mem::take(&mut granted.pages);
        granted.is_over |= pages > 0;
        let _ = self.volume.share.recount(pages, 0);
        pages
    }

    /// Ends the wait without a grant. Returns the task to wake.
    fn refuse(&self) -> Option<Waker> {
        let mut granted = self.granted.lock();
        granted.is_over = true;
        granted.waker.take()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Taken {
    Yes,
    No,
}

impl Queued {
    /// Returns whether no other writer waited when this one was queued.
    pub(crate) fn is_first(&self) -> bool {
        self.is_first
    }

    /// How long the next grant of this writer lasts, if this one was taken back.
    pub(crate) fn next_patience(&self) -> Duration {
        self.waiter.patience.saturating_mul(2)
    }

    /// Waits for the granted pages, which are already charged. Returns no pages if they were taken
    /// back or the writer is refused: it has to ask again.
    pub(crate) fn poll(&mut self, context: &Context<'_>) -> Poll<u64> {
        let waker = context.waker().clone();
        let mut granted = self.waiter.granted.lock();
        if granted.pages > 0 || granted.is_over {
            assert!(self.taken != Taken::Yes, "pages of a grant would be charged to two writes");
            self.taken = Taken::Yes;
            let pages = std::mem::take(&mut granted.pages);
            let _ = self.waiter.volume.share.recount(pages, 0);
            let waited = clock::now().nanoseconds_since(self.since);
            self.level.longest_wait.fetch_max(waited, Ordering::Relaxed);
            return Poll::Ready(pages);
        }
        let replaced = granted.waker.replace(waker);
        drop(granted);
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        if self.taken == Taken::Yes || !self.level.home.is_here() {
            return;
        }
        let mut waiting = self.level.lock();
        if waiting.remove(&self.waiter) {
            self.level.uncount_waiter();
            return;
        }
        drop(waiting);
        let mut wakers = Vec::new();
        self.level.remove(self.waiter.take_back(), &mut wakers);
        user_code::wake_all(wakers);
    }
}

#[cfg(test)]
mod tests;
