//! Pages that cannot be written: their limits per device and per file, and the errors that callers
//! get.

use std::task::Waker;

use forebay_block::Errno;
use forebay_cache::Failure;
use forebay_cache::discard::DISCARDED;

use crate::core::base::Base;
use crate::core::error::{Error, ErrorKind, is_full};
use crate::core::inode::change::After;
use crate::core::inode::{Inode, State};
use crate::core::level::Level;
use crate::core::limits::{FAILING_OF_DEVICE, FAILING_OF_FILE};
use crate::core::share::Failing;

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

impl Inode {
    /// Updates the count of the file's failing pages, after each step that may have changed it.
    #[inline]
    pub(super) fn count_failing(&self, base: &Base, state: &mut State, after: &mut After) {
        let now = state.cache.unwritable_pages();
        let before = std::mem::replace(&mut state.unwritable, now);
        if before == now {
            return;
        }
        let failing = &self.volume.failing;
        if let Some((_, errno)) = state.cache.write_error() {
            failing.note(errno);
        }
        failing.change(before, now);
        look_again(failing, &base.level, &mut after.effects().wakers);
    }

    /// Returns the error for a write that cannot be accepted. Either a panic has interrupted a
    /// change of the file, or too many pages cannot be written.
    #[inline]
    pub(crate) fn refusal(&self, base: &Base, state: &State) -> Option<Error> {
        if let Err(error) = self.check_whole(state) {
            return Some(error);
        }
        let (failing, level) = (&self.volume.failing, &base.level);
        // Both limits are at least a page.
        if state.unwritable == 0 && failing.pages() == 0 {
            return None;
        }
        let own = state.cache.write_error().filter(|_| state.unwritable >= file_cap(level));
        let (whose, errno) = match own {
            Some((_, errno)) => ("of this file", errno),
            None if failing.pages() >= device_share(level) => ("on its device", failing.errno()),
            None => return None,
        };
        Some(self.refused(whose, errno))
    }

    #[cold]
    fn refused(&self, whose: &str, errno: Errno) -> Error {
        let cause = std::io::Error::from_raw_os_error(errno.0);
        let what = format!("too many pages {whose} could not be written; nothing more is accepted");
        let error =
            Error::new(ErrorKind::at_device(&cause), what).at_path(&self.path).because(cause);
        error.remedy("sync to try again, or drop the data with `discard_dirty`")
    }
}

impl Inode {
    /// Returns the error for the caller of a failed ticket.
    pub(crate) fn failure(&self, failure: Failure) -> Error {
        match failure {
            Failure::Write { offset, errno: DISCARDED } => {
                self.io_error("`discard_dirty` dropped the data written here", offset, DISCARDED)
            }
            Failure::Write { offset, errno } => {
                let error =
                    self.io_error("could not write a page out; it stays dirty", offset, errno);
                if is_full(&std::io::Error::from_raw_os_error(errno.0)) {
                    error.remedy("free space on the file system, then sync again")
                } else {
                    error.remedy("sync again to retry, or drop the data with `discard_dirty`")
                }
            }
            Failure::Flush(errno) => Error::poisoned(&self.path, errno),
            Failure::Discard(errno) => {
                let kind = match errno.0 {
                    libc::EOPNOTSUPP => ErrorKind::Unsupported,
                    _ => ErrorKind::Io,
                };
                let what = match self.fixed_size {
                    Some(_) => "the device did not discard the range; its data is unchanged",
                    None => "the file system did not free the range; its whole pages are unchanged",
                };
                Error::new(kind, what)
                    .at_path(&self.path)
                    .because(std::io::Error::from_raw_os_error(errno.0))
            }
            Failure::SetLength(errno) => {
                let cause = std::io::Error::from_raw_os_error(errno.0);
                Error::new(ErrorKind::at_device(&cause), "could not set the length")
                    .at_path(&self.path)
                    .because(cause)
            }
        }
    }
}
