//! The end of a ring: it waits a while for requests in flight; those in flight after that keep
//! their memory for ever.
//!
//! Registrations end here. The end of the ring alone would do that too, but some time later, and
//! until then a file would be open that its owner believes closed.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::wait::Sleep;
use super::{HERE, Ring};

/// How long a dropped ring waits for requests in flight before it leaks the memory.
const GOODBYE: Duration = Duration::from_secs(1);

impl Ring {
    /// Returns how many requests the kernel has. A few too many if it took entries of the waker and
    /// left requests that were staged with them.
    fn flying(&mut self) -> u32 {
        let staged = self.staged();
        let staged = staged - self.wakes_staged.min(staged);
        let synchronous = u32::try_from(self.synchronous.len()).expect("at most one for each tag");
        self.in_flight() - synchronous - staged
    }

    /// Waits for the kernel's requests, to a deadline; staged and never submitted ones stay
    /// unsubmitted.
    fn wait_out(&mut self) {
        let deadline = Instant::now() + GOODBYE;
        while self.flying() > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            let sleep = Sleep { want: 1, within: Duration::ZERO, limit: Some(left) };
            let waited = if left.is_zero() { Err(libc::ETIME) } else { self.enter_once(0, sleep) };
            self.collect();
            let goes_on = matches!(waited, Ok(_) | Err(libc::EINTR | libc::ETIME));
            if left.is_zero() || !goes_on {
                return;
            }
        }
    }

    /// Ends the registrations, which a ring's end alone would do some time later.
    fn unregister(&mut self) {
        self.tables.drop_table(&self.setup.uring);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if !self.home.is_here() {
            // A forked child did not inherit the queues; requests in flight are its parent's.
            return;
        }
        // Elsewhere than on its thread the kernel refuses to be entered.
        let here = self.thread.is_none_or(|thread| HERE.with(|here| *here == thread));
        if here {
            self.wait_out();
        } else {
            self.setup.door.forget();
            self.collect();
        }
        if self.flying() > 0 {
            Arc::clone(&self.arena).leak();
            self.ledger.leak();
        } else if here {
            self.unregister();
        }
        if here {
            self.setup.door.unregister();
        }
        // SAFETY: nothing uses the ring after its drop.
        unsafe { ManuallyDrop::drop(&mut self.setup) };
    }
}
