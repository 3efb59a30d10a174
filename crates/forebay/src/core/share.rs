//! The counts of the files of one file system: their part of the dirty level, and the pages that
//! cannot be written.
//!
//! `level.rs` uses it to decide whether a file may be written. Each context reports here which file
//! systems it writes to, and how fast.
//!
//! A page that could not be written stays dirty and keeps its memory, until its device accepts the
//! write. One bad file or dead device must not take the memory of all. So each file and each device
//! has a limit for such pages, and writes beyond it fail with the reason. Pages beyond the share of
//! a device, which became dirty before the failure was known, do not count against writers of other
//! devices.
//!
//! Counts that threads share and that progress depends on: room, flight, waiters.
//!
//! A count below zero would be a huge one: every writer would wait for room that never comes. So
//! each subtraction is checked in every build.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use forebay_block::Errno;
use forebay_cache::DevicePart;

use crate::core::limits::CONTEXTS;
use crate::platform::sync::{Mutex, MutexGuard};

/// Whether an addition to the level made writeback due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Crossed {
    /// The addition reached the background level.
    Background,
    /// The addition did not reach it.
    Nothing,
}

/// The part of the dirty level that the files of a file system use, and may use.
#[derive(Debug)]
pub(crate) struct Share {
    /// Pages that are dirty, being written, or granted to writers.
    dirty: AtomicU64,
    /// Its part of the limit and of the background level. `u64::MAX` while no other file system is
    /// written: then those of the engine apply.
    limit: AtomicU64,
    background: AtomicU64,
    /// Pages written per second; 0 while unknown.
    rate: AtomicU64,
    /// Contexts that write to it, by number.
    writers: Mutex<Vec<Writer>>,
}

/// Writes of one context to a file system.
#[derive(Clone, Copy, Default, Debug)]
struct Writer {
    /// Whether it has dirty files or requests in flight there.
    writes: bool,
    /// Pages per second.
    rate: u64,
}

impl Default for Share {
    fn default() -> Self {
        let [dirty, rate] = [0, 0].map(AtomicU64::new);
        let [limit, background] = [u64::MAX, u64::MAX].map(AtomicU64::new);
        Self { dirty, limit, background, rate, writers: Mutex::default() }
    }
}

impl Share {
    pub(crate) fn dirty(&self) -> u64 {
        self.dirty.load(Ordering::Relaxed)
    }

    /// Replaces a count of pages, `before`, by `now`. Returns whether this made writeback due.
    pub(crate) fn recount(&self, before: u64, now: u64) -> Crossed {
        if now <= before {
            let slip = "more pages taken off a share than it has";
            subtract(&self.dirty, before - now, Ordering::Relaxed, slip);
            return Crossed::Nothing;
        }
        let was = self.dirty.fetch_add(now - before, Ordering::Relaxed);
        let background = self.background.load(Ordering::Relaxed);
        if was < background && was + (now - before) >= background {
            Crossed::Background
        } else {
            Crossed::Nothing
        }
    }

    pub(crate) fn part(&self) -> DevicePart {
        let [limit, background] =
            [&self.limit, &self.background].map(|of| of.load(Ordering::Relaxed));
        DevicePart { limit, background }
    }

    /// Sets its part, or `None` if no other file system is written.
    pub(crate) fn set_part(&self, part: Option<DevicePart>) {
        let part = part.unwrap_or(DevicePart { limit: u64::MAX, background: u64::MAX });
        let is_sound = part.background <= part.limit;
        debug_assert!(is_sound, "writers would wait for writeback that never begins");
        self.limit.store(part.limit, Ordering::Relaxed);
        self.background.store(part.background, Ordering::Relaxed);
    }

    pub(crate) fn rate(&self) -> Option<u64> {
        Some(self.rate.load(Ordering::Relaxed)).filter(|rate| *rate > 0)
    }

    /// Notes how many pages per second a context writes.
    pub(crate) fn set_rate(&self, context: usize, rate: u64) {
        self.change(context, |writer| writer.rate = rate);
    }

    /// Notes whether a context writes to it.
    pub(crate) fn set_written(&self, context: usize, writes: bool) {
        self.change(context, |writer| writer.writes = writes);
    }

    /// Returns whether any context writes to it.
    pub(crate) fn is_written(&self) -> bool {
        self.writers().iter().any(|writer| writer.writes)
    }

    /// Changes the entry of a context and updates the rate: the sum of all contexts that write.
    /// While none writes, the rate stays.
    fn change(&self, context: usize, change: impl FnOnce(&mut Writer)) {
        assert!(context < CONTEXTS, "the rate of no context: {context}");
        let mut writers = self.writers();
        if writers.len() <= context {
            writers.resize(context + 1, Writer::default());
        }
        change(&mut writers[context]);
        let all: u64 =
            writers.iter().filter(|writer| writer.writes).map(|writer| writer.rate).sum();
        let rate = if all > 0 { all } else { writers[context].rate };
        if rate > 0 {
            self.rate.store(rate, Ordering::Relaxed);
        }
    }

    fn writers(&self) -> MutexGuard<'_, Vec<Writer>> {
        self.writers.lock()
    }
}

/// Pages of one device that cannot be written.
#[derive(Debug, Default)]
pub(crate) struct Failing {
    pages: AtomicU64,
    /// Pages beyond the device's share, at the last update.
    beyond: Mutex<u64>,
    /// Error of the last failed write.
    errno: AtomicI32,
}

impl Failing {
    /// Returns the number of pages that cannot be written.
    pub(crate) fn pages(&self) -> u64 {
        self.pages.load(Ordering::Acquire)
    }

    /// Returns the error of the last write that failed.
    pub(crate) fn errno(&self) -> Errno {
        Errno(self.errno.load(Ordering::Relaxed))
    }

    /// Notes the error of a write that failed.
    pub(crate) fn note(&self, errno: Errno) {
        self.errno.store(errno.0, Ordering::Relaxed);
    }

    /// Replaces a file's count, `before`, by `now`.
    pub(crate) fn change(&self, before: u64, now: u64) {
        if now >= before {
            self.pages.fetch_add(now - before, Ordering::AcqRel);
        } else {
            let slip = "fewer pages fail than were counted";
            subtract(&self.pages, before - now, Ordering::AcqRel, slip);
        }
    }

    /// Updates the count of pages beyond the device's share, after a change of the pages or the
    /// share. If the count has changed, calls `report` with the count before and now. Calls do not
    /// overlap, so the level sees changes in order.
    pub(crate) fn look_again(&self, share: u64, report: impl FnOnce(u64, u64)) {
        let mut beyond = self.beyond.lock();
        let now = self.pages().saturating_sub(share);
        let before = std::mem::replace(&mut *beyond, now);
        if before != now {
            report(before, now);
        }
    }
}

/// Subtracts from a count, and returns what it was.
///
/// # Panics
/// If it was less; it stays what it was. `slip` names the fault.
#[track_caller]
pub(crate) fn subtract(count: &AtomicU64, by: u64, ordering: Ordering, slip: &str) -> u64 {
    let was = count.fetch_sub(by, ordering);
    if was < by {
        count.fetch_add(by, ordering);
    }
    assert!(was >= by, "{slip}: {by} subtracted from {was}");
    was
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn contract_18_a_count_is_never_below_zero() {
        let count = AtomicU64::new(3);
        assert_eq!(subtract(&count, 2, Ordering::Relaxed, "once"), 3);
        let slip = || subtract(&count, 2, Ordering::Relaxed, "a page is counted once");
        let panic = catch_unwind(AssertUnwindSafe(slip)).unwrap_err();
        let said = panic.downcast::<String>().unwrap();
        assert_eq!(*said, "a page is counted once: 2 subtracted from 1");
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }
}
