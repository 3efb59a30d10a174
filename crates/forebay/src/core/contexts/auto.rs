//! The knob `contexts` at `auto`: watches how much is written, and finds the number of contexts.
//!
//! No thread of its own and no timer: whichever context ends a run looks whether a window is over.
//! `spread.rs` changes the number.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use forebay_block::Moment;

use super::finder::Finder;
use super::wanted::Wanted;
use crate::core::base::Base;
use crate::core::limits::{CONTEXTS, CONTEXTS_WINDOW};
use crate::platform::sync::Mutex;
use crate::platform::thread;

/// The watch.
#[derive(Debug)]
pub(crate) struct Auto {
    /// It decides.
    is_on: AtomicBool,
    /// When the window ends, in nanoseconds of the clock.
    next: AtomicU64,
    /// The writers had less than the device takes, in this window.
    was_idle: AtomicBool,
    /// A change is being made.
    is_changing: AtomicBool,
    window: Mutex<Window>,
}

#[derive(Debug)]
struct Window {
    finder: Finder,
    since: Moment,
    /// Bytes written until then.
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

    /// With how many the engine goes on: as many as were told, or as found, which begins with one.
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

    /// Looks whether a window is over at this moment, at which a run has ended. Returns the number
    /// of contexts there are to be in the next one. `groups` returns the most allocation groups of
    /// a file system.
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
        // Another context was here in between.
        if now < window.since + CONTEXTS_WINDOW {
            return None;
        }
        self.next.store((now + CONTEXTS_WINDOW).nanoseconds(), Ordering::Relaxed);
        let nanoseconds = now.nanoseconds_since(std::mem::replace(&mut window.since, now));
        let total = base.counters.written_bytes();
        let written = total - std::mem::replace(&mut window.written, total);
        let was_idle = self.was_idle.swap(false, Ordering::Relaxed);
        // A window that was not looked at for long had nothing to end in it.
        if was_idle || u128::from(nanoseconds) > 2 * CONTEXTS_WINDOW.as_nanos() {
            return Some(window.finder.interrupt());
        }
        let most = most(thread::processors(), groups());
        Some(window.finder.window(written as f64 / nanoseconds.max(1) as f64, most))
    }

    /// Begins a change of the number. Returns false if one is under way.
    pub(crate) fn begin_change(&self) -> bool {
        !self.is_changing.swap(true, Ordering::AcqRel)
    }

    /// Ends a change of the number.
    pub(crate) fn end_change(&self) {
        self.is_changing.store(false, Ordering::Release);
    }
}

/// The least of processors, allocation groups where a file system tells, and the bound: never the
/// groups alone, of which there may be a million.
fn most(processors: usize, groups: usize) -> usize {
    processors.min(groups).clamp(1, CONTEXTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contract_18_a_million_groups_are_no_more_contexts_than_processors() {
        assert_eq!(most(2, 1_000_000), 2);
        assert_eq!(most(12, usize::MAX), 12);
        assert_eq!(most(12, 4), 4);
        assert_eq!(most(1024, 1_000_000), CONTEXTS);
        assert_eq!(most(2, 0), 1);
    }
}
