//! Whether a change of a direct file is in progress, or a panic has interrupted one (contract 21).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, Ordering};

use crate::core::user_code;
use crate::platform::thread;

const NONE: u8 = 0;
const IN_PROGRESS: u8 = 1;
const INTERRUPTED: u8 = 2;

/// Changes of a direct file. Only the context makes them, one at a time.
#[derive(Debug, Default)]
pub(crate) struct Change {
    state: AtomicU8,
    /// Number of changes until one panics, or 0.
    #[cfg(test)]
    pub(crate) trap: std::sync::atomic::AtomicUsize,
}

impl Change {
    /// Runs a change. Returns `None` if a panic interrupted it.
    pub(super) fn run<T>(&self, change: impl FnOnce() -> T) -> Option<T> {
        debug_assert!(!self.is_interrupted(), "nothing changes an interrupted file");
        self.state.store(IN_PROGRESS, Ordering::Relaxed);
        let change = || {
            #[cfg(test)]
            self.spring_trap();
            change()
        };
        // Nothing looks at the broken state again.
        match catch_unwind(AssertUnwindSafe(change)) {
            Ok(changed) => {
                self.state.store(NONE, Ordering::Relaxed);
                Some(changed)
            }
            Err(panic) => {
                self.state.store(INTERRUPTED, Ordering::Relaxed);
                user_code::discard(panic);
                None
            }
        }
    }

    pub(super) fn is_interrupted(&self) -> bool {
        self.state.load(Ordering::Relaxed) == INTERRUPTED
    }

    /// Returns whether a panic is the reason why an operation of the file is dropped. Such a panic
    /// may still unwind.
    pub(super) fn drops_operations(&self) -> bool {
        let is_unwinding =
            || thread::panicking() && self.state.load(Ordering::Relaxed) == IN_PROGRESS;
        self.is_interrupted() || is_unwinding()
    }

    #[cfg(test)]
    fn spring_trap(&self) {
        if self.trap.load(Ordering::SeqCst) > 0 && self.trap.fetch_sub(1, Ordering::SeqCst) == 1 {
            // As a panic, without its message, which takes long to print.
            std::panic::resume_unwind(Box::new("a test panics in a change of the file"));
        }
    }
}
