//! Calls of the program's own code: wakers, and the callback of [`Builder::on_error`].
//!
//! The engine calls them on its own threads and on callers' threads. They may do anything: call the
//! engine, drop its handles, panic. Two rules keep the engine whole:
//!
//! - No lock of ours is held. The caller of a function here has released all of them; wakers that
//!   become due under a lock are collected (`After`) and woken later.
//! - A panic ends here. It is reported and the engine continues: the thread it would unwind has to
//!   serve data of other files and wakes of other tasks.
//!
//! Wakers are cloned only on the caller's thread, without a lock: a panic there is the caller's.
//!
//! [`Builder::on_error`]: crate::Builder::on_error

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// Runs user code, and reports a panic of it. `what` names the code in the report.
pub(crate) fn run(what: &str, code: impl FnOnce()) {
    // The closure owns its arguments, so no state of ours is reachable after an unwind.
    let Err(panic) = catch_unwind(AssertUnwindSafe(code)) else { return };
    tracing::error!(panic = message(&*panic), "{what} panicked; the engine continues");
    discard(panic);
}

/// Drops the value of a caught panic.
pub(crate) fn discard(panic: Box<dyn Any + Send>) {
    // The value belongs to the program, too, and its drop may panic.
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
}

/// Wakes every waker in order, even if one of them panics.
pub(crate) fn wake_all(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        run("a waker", || waker.wake());
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    /// Panics with a value whose drop panics.
    struct Panics;

    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            std::panic::panic_any(Bomb);
        }
    }

    #[derive(Default)]
    struct Counts(AtomicUsize);

    impl Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn wakers_after_one_that_panics_are_woken() {
        let counts = Arc::new(Counts::default());
        let panics = || Waker::from(Arc::new(Panics));
        wake_all([panics(), Arc::clone(&counts).into(), panics(), Arc::clone(&counts).into()]);
        assert_eq!(counts.0.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_panic_has_a_message() {
        let caught = |run: fn()| catch_unwind(run).unwrap_err();
        assert_eq!(message(&*caught(|| panic!("plain"))), "plain");
        assert_eq!(message(&*caught(|| panic!("number {}", 7))), "number 7");
        assert_eq!(message(&*caught(|| std::panic::panic_any(7))), "no message");
    }
}
