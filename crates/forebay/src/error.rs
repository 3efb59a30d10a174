//! What went wrong: one type with kind, path, offset, cause and remedy.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use forebay_block::Errno;

/// The kinds of failure a caller may want to tell apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The caller's argument cannot be served: an offset near 2^63, a value out of range, an
    /// unknown key.
    InvalidInput,
    /// The file could not be opened or looked at.
    Open,
    /// The handle was not opened for this.
    NotPermitted,
    /// The file system has no space (or quota) left, or the block device ends before the write
    /// does. Told at the write, before the bytes were accepted.
    NoSpace,
    /// A read or write failed at the device. A page that could not be written stays dirty.
    Io,
    /// A flush failed: what was written since the last good one may be gone. Every sync fails until
    /// all handles of the file are closed.
    Poisoned,
    /// This kernel, file system or kind of file cannot do it.
    Unsupported,
    /// The time given ran out; what is in flight goes on.
    TimedOut,
    /// The engine is shut down.
    Shutdown,
    /// The call came from a forked child: the cache belongs to the parent.
    Forked,
    /// A blocking call from a place that must not block: one of the engine's own threads or
    /// callbacks.
    WouldDeadlock,
    /// Another program holds the file (an `OFD` lock of another engine) or the block device
    /// (mounted, or open exclusively), or it is open in this engine in another way.
    Busy,
    /// A bounded pool of memory has no room left.
    NoMemory,
    /// The keeper ([`Builder::survive`](crate::Builder::survive)) could not be started, cannot hold
    /// another file, or is gone: until another one is there, what is not synced lives in this
    /// process alone.
    Keeper,
}

impl ErrorKind {
    /// Of what failed at the device, with what the system said.
    pub(crate) fn at_device(error: &io::Error) -> Self {
        if is_full(error) { Self::NoSpace } else { Self::Io }
    }
}

/// Whether an error says that there is no space, or none left of a quota.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}

/// A failure, with what is needed to act on it.
///
/// Its debug form is its message and kind, so that a program whose `main` returns it says something
/// readable.
pub struct Error {
    kind: ErrorKind,
    what: String,
    path: Option<PathBuf>,
    offset: Option<u64>,
    remedy: Option<String>,
    source: Option<io::Error>,
}

/// A result with [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A failure of a kind; `what` says what was tried.
    pub fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), path: None, offset: None, remedy: None, source: None }
    }

    /// The time given ran out before the device had done with a file what was asked.
    pub(crate) fn late(path: &Path) -> Self {
        Self::new(ErrorKind::TimedOut, "the device did not finish in time").at_path(path)
    }

    /// A handle for reading was to change its file.
    pub(crate) fn for_reading(path: &Path) -> Self {
        Self::new(ErrorKind::NotPermitted, "the file was opened for reading")
            .at_path(path)
            .remedy("open it with Open::write")
    }

    /// A flush of a file failed, now or before.
    pub(crate) fn poisoned(path: &Path, errno: Errno) -> Self {
        let what = "a flush failed: what was written since the last good sync may be gone";
        Self::new(ErrorKind::Poisoned, what)
            .at_path(path)
            .because(io::Error::from_raw_os_error(errno.0))
            .remedy("close all handles of the file, then read back and rewrite what matters")
    }

    /// With the file it concerns.
    #[must_use]
    pub fn at_path(mut self, path: &Path) -> Self {
        self.path = Some(path.to_owned());
        self
    }

    /// With the byte it concerns.
    #[must_use]
    pub fn at_offset(mut self, offset: u64) -> Self {
        self.offset = Some(offset);
        self
    }

    /// With what the reader can do about it.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// With the operating system's own word.
    #[must_use]
    pub fn because(mut self, source: io::Error) -> Self {
        self.source = Some(source);
        self
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The file it concerns.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The byte it concerns.
    #[must_use]
    pub fn offset(&self) -> Option<u64> {
        self.offset
    }

    /// The operating system's error number, where there is one.
    #[must_use]
    pub fn os_error(&self) -> Option<i32> {
        self.source.as_ref().and_then(io::Error::raw_os_error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            write!(formatter, "{}: ", path.display())?;
        }
        formatter.write_str(&self.what)?;
        if let Some(offset) = self.offset {
            write!(formatter, " at byte {offset}")?;
        }
        if let Some(source) = &self.source {
            write!(formatter, ": {source}")?;
        }
        if let Some(remedy) = &self.remedy {
            write!(formatter, " ({remedy})")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self} [{:?}]", self.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

/// The kind that stands for it, and the error itself as what it was caused by.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error.kind {
            ErrorKind::InvalidInput => io::ErrorKind::InvalidInput,
            ErrorKind::NotPermitted => io::ErrorKind::PermissionDenied,
            ErrorKind::NoSpace => io::ErrorKind::StorageFull,
            ErrorKind::NoMemory => io::ErrorKind::OutOfMemory,
            ErrorKind::Unsupported => io::ErrorKind::Unsupported,
            ErrorKind::TimedOut => io::ErrorKind::TimedOut,
            ErrorKind::Busy => io::ErrorKind::ResourceBusy,
            ErrorKind::WouldDeadlock => io::ErrorKind::Deadlock,
            ErrorKind::Open | ErrorKind::Io => {
                error.source.as_ref().map_or(io::ErrorKind::Other, io::Error::kind)
            }
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}
