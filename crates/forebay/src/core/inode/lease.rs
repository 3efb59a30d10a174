//! The lease of an open file, as the context sees it.

use std::time::Instant;

use super::{Inode, State};
use crate::platform::clock;

impl Inode {
    /// Returns whether the lease is still ours, so that no other program can have written where
    /// space is given back, or zeroes are written. The kernel is asked: it takes the lease from a
    /// process that was stopped for longer than others wait.
    ///
    /// One race is left. A process that is stopped after this, and before the kernel has begun the
    /// request, makes the request when it goes on: there is no request that depends on a lease.
    /// Such are the requests of one pass of a context, and those that wait in its queue for a tag.
    pub(crate) fn holds_lease(&self, state: &State) -> bool {
        match state.break_deadline {
            Some(deadline) => clock::instant() < deadline && self.file.has_lease_still(),
            None => self.fixed_size.is_some() || self.file.has_lease(),
        }
    }

    /// Gives the lease up if it can go. Otherwise returns when to look again at the latest.
    pub(crate) fn give_up_lease(&self, now: Instant) -> GivingUp {
        let mut state = self.lock();
        let Some(deadline) = state.break_deadline else { return GivingUp::Done };
        let is_late = now >= deadline;
        if state.cache.break_is_over() || is_late && !state.cache.takes_liberties() {
            state.end_break();
            drop(state);
            // (Nothing that needs it is sent after it has been declared gone.)
            self.file.release_lease();
            tracing::info!(path = %self.path.display(), is_late, "another program opened the file: shared from now on");
            return GivingUp::Done;
        }
        // Once it is late, it waits for the requests at the device, however long they take.
        GivingUp::NotBefore((!is_late).then_some(deadline))
    }
}

/// How far a lease has been given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GivingUp {
    /// The lease is gone.
    Done,
    /// A request of the file has to end first, or this moment to come.
    NotBefore(Option<Instant>),
}
