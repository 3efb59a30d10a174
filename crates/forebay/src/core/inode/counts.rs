//! The counts of a file in the engine: frames, pages, and pages that cannot be written.
//!
//! Each count is one of several that add up: for the level, for the share of a file system, for its
//! device. So a count that is taken twice or never would keep writers of other files waiting.

use std::task::Waker;

use forebay_block::Errno;
use forebay_cache::limits::GATHER_PAGES;
use forebay_cache::{CachedFile, FrameRuns};

use crate::core::base::Base;
use crate::core::level::Level;
use crate::core::limits::{FAILING_OF_DEVICE, FAILING_OF_FILE};
use crate::core::share::{Crossed, Failing};
use crate::core::space::volume::Volume;

/// Frames and pages that a file counts for in the engine.
#[derive(Debug, Default)]
pub(crate) struct Charges {
    /// Frames taken from the pool and not used yet.
    pub(crate) stash: FrameRuns,
    /// Pages charged to the level and not used yet.
    credit: u64,
    /// Pages counted in the share of its file system.
    counted: u64,
    /// Unread pages, as counted in `Base`.
    unread: u64,
    /// Uncached pages written since the context was last asked to write them out.
    passing: u64,
    /// Pages that the level still counts for the file after a panic.
    owed: u64,
}

impl Charges {
    /// Takes pages that the level has granted to a writer and counts already.
    pub(crate) fn take_grant(&mut self, pages: u64) {
        self.credit += pages;
    }

    /// Returns whether pages are charged that no write has used.
    pub(crate) fn has_credit(&self) -> bool {
        self.credit > 0
    }

    /// Uses credit for pages that became dirty. Returns the number that the level has to count.
    pub(crate) fn spend(&mut self, pages: u64) -> u64 {
        let from_credit = pages.min(self.credit);
        self.credit -= from_credit;
        pages - from_credit
    }

    /// Counts uncached pages that were written. Returns true once they are worth a look of the
    /// context.
    pub(crate) fn pass(&mut self, pages: u64) -> bool {
        self.passing += pages;
        let is_due = self.passing >= GATHER_PAGES;
        if is_due {
            self.passing = 0;
        }
        is_due
    }

    /// Updates the file's part of its file system's share of the level. The count does not depend
    /// on earlier ones, so it is right after any change.
    #[inline]
    pub(crate) fn recount(&mut self, cache: &CachedFile, volume: &Volume) -> Crossed {
        let now = cache.dirty_pages() + self.credit;
        let before = std::mem::replace(&mut self.counted, now);
        if now == before { Crossed::Nothing } else { volume.share.recount(before, now) }
    }

    /// Updates the count of unread pages.
    #[inline]
    pub(crate) fn report_unread(&mut self, cache: &CachedFile, base: &Base) {
        let unread = cache.unread_pages();
        base.count_unread(std::mem::replace(&mut self.unread, unread), unread);
    }

    /// Gives back the frames and credit kept for the next write. Returns the pages to take off the
    /// level.
    pub(crate) fn give_back(&mut self, freed: &mut FrameRuns) -> u64 {
        freed.append(&mut self.stash);
        std::mem::take(&mut self.credit)
    }

    /// Returns whether there is nothing to give back.
    pub(crate) fn is_unused(&self) -> bool {
        self.stash.is_empty() && self.credit == 0
    }

    /// Leaks the frames. The level has the count from the end of the last change. A change counts
    /// itself at its end, and the pages that this one has cleaned are not taken off.
    pub(super) fn interrupt(&mut self, is_again: bool) {
        self.stash = FrameRuns::default();
        if !is_again {
            self.owed = self.counted;
        }
        self.credit = 0;
        self.passing = 0;
    }

    /// Returns the pages that the level still counts for the file after a panic, once.
    pub(crate) fn take_owed(&mut self) -> u64 {
        std::mem::take(&mut self.owed)
    }

    pub(super) fn verify(&self, cache: &CachedFile) {
        let dirty = cache.dirty_pages() + self.credit;
        assert_eq!(self.counted, dirty, "the share of the file system would drift");
        assert_eq!(self.owed, 0, "pages would be taken off the level twice");
        assert!(self.passing < GATHER_PAGES, "uncached pages would stay until their age");
    }
}

/// Failures of a file: pages that cannot be written, and a panic under its lock.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    /// Failing pages, as counted against the device.
    unwritable: u64,
    /// Whether a panic has interrupted a change of the file. Its cache is an empty one since then.
    is_interrupted: bool,
    /// Whether all counts of the file were taken back after that.
    is_given_up: bool,
}

/// A limit for failing pages that is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reached {
    /// The pages that count: "of this file" or "on its device".
    pub(crate) whose: &'static str,
    pub(crate) errno: Errno,
}

impl Failures {
    /// Updates the count of the file's failing pages, after each step that may have changed it.
    /// `wakers` is asked for once it has changed.
    #[inline]
    pub(crate) fn recount<'a>(
        &mut self,
        cache: &CachedFile,
        failing: &Failing,
        level: &Level,
        wakers: impl FnOnce() -> &'a mut Vec<Waker>,
    ) {
        let now = cache.unwritable_pages();
        let before = std::mem::replace(&mut self.unwritable, now);
        if before == now {
            return;
        }
        if let Some((_, errno)) = cache.write_error() {
            failing.note(errno);
        }
        failing.change(before, now);
        look_again(failing, level, wakers());
    }

    /// Returns the limit that keeps a write from being accepted.
    #[inline]
    pub(crate) fn reached(
        &self,
        cache: &CachedFile,
        failing: &Failing,
        level: &Level,
    ) -> Option<Reached> {
        // Both limits are at least a page.
        if self.unwritable == 0 && failing.pages() == 0 {
            return None;
        }
        let own = cache.write_error().filter(|_| self.unwritable >= file_cap(level));
        match own {
            Some((_, errno)) => Some(Reached { whose: "of this file", errno }),
            None if failing.pages() >= device_share(level) => {
                Some(Reached { whose: "on its device", errno: failing.errno() })
            }
            None => None,
        }
    }

    /// Returns whether a panic has interrupted a change of the file. Exact under the lock.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.is_interrupted
    }

    /// Notes that a panic has interrupted a change of the file.
    pub(crate) fn interrupt(&mut self) {
        self.is_interrupted = true;
    }

    /// Notes that the counts of an interrupted file are taken back. Returns false if there is
    /// nothing to take back.
    pub(crate) fn give_up(&mut self) -> bool {
        self.is_interrupted && !std::mem::replace(&mut self.is_given_up, true)
    }

    /// Asserts the count, and that only an interrupted file is given up.
    pub(crate) fn verify(&self, cache: &CachedFile) {
        if !self.is_interrupted {
            assert!(!self.is_given_up, "the counts of a file in use would be taken back");
            let failing = cache.unwritable_pages();
            assert_eq!(self.unwritable, failing, "the count of the device would drift");
        }
    }
}

/// Updates the level by the failing pages beyond the share of the device. Adds wakers of writers
/// that can continue, or have to fail.
pub(crate) fn look_again(failing: &Failing, level: &Level, wakers: &mut Vec<Waker>) {
    failing.look_again(device_share(level), |before, now| {
        level.change_beyond(before, now, wakers);
    });
}

fn device_share(level: &Level) -> u64 {
    (level.limit() / FAILING_OF_DEVICE).max(1)
}

fn file_cap(level: &Level) -> u64 {
    (level.limit() / FAILING_OF_FILE).max(1)
}
