//! The part of the dirty level that the files of one file system have, and may have.
//!
//! `level.rs` decides by it who may write; each context reports here which file systems it writes,
//! and how fast.

use std::sync::atomic::{AtomicU64, Ordering};

use forebay_cache::DevicePart;

use crate::platform::sync::{Mutex, MutexGuard};

/// Whether an addition to the level made writeback due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Crossed {
    /// The background level was reached by this.
    Background,
    /// It did not.
    Nothing,
}

/// The part of the dirty level that a file system's files have, and may have.
#[derive(Debug)]
pub(crate) struct Share {
    /// Pages dirty, being written, or granted to writers.
    dirty: AtomicU64,
    /// The part of the limit and of the background level. `u64::MAX` while it is written alone:
    /// then those of the engine hold.
    limit: AtomicU64,
    background: AtomicU64,
    /// Pages written per second; 0 while unknown.
    rate: AtomicU64,
    /// The contexts that write it, by their numbers.
    writers: Mutex<Vec<Writer>>,
}

/// Writing to a file system by one context.
#[derive(Clone, Copy, Default, Debug)]
struct Writer {
    /// It has dirty files there, or requests in flight.
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

    /// Counts pages anew that were `before`, and are `now`. Returns whether writeback became due by
    /// that.
    pub(crate) fn recount(&self, before: u64, now: u64) -> Crossed {
        if now <= before {
            let was = self.dirty.fetch_sub(before - now, Ordering::Relaxed);
            debug_assert!(was >= before - now, "more pages taken off a share than it has");
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

    /// Sets its part; `None` if it is written alone.
    pub(crate) fn set_part(&self, part: Option<DevicePart>) {
        let part = part.unwrap_or(DevicePart { limit: u64::MAX, background: u64::MAX });
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

    /// Notes whether a context writes it.
    pub(crate) fn set_written(&self, context: usize, writes: bool) {
        self.change(context, |writer| writer.writes = writes);
    }

    /// Returns whether any context writes it.
    pub(crate) fn is_written(&self) -> bool {
        self.writers().iter().any(|writer| writer.writes)
    }

    /// The rate is the sum of all contexts that write. While none does, it stays what it was.
    fn change(&self, context: usize, change: impl FnOnce(&mut Writer)) {
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
