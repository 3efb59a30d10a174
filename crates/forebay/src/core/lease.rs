//! The lease of an open file, as its callers and the lease watch see it.
//!
//! The watch's thread only takes the liberties away, so a hundred files broken at once wait for
//! the device side by side and not for each other. The context, which sees what ends, lets each
//! lease go ([`Inode::give_up_lease`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_cache::Liberties;

use crate::core::inode::Inode;
use crate::core::limits::{LEASE_BREAK, LEASE_LOOK};
use crate::core::shared::Shared;
use crate::platform::clock;

impl Inode {
    /// Takes no more liberties. The context gives the lease up when what was accepted is written,
    /// or soon.
    pub(crate) fn break_lease(self: &Arc<Self>, shared: &Shared) {
        let (is_closed, is_interrupted) = shared.change(self, |file| {
            // The lease of a closed file went with it, and an interrupted file has nothing to write
            // out first.
            if !file.is_closed() && !file.is_interrupted() {
                file.begin_break(clock::instant() + LEASE_BREAK);
            }
            (file.is_closed(), file.is_interrupted())
        });
        if !is_closed && (is_interrupted || shared.is_orphaned()) {
            self.file.release_lease();
        }
    }

    /// Asks whether the lease is still held, if it has been a while, before a call uses clean pages
    /// or known holes. In a process that was stopped the watch's thread may not have run yet.
    pub(crate) fn check_lease(self: &Arc<Self>, shared: &Shared) {
        let now = clock::now().nanoseconds();
        let looked = self.lease_looked.load(Ordering::Relaxed);
        if now.saturating_sub(looked) < LEASE_LOOK.as_nanos() as u64 || self.fixed_size.is_some() {
            return;
        }
        let is_ours = self.lock().cache.liberties() == Liberties::Exclusive;
        if is_ours && !self.file.has_lease() {
            self.break_lease(shared);
        }
        self.lease_looked.store(now, Ordering::Relaxed);
    }
}
