//! Failures of a file: pages that cannot be written, with the limits for them, and a panic under the
//! file's lock.

use std::task::Waker;

use forebay_block::Errno;
use forebay_cache::CachedFile;

use crate::core::level::Level;
use crate::core::limits::{FAILING_OF_DEVICE, FAILING_OF_FILE};
use crate::core::share::Failing;

/// Failures of a file.
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

    /// Checks the count, and that only an interrupted file is given up.
    pub(crate) fn verify(&self, cache: &CachedFile) -> Result<(), &'static str> {
        if self.is_interrupted {
            return Ok(());
        }
        if self.is_given_up {
            return Err("a file is given up only after a panic");
        }
        if self.unwritable != cache.unwritable_pages() {
            return Err("failing pages are not counted against their device");
        }
        Ok(())
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
