//! Pages that cannot be written: how many there may be, and the way out.
//!
//! A page that could not be written stays dirty and keeps its memory, for as long as its device
//! takes nothing. So that one bad file or one dead device does not hold the memory of all: a file
//! may have so many of them, and a device, and who would write more hears at the write why that is
//! in vain. Those on the device beyond its share (they became dirty before anybody knew) are not
//! held against who writes elsewhere.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use forebay_block::Errno;

use crate::platform::sync::Mutex;

/// Of one device, the pages that cannot be written.
#[derive(Debug, Default)]
pub(crate) struct Failing {
    pages: AtomicU64,
    /// Of these, beyond the device's share when it was last looked.
    beyond: Mutex<u64>,
    /// Why, the last time.
    errno: AtomicI32,
}

impl Failing {
    /// Returns the number of pages that cannot be written.
    pub(crate) fn pages(&self) -> u64 {
        self.pages.load(Ordering::Acquire)
    }

    /// Returns the error of the last write that failed.
    pub(crate) fn errno(&self) -> Errno {
        Errno(self.errno.load(Ordering::Relaxed))
    }

    /// Notes the error of a write that failed.
    pub(crate) fn note(&self, errno: Errno) {
        self.errno.store(errno.0, Ordering::Relaxed);
    }

    /// Counts the pages of a file anew: they were `before`, and are `now`.
    pub(crate) fn change(&self, before: u64, now: u64) {
        if now >= before {
            self.pages.fetch_add(now - before, Ordering::AcqRel);
        } else {
            let was = self.pages.fetch_sub(before - now, Ordering::AcqRel);
            debug_assert!(was >= before - now, "fewer pages fail than were counted");
        }
    }

    /// Counts the pages beyond the device's share anew: the pages have changed, or the share. If
    /// the count has changed, calls `tell` with the count before and now. Calls do not overlap, so
    /// the level hears of one change after the other.
    pub(crate) fn look_again(&self, share: u64, tell: impl FnOnce(u64, u64)) {
        let mut beyond = self.beyond.lock();
        let now = self.pages().saturating_sub(share);
        let before = std::mem::replace(&mut *beyond, now);
        if before != now {
            tell(before, now);
        }
    }
}
