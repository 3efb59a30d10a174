//! The knob `contexts` at `auto`: measures the throughput and finds the number of contexts.
//!
//! It has no thread and no timer: the context that ends a run checks whether a window has ended.
//! `spread.rs` changes the number.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use forebay_block::Moment;

use super::finder::Finder;
use super::wanted::Wanted;
use crate::core::base::Base;
use crate::core::limits::{CONTEXTS, CONTEXTS_WINDOW};
use crate::platform::sync::Mutex;
use crate::platform::thread;

/// Measurement of the throughput by windows.
#[derive(Debug)]
pub(crate) struct Auto {
    /// Whether the knob is at `auto`.
    is_on: AtomicBool,
    /// End of the window, in nanoseconds of the clock.
    next: AtomicU64,
    /// Whether, in this window, the writers brought less than the device takes.
    was_idle: AtomicBool,
    /// Whether a change of the number is in progress.
    is_changing: AtomicBool,
    window: Mutex<Window>,
}

#[derive(Debug)]
struct Window {
    finder: Finder,
    since: Moment,
    /// Bytes written before `since`.
    written: u64,
}

impl Auto {
    pub(crate) fn new() -> Self {
        let window = Window { finder: Finder::new(), since: Moment::default(), written: 0 };
        Self {
            is_on: AtomicBool::new(false),
            next: AtomicU64::new(0),
            was_idle: AtomicBool::new(true),
            is_changing: AtomicBool::new(false),
            window: Mutex::new(window),
        }
    }

    /// Applies the knob, and returns the number of contexts to use now. `auto` begins with one, or
    /// continues with the number found so far.
    pub(crate) fn begin(&self, wanted: Wanted) -> usize {
        let was_on = self.is_on.swap(wanted == Wanted::Auto, Ordering::AcqRel);
        if let Wanted::Number(number) = wanted {
            return number;
        }
        let mut window = self.window.lock();
        if !was_on {
            window.finder = Finder::new();
        }
        window.finder.interrupt()
    }

    /// Checks whether a window has ended at `now`, the end of a run. Returns the number of contexts
    /// for the next window. `groups` returns the largest number of allocation groups of a file
    /// system.
    pub(crate) fn look(
        &self,
        base: &Base,
        now: Moment,
        groups: impl FnOnce() -> usize,
    ) -> Option<usize> {
        if !self.is_on.load(Ordering::Relaxed) {
            return None;
        }
        if !base.level.is_behind() {
            self.was_idle.store(true, Ordering::Relaxed);
        }
        if now < Moment::from_nanoseconds(self.next.load(Ordering::Relaxed)) {
            return None;
        }
        let mut window = self.window.try_lock()?;
        // Another context handled this window in between.
        if now < window.since + CONTEXTS_WINDOW {
            return None;
        }
        self.next.store((now + CONTEXTS_WINDOW).nanoseconds(), Ordering::Relaxed);
        let nanoseconds = now.nanoseconds_since(std::mem::replace(&mut window.since, now));
        let total = base.counters.written_bytes();
        let written = total - std::mem::replace(&mut window.written, total);
        let was_idle = self.was_idle.swap(false, Ordering::Relaxed);
        // A window noticed so late had no run ending in it for a long time: the writers were idle.
        if was_idle || u128::from(nanoseconds) > 2 * CONTEXTS_WINDOW.as_nanos() {
            return Some(window.finder.interrupt());
        }
        let most = most(thread::processors(), groups());
        Some(window.finder.window(written as f64 / nanoseconds.max(1) as f64, most))
    }

    /// Begins a change of the number. Returns false if another change is in progress.
    pub(crate) fn begin_change(&self) -> bool {
        !self.is_changing.swap(true, Ordering::AcqRel)
    }

    /// Ends a change of the number.
    pub(crate) fn end_change(&self) {
        self.is_changing.store(false, Ordering::Release);
    }
}

/// Returns the maximum number of contexts: the least of the processors, the allocation groups if
/// known, and the bound. The groups alone are no bound: a file system may have a million.
fn most(processors: usize, groups: usize) -> usize {
    processors.min(groups).clamp(1, CONTEXTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contract_18_contexts_are_bounded_by_processors_despite_a_million_groups() {
        assert_eq!(most(2, 1_000_000), 2);
        assert_eq!(most(12, usize::MAX), 12);
        assert_eq!(most(12, 4), 4);
        assert_eq!(most(1024, 1_000_000), CONTEXTS);
        assert_eq!(most(2, 0), 1);
    }
}
