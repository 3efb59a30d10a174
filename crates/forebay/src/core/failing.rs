//! Pages that cannot be written: their limits.
//!
//! A page that could not be written stays dirty and keeps its memory, until its device accepts the
//! write. One bad file or dead device must not take the memory of all. So each file and each device
//! has a limit for such pages, and writes beyond it fail with the reason. Pages beyond the share of
//! a device, which became dirty before the failure was known, do not count against writers of other
//! devices.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use forebay_block::Errno;

use crate::core::count::subtract;
use crate::platform::sync::Mutex;

/// Pages of one device that cannot be written.
#[derive(Debug, Default)]
pub(crate) struct Failing {
    pages: AtomicU64,
    /// Pages beyond the device's share, at the last update.
    beyond: Mutex<u64>,
    /// Error of the last failed write.
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

    /// Replaces a file's count, `before`, by `now`.
    pub(crate) fn change(&self, before: u64, now: u64) {
        if now >= before {
            self.pages.fetch_add(now - before, Ordering::AcqRel);
        } else {
            let slip = "fewer pages fail than were counted";
            subtract(&self.pages, before - now, Ordering::AcqRel, slip);
        }
    }

    /// Updates the count of pages beyond the device's share, after a change of the pages or the
    /// share. If the count has changed, calls `report` with the count before and now. Calls do not
    /// overlap, so the level sees changes in order.
    pub(crate) fn look_again(&self, share: u64, report: impl FnOnce(u64, u64)) {
        let mut beyond = self.beyond.lock();
        let now = self.pages().saturating_sub(share);
        let before = std::mem::replace(&mut *beyond, now);
        if before != now {
            report(before, now);
        }
    }
}
