//! The knob `contexts` at `adaptive`: measures windows of time, and finds the number of contexts.
//!
//! It has no thread and no timer: the context that ends a run checks whether a window has ended.
//! `start.rs` changes the number.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use forebay_block::Moment;

use crate::core::base::Base;
use crate::core::context::finder::{Finder, Window};
use crate::core::limits::ADAPTIVE_CONTEXTS;
use crate::core::options::Contexts;
use crate::platform::clock::contexts_window;
use crate::platform::sync::Mutex;
use crate::platform::thread;

/// Parts of a window at whose ends contexts publish the processor time they used.
const PARTS: u32 = 8;

/// Measurement by windows.
#[derive(Debug)]
pub(crate) struct Load {
    /// Whether the knob is at `adaptive`.
    is_on: AtomicBool,
    /// Processors of this process. They are read by other threads, because that reads files.
    processors: AtomicUsize,
    /// Contexts that can run, as far as it is known.
    possible: AtomicUsize,
    /// End of the window, in nanoseconds of the clock.
    next: AtomicU64,
    /// Whether the contexts have caught up with the writers at some time of this window.
    caught_up: AtomicBool,
    /// Whether a change of the number is in progress.
    is_changing: AtomicBool,
    /// Processor time of each context, in nanoseconds.
    spent: [AtomicU64; ADAPTIVE_CONTEXTS],
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    finder: Finder,
    /// Start of the window.
    since: Moment,
    /// Bytes written before it.
    written: u64,
    /// Waits of writers before it.
    waits: u64,
    /// Processor time of each context before it.
    spent: [u64; ADAPTIVE_CONTEXTS],
}

impl Load {
    pub(crate) fn new() -> Self {
        let (finder, since) = (Finder::new(), Moment::default());
        Self {
            is_on: AtomicBool::new(false),
            processors: AtomicUsize::new(1),
            possible: AtomicUsize::new(ADAPTIVE_CONTEXTS),
            next: AtomicU64::new(0),
            caught_up: AtomicBool::new(true),
            is_changing: AtomicBool::new(false),
            spent: Default::default(),
            state: Mutex::new(State {
                finder,
                since,
                written: 0,
                waits: 0,
                spent: Default::default(),
            }),
        }
    }

    /// Applies the knob, and returns the number of contexts to use now. `adaptive` begins with one,
    /// or continues with the number found so far.
    pub(crate) fn begin(&self, wanted: Contexts) -> usize {
        self.count_processors();
        let was_on = self.is_on.swap(wanted == Contexts::Adaptive, Ordering::AcqRel);
        if let Contexts::Fixed(number) = wanted {
            return number;
        }
        let mut state = self.state.lock();
        if !was_on {
            state.finder = Finder::new();
        }
        let contexts = state.finder.interrupt().min(self.possible.load(Ordering::Relaxed));
        assert!(contexts > 0, "files would belong to no context");
        contexts
    }

    /// Returns to the knob's value from before a change that failed.
    pub(crate) fn resume(&self, wanted: Contexts) {
        self.is_on.store(wanted == Contexts::Adaptive, Ordering::Release);
    }

    /// Reads the number of processors.
    pub(crate) fn count_processors(&self) {
        self.processors.store(thread::processors(), Ordering::Relaxed);
    }

    /// Notes that no more contexts than these can run, because another one could not be started, or
    /// each of them has threads of its own.
    pub(crate) fn limit(&self, contexts: usize) {
        self.possible.fetch_min(contexts.max(1), Ordering::Relaxed);
    }

    /// Publishes the processor time of the calling context once a part of a window has passed.
    /// `next` is the time at which it does so again.
    pub(crate) fn note(&self, context: usize, now: Moment, next: &mut Moment) {
        if !self.is_on.load(Ordering::Relaxed) || now < *next {
            return;
        }
        *next = now + contexts_window() / PARTS;
        if let Some(spent) = self.spent.get(context) {
            spent.store(thread::spent().as_nanos() as u64, Ordering::Relaxed);
        }
    }

    /// Checks whether a window has ended at `now`, the end of a run. Returns the number of contexts
    /// for the next window. `places` returns the number of places that can be written in parallel,
    /// or `None` if there are too many files to be moved.
    pub(crate) fn look(
        &self,
        base: &Base,
        now: Moment,
        places: impl FnOnce() -> Option<usize>,
    ) -> Option<usize> {
        if !self.is_on.load(Ordering::Relaxed) {
            return None;
        }
        if !base.level.is_behind() {
            self.caught_up.store(true, Ordering::Relaxed);
        }
        if now < Moment::from_nanoseconds(self.next.load(Ordering::Relaxed)) {
            return None;
        }
        let places = places()?;
        let window = contexts_window();
        let mut state = self.state.lock();
        // Another context may have handled this window.
        if now < Moment::from_nanoseconds(self.next.load(Ordering::Relaxed)) {
            return None;
        }
        self.next.store((now + window).nanoseconds(), Ordering::Relaxed);
        let length = now.nanoseconds_since(std::mem::replace(&mut state.since, now)).max(1);
        let total = base.counters.written_bytes();
        let written = total.saturating_sub(std::mem::replace(&mut state.written, total));
        let (mut busiest, mut busy) = (0.0_f64, 0.0);
        for (before, spent) in state.spent.iter_mut().zip(&self.spent) {
            let spent = spent.load(Ordering::Relaxed);
            let part = spent.saturating_sub(std::mem::replace(before, spent)) as f64;
            (busiest, busy) = (busiest.max(part / length as f64), busy + part / length as f64);
        }
        let waits = base.level.waits();
        let has_waited = std::mem::replace(&mut state.waits, waits) != waits;
        let was_idle = self.caught_up.swap(false, Ordering::Relaxed) && !has_waited;
        // A window noticed so late had no run ending in it for a long time. Where nothing was
        // written, as on a frozen file system, there is no rate to compare.
        if was_idle || written == 0 || Duration::from_nanos(length) > 2 * window {
            return Some(state.finder.interrupt());
        }
        let possible = self.possible.load(Ordering::Relaxed);
        let most = most(self.processors.load(Ordering::Relaxed), places).min(possible);
        let rate = written as f64 / length as f64;
        Some(state.finder.window(Window { rate, busiest, busy }, most))
    }

    /// Begins a change of the number. Returns false if another change is in progress.
    pub(crate) fn begin_change(&self) -> bool {
        !self.is_changing.swap(true, Ordering::AcqRel)
    }

    /// Ends a change of the number.
    pub(crate) fn end_change(&self) {
        let was_changing = self.is_changing.swap(false, Ordering::Release);
        assert!(was_changing, "two changes of the number would run at a time");
    }
}

/// Returns the maximum number of contexts: the least of the processors, the places that can be
/// written in parallel, and the bound. The places alone are no bound: a file system may have a
/// million groups.
fn most(processors: usize, places: usize) -> usize {
    processors.min(places).clamp(1, ADAPTIVE_CONTEXTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_cannot_run_is_not_kept() {
        let load = Load::new();
        assert_eq!(load.begin(Contexts::Adaptive), 1);
        let window = |most: usize| {
            let window = Window { rate: 100.0, busiest: 1.0, busy: 1.0 };
            let most = most.min(load.possible.load(Ordering::Relaxed));
            load.state.lock().finder.window(window, most)
        };
        assert!((0..4).any(|_| window(8) == 2), "a busy thread is a reason for a second one");
        load.limit(1);
        assert!((0..1000).all(|_| window(8) == 1), "it could not be started");
        assert_eq!(load.begin(Contexts::Fixed(5)), 5, "the knob is tried all the same");
    }

    #[test]
    fn contract_18_contexts_are_bounded_by_processors_despite_a_million_groups() {
        assert_eq!(most(2, 1_000_000), 2);
        assert_eq!(most(6, usize::MAX), 6);
        assert_eq!(most(12, 4), 4);
        assert_eq!(most(1024, 1_000_000), ADAPTIVE_CONTEXTS);
        assert_eq!(most(2, 0), 1);
    }
}
