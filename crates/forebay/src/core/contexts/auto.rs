//! The knob `contexts` at `auto`: watches what is written, and has the number changed.
//!
//! No thread of its own and no timer: whichever context ends a run looks whether a window is over.
//! The change itself, which may start a thread and a ring, is made by a thread that lives for it.

use crate::platform::sync::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use forebay_block::Moment;

use super::finder::Finder;
use super::wanted::Wanted;
use crate::core::limits::{CONTEXTS, CONTEXTS_WINDOW};
use crate::core::shared::Shared;
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
    is_changing: Arc<AtomicBool>,
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
            is_changing: Arc::default(),
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

    /// A run has ended at this moment: if a window is over, the number may change.
    pub(crate) fn look(&self, shared: &Arc<Shared>, now: Moment) {
        if !self.is_on.load(Ordering::Relaxed) {
            return;
        }
        if !shared.level.is_behind() {
            self.was_idle.store(true, Ordering::Relaxed);
        }
        if now < Moment::from_nanoseconds(self.next.load(Ordering::Relaxed)) {
            return;
        }
        let Some(mut window) = self.window.try_lock() else { return };
        // Somebody was here in between.
        if now < window.since + CONTEXTS_WINDOW {
            return;
        }
        self.next.store((now + CONTEXTS_WINDOW).nanoseconds(), Ordering::Relaxed);
        let nanoseconds = now.nanoseconds_since(std::mem::replace(&mut window.since, now));
        let total = shared.counters.written_bytes();
        let written = total - std::mem::replace(&mut window.written, total);
        let was_idle = self.was_idle.swap(false, Ordering::Relaxed);
        // A window that was not looked at for long had nothing to end in it.
        let active = if was_idle || u128::from(nanoseconds) > 2 * CONTEXTS_WINDOW.as_nanos() {
            window.finder.interrupt()
        } else {
            let processors = thread::processors();
            let most = most(processors, shared.table().most_groups());
            window.finder.window(written as f64 / nanoseconds.max(1) as f64, most)
        };
        drop(window);
        if active != shared.contexts.active() && !self.is_changing.swap(true, Ordering::AcqRel) {
            self.change(shared, active);
        }
    }

    fn change(&self, shared: &Arc<Shared>, active: usize) {
        let (shared, is_changing) = (Arc::clone(shared), Arc::clone(&self.is_changing));
        let change = move || {
            if let Err(error) = shared.spread_found(active) {
                tracing::debug!(%error, active, "the number of contexts stays");
            }
            is_changing.store(false, Ordering::Release);
        };
        if let Err(error) = thread::spawn("forebay-spread", change) {
            tracing::debug!(%error, "the number of contexts stays");
            self.is_changing.store(false, Ordering::Release);
        }
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
