//! Errors of a file, as its callers get them.

use forebay_block::Errno;
use forebay_cache::Failure;
use forebay_cache::discard::DISCARDED;

use super::Inode;
use crate::core::error::{Error, ErrorKind, is_full};

impl Inode {
    pub(crate) fn io_error(&self, what: &str, offset: u64, errno: Errno) -> Error {
        let cause = std::io::Error::from_raw_os_error(errno.0);
        Error::new(ErrorKind::at_device(&cause), what)
            .at_path(&self.path)
            .at_offset(offset)
            .because(cause)
    }

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
