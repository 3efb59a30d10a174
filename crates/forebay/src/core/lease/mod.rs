//! The lease of an open file, as callers and the lease watch see it.
//!
//! The thread of the watch only stops the use of the lease. So the breaks of a hundred files wait
//! for the device at the same time, not one after the other. The context, which sees requests end,
//! releases each lease ([`Inode::give_up_lease`]).

pub(crate) mod claim;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use forebay_cache::Liberties;

use crate::core::inode::{Inode, State};
use crate::core::limits::{LEASE_BREAK, LEASE_LOOK};
use crate::core::shared::Shared;
use crate::core::user_code;
use crate::platform::clock;

impl Inode {
    /// Stops using the liberties of the lease. The context releases the lease when accepted data is
    /// written, or at the deadline.
    pub(crate) fn break_lease(self: &Arc<Self>, shared: &Shared) {
        let (is_closed, is_interrupted) = shared.change(self, |file| {
            // The lease of a closed file is already released. An interrupted file has nothing to
            // write out first.
            if !self.is_closed() && !file.is_interrupted() {
                file.begin_break(clock::instant() + LEASE_BREAK);
            }
            (self.is_closed(), file.is_interrupted())
        });
        if !is_closed && (is_interrupted || shared.is_orphaned()) {
            self.file.release_lease();
        }
    }

    /// Checks at intervals whether the lease is still held, before a call uses clean pages or known
    /// holes. In a process that was stopped, the thread of the watch may not have run yet.
    #[inline]
    pub(crate) fn check_lease(self: &Arc<Self>, shared: &Shared) {
        // Some milliseconds late at most, and much cheaper than the exact time.
        let now = clock::coarse().nanoseconds();
        let looked = self.lease_looked.load(Ordering::Relaxed);
        if now.saturating_sub(looked) < LEASE_LOOK.as_nanos() as u64 || !self.needs_lease {
            return;
        }
        self.check_lease_at(shared, now);
    }

    #[inline(never)]
    fn check_lease_at(self: &Arc<Self>, shared: &Shared, now: u64) {
        let is_ours = self.lock().cache.liberties() == Liberties::Exclusive;
        if is_ours && !self.file.has_lease() {
            self.break_lease(shared);
        }
        self.lease_looked.store(now, Ordering::Relaxed);
    }
}

impl Inode {
    /// Returns whether the lease is still ours. If so, no other program can have written where
    /// space is given back or zeroes are written. The kernel is asked: it takes the lease from a
    /// process that was stopped for longer than others wait.
    ///
    /// One race remains. A process may be stopped after this check and before the kernel begins the
    /// request, and then makes the request when it continues. No request depends on a lease.
    /// Affected are the requests of one pass of a context, and those that wait in its queue for a
    /// tag.
    pub(crate) fn holds_lease(&self, state: &State) -> bool {
        match state.break_deadline {
            Some(deadline) => clock::instant() < deadline && self.file.has_lease_still(),
            None => !self.needs_lease || self.file.has_lease(),
        }
    }

    /// Releases the lease if nothing needs it. Otherwise returns the latest time of the next
    /// attempt.
    pub(crate) fn give_up_lease(&self, now: Instant) -> GivingUp {
        let mut state = self.lock();
        let Some(deadline) = state.break_deadline else { return GivingUp::Done };
        let is_late = now >= deadline;
        if state.holds_end && !is_late {
            // The append wakes the context.
            return GivingUp::NotBefore(Some(deadline));
        }
        if state.cache.break_is_over() || is_late && !state.cache.takes_liberties() {
            state.end_break();
            let mut waiting = Vec::new();
            state.page_wakers.drain_into(&mut waiting);
            drop(state);
            // No request that needs the lease is sent after the end of the break.
            self.file.release_lease();
            user_code::wake_all(waiting);
            tracing::info!(
                path = %self.path.display(),
                is_late,
                "another program opened the file: shared from now on"
            );
            return GivingUp::Done;
        }
        // After the deadline only the requests at the device are waited for, without a limit.
        GivingUp::NotBefore((!is_late).then_some(deadline))
    }
}

/// State of the release of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GivingUp {
    /// The lease is released.
    Done,
    /// A request of the file has to end first, or this moment has to come.
    NotBefore(Option<Instant>),
}
