//! The lease of an open file, as callers and the lease watch see it.
//!
//! The thread of the watch only stops the use of the lease. So the breaks of a hundred files wait
//! for the device at the same time, not one after the other. The context, which sees requests end,
//! releases each lease ([`Inode::give_up_lease`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_cache::Liberties;

use crate::core::inode::Inode;
use crate::core::limits::{LEASE_BREAK, LEASE_LOOK};
use crate::core::shared::Shared;
use crate::platform::clock;

impl Inode {
    /// Stops using the liberties of the lease. The context releases the lease when accepted data is
    /// written, or at the deadline.
    pub(crate) fn break_lease(self: &Arc<Self>, shared: &Shared) {
        let (is_closed, is_interrupted) = shared.change(self, |file| {
            // The lease of a closed file is already released. An interrupted file has nothing to
            // write out first.
            if !file.is_closed() && !file.is_interrupted() {
                file.begin_break(clock::instant() + LEASE_BREAK);
            }
            (file.is_closed(), file.is_interrupted())
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
