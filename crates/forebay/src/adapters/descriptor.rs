//! Descriptors: of an open file for other system calls, and of files that the program has opened.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use crate::core::engine::Engine;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::file::File;
use crate::core::open::enter::Given;
use crate::core::open::open_options::OpenOptions;

/// The descriptor of the engine, for system calls that the library does not have, such as
/// `ioctl(2)`, `fsetxattr(2)` or `flock(2)`.
///
/// - It bypasses the cache. A read through it misses accepted data that is not written: call
///   [`File::write_out`] before. A write or `ftruncate(2)` through it is not seen by the cache.
/// - Its flags belong to the engine, which switches `O_DIRECT` on and off. Do not change them, its
///   lease or its OFD locks.
/// - After the engine has ended, it is no longer that of the file.
impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inode.file.as_fd()
    }
}

impl Engine {
    /// Opens the file of a descriptor, such as one that another process has sent, or that
    /// `openat(2)` has opened. Blocks as [`Engine::open`].
    ///
    /// The descriptor must be open for reading, or for both reading and writing. The engine owns it
    /// from then on, and closes it with the last handle of the file, or at once if it has the file
    /// open already. It clears `O_APPEND` and `O_NONBLOCK` and sets `O_DIRECT`; duplicates of the
    /// descriptor share these flags. While duplicates exist, other programs may write the file
    /// without the notice of a lease, so close them.
    ///
    /// [`File::path`] is the path that the system reports for the descriptor. Whether the program
    /// has just created the file is not known, so the first sync does not cover its directory
    /// entry.
    ///
    /// # Errors
    /// As [`Engine::open`]; also
    /// - `NotPermitted` if the descriptor is open for writing only, or for reading only and the
    ///   options ask for writing.
    /// - `Unsupported` for anything but a regular file.
    /// - `InvalidInput` for [`OpenOptions::create_new`].
    ///
    /// After an error the descriptor is closed.
    ///
    /// ```
    /// use forebay::{Engine, OpenOptions};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir_in(".")?;
    /// # let path = directory.path().join("file");
    /// let opened = std::fs::File::options().read(true).write(true).create(true).open(&path)?;
    /// let engine = Engine::new()?;
    /// let file = engine.open_fd(opened, OpenOptions::new().read(true).write(true))?;
    /// file.write_at(b"hello", 0)?;
    /// file.close()?;
    /// assert_eq!(std::fs::read(&path)?, b"hello");
    /// # Ok(())
    /// # }
    /// ```
    pub fn open_fd(&self, descriptor: impl Into<OwnedFd>, options: &OpenOptions) -> Result<File> {
        let descriptor = descriptor.into();
        let again = PathBuf::from(format!("/proc/self/fd/{}", descriptor.as_raw_fd()));
        let path = std::fs::read_link(&again).unwrap_or_else(|_| again.clone());
        let file = forebay_uring::OpenFile::given(descriptor).map_err(|error| {
            let kind = match error.kind() {
                std::io::ErrorKind::InvalidInput => ErrorKind::NotPermitted,
                _ => ErrorKind::at_open(&error),
            };
            Error::new(kind, "could not use the descriptor").at_path(&path).because(error)
        })?;
        self.open_given(Given { file, path, again }, options)
    }
}
