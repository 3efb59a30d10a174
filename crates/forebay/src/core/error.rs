//! The error type of the library: kind, path, offset, cause and remedy.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_block::Errno;

/// Category of an [`Error`], for a caller that reacts to it.
///
/// ```
/// use forebay::{Engine, ErrorKind, OpenOptions};
///
/// # fn main() -> forebay::Result<()> {
/// let engine = Engine::new()?;
/// match engine.open("no/such/file", OpenOptions::new().read(true)) {
///     Err(error) if error.kind() == ErrorKind::NotFound => println!("skipped: {error}"),
///     other => drop(other?),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument is invalid: an offset beyond the largest file, a value out of range, an unknown
    /// name.
    InvalidInput,
    /// The file, or a directory of its path, does not exist.
    NotFound,
    /// The file exists, and the call was to create it, such as an open with
    /// [`create_new`](crate::OpenOptions::create_new).
    AlreadyExists,
    /// The system denies access to the file: by its permission bits, its owner or an attribute.
    PermissionDenied,
    /// The file could not be opened or examined for another reason.
    Open,
    /// The handle was opened without the right for this call, such as writing; or the system does
    /// not allow an option or a connection.
    NotPermitted,
    /// The file system or quota is full, or the block device ends before the write does. A write
    /// reports it before the bytes are accepted: free space, and write again. A sync reports it if
    /// another program took the space of accepted bytes, or if a quota is reached; those pages stay
    /// dirty: free space and sync again, or drop them with
    /// [`File::abandon_unwritten`](crate::File::abandon_unwritten).
    NoSpace,
    /// A read or write failed at the device. Cached data that could not be written stays in memory:
    /// sync again to retry, or drop it with
    /// [`File::abandon_unwritten`](crate::File::abandon_unwritten).
    Io,
    /// The file ended before a read that must be complete did.
    EndOfFile,
    /// A flush failed, or a panic interrupted a change of the file's state, so data written since
    /// the last successful sync may be lost, even if a read still returns it. Every sync fails
    /// until all handles of the file are closed; after a panic, every read and write fails too.
    ///
    /// Keep a copy of the data that no successful sync has covered. After the error close all
    /// handles (each close fails with it, too), open the file again, and write that data anew.
    Poisoned,
    /// The kernel, file system or type of file does not support the call.
    Unsupported,
    /// The timeout passed before the device finished. Operations in flight continue.
    TimedOut,
    /// Whether an [atomic write](crate::Engine::atomic) has taken effect is not known: the log
    /// could not be written. Its files have their old bytes, and refuse writes and syncs until the
    /// record is excluded from recovery. After a crash before that, all of its bytes are in the
    /// files, or none.
    Unknown,
    /// The engine has been shut down.
    Shutdown,
    /// The call was made in a forked child; the engine belongs to the parent.
    Forked,
    /// A call that would wait for the engine was made on a thread of the engine, such as in a
    /// callback.
    WouldDeadlock,
    /// The file or block device is in use: by another engine, by a mount or exclusive open, or by
    /// this engine in the other mode (cached or direct).
    Busy,
    /// A pool of memory of fixed size is exhausted.
    NoMemory,
    /// The keeper ([`Builder::survive`](crate::Builder::survive)) could not be started, cannot hold
    /// another file, or is gone. While it is gone, unsynced data lives in this process only.
    Keeper,
}

impl ErrorKind {
    /// Returns the kind of a failure to open or examine a file.
    pub(crate) fn at_open(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::NotFound,
            io::ErrorKind::AlreadyExists => Self::AlreadyExists,
            io::ErrorKind::PermissionDenied => Self::PermissionDenied,
            _ if is_full(error) => Self::NoSpace,
            _ => Self::Open,
        }
    }

    /// Returns the kind of a failure at the device.
    pub(crate) fn at_device(error: &io::Error) -> Self {
        if is_full(error) { Self::NoSpace } else { Self::Io }
    }
}

/// Returns whether an error means a full file system or quota.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}

/// Error of the library: what failed, the file and byte concerned, the cause, and a remedy.
///
/// Displayed as `PATH: WHAT at byte OFFSET: CAUSE (REMEDY)`, without the parts it does not have.
/// The debug form adds the kind, so that a `main` that returns the error prints a readable line.
///
/// ```
/// use forebay::{Engine, OpenOptions};
///
/// # fn main() -> forebay::Result<()> {
/// let engine = Engine::new()?;
/// let error = engine.open("no/such/file", OpenOptions::new().read(true)).unwrap_err();
/// assert_eq!(error.os_error(), Some(2));             // ENOENT
/// assert_eq!(error.path(), Some("no/such/file".as_ref()));
/// assert!(error.to_string().starts_with("no/such/file: could not open"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Error(Box<Parts>);

/// Parts of an error. They are boxed, so that the result of a call is as large as its value.
#[derive(Clone)]
struct Parts {
    kind: ErrorKind,
    what: String,
    path: Option<PathBuf>,
    offset: Option<u64>,
    remedy: Option<String>,
    source: Option<Arc<io::Error>>,
}

/// Result of the calls of this library.
///
/// ```
/// fn save(file: &forebay::File, data: &[u8]) -> forebay::Result<()> {
///     file.write_at(data, 0)?;
///     file.sync_data()
/// }
/// ```
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Creates an error of a kind; `what` names the failure.
    pub(crate) fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        let what = what.into();
        Self(Box::new(Parts { kind, what, path: None, offset: None, remedy: None, source: None }))
    }

    /// Creates the error of a call that opens, examines or names a file.
    pub(crate) fn at_open(what: impl Into<String>, path: &Path, error: io::Error) -> Self {
        Self::new(ErrorKind::at_open(&error), what).at_path(path).because(error)
    }

    /// Creates the error of a call that examines an open file.
    pub(crate) fn not_examined(error: io::Error) -> Self {
        Self::new(ErrorKind::at_open(&error), "could not examine the file").because(error)
    }

    /// Creates the error for a deadline that passed before the device finished with a file.
    pub(crate) fn late(path: &Path) -> Self {
        Self::new(ErrorKind::TimedOut, "the device did not finish before the timeout").at_path(path)
    }

    /// Creates the error for a call after the shutdown of the engine has begun.
    pub(crate) fn shut_down() -> Self {
        Self::new(ErrorKind::Shutdown, "the engine has been shut down")
    }

    /// Creates the error for a request that no context will serve.
    pub(crate) fn unserved() -> Self {
        let what = "the engine stopped, or closed the file, before the operation ended";
        Self::new(ErrorKind::Shutdown, what)
    }

    /// Creates the error for a range that ends beyond the largest size of a file, or at no offset
    /// that the system knows.
    pub(crate) fn too_long(path: &Path, offset: u64, end: Option<u64>) -> Self {
        let what = "the range ends beyond the largest file size of the file system or this process";
        let is_offset = end.is_some_and(|end| i64::try_from(end).is_ok());
        let errno = if is_offset { libc::EFBIG } else { libc::EINVAL };
        Self::new(ErrorKind::InvalidInput, what)
            .at_path(path)
            .at_offset(offset)
            .because(io::Error::from_raw_os_error(errno))
    }

    /// Creates the error for a change through a handle opened for reading.
    pub(crate) fn for_reading(path: &Path) -> Self {
        Self::new(ErrorKind::NotPermitted, "cannot change the file through a handle for reading")
            .at_path(path)
            .remedy("open it with write")
    }

    /// Creates the error for a read through a handle that may only write.
    pub(crate) fn for_writing(path: &Path) -> Self {
        Self::new(ErrorKind::NotPermitted, "cannot read the file through a handle for writing")
            .at_path(path)
            .remedy("open it with read, too")
    }

    /// Creates the error for a file whose flush failed, now or earlier.
    pub(crate) fn poisoned(path: &Path, errno: Errno) -> Self {
        let what = "a flush failed; data written since the last successful sync may be lost";
        Self::new(ErrorKind::Poisoned, what)
            .at_path(path)
            .because(io::Error::from_raw_os_error(errno.0))
            .remedy("close all handles of the file, then check and rewrite the data")
    }

    /// Creates the error for a file with an atomic write that is in the log or not.
    pub(crate) fn uncertain(path: &Path) -> Self {
        let what = "an atomic write of this file is in the intent log, or may be, and not in \
                    memory; nothing more is accepted";
        Self::new(ErrorKind::Unknown, what)
            .at_path(path)
            .remedy("try again; if it stays so, close the engine and recover the log")
    }

    /// Creates the error for a file whose change was interrupted by a panic.
    pub(crate) fn interrupted(path: &Path) -> Self {
        let what = "a panic interrupted a change of the state of this file; nothing more of it is \
                    written, and data written since the last successful sync may be lost";
        Self::new(ErrorKind::Poisoned, what)
            .at_path(path)
            .remedy("close all handles of the file, then check and rewrite the data")
    }

    /// Adds the path of the file concerned.
    #[must_use]
    pub(crate) fn at_path(mut self, path: &Path) -> Self {
        self.0.path = Some(path.to_owned());
        self
    }

    /// Adds the offset in the file of the first byte concerned.
    #[must_use]
    pub(crate) fn at_offset(mut self, offset: u64) -> Self {
        self.0.offset = Some(offset);
        self
    }

    /// Adds what the reader of the message can do about it.
    #[must_use]
    pub(crate) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.0.remedy = Some(remedy.into());
        self
    }

    /// Adds the error of the operating system that caused it.
    #[must_use]
    pub(crate) fn because(mut self, source: io::Error) -> Self {
        self.0.source = Some(Arc::new(source));
        self
    }

    /// Returns the category.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the path of the file concerned, if there is one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// Returns the offset in the file of the first byte concerned, if there is one.
    #[must_use]
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }

    /// Returns the error number of the operating system (`errno`), if there is one.
    #[must_use]
    pub fn os_error(&self) -> Option<i32> {
        self.0.source.as_ref().and_then(|source| source.raw_os_error())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.0.path {
            write!(formatter, "{}: ", path.display())?;
        }
        formatter.write_str(&self.0.what)?;
        if let Some(offset) = self.0.offset {
            write!(formatter, " at byte {offset}")?;
        }
        if let Some(source) = &self.0.source {
            write!(formatter, ": {source}")?;
        }
        if let Some(remedy) = &self.0.remedy {
            write!(formatter, " ({remedy})")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self} [{:?}]", self.0.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

/// Converts to the nearest kind of [`io::Error`], with the error itself inside
/// ([`io::Error::get_ref`]).
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error.0.kind {
            ErrorKind::InvalidInput => match error.os_error() {
                Some(libc::EFBIG) => io::ErrorKind::FileTooLarge,
                _ => io::ErrorKind::InvalidInput,
            },
            ErrorKind::NotPermitted => io::ErrorKind::PermissionDenied,
            ErrorKind::NoSpace => io::ErrorKind::StorageFull,
            ErrorKind::NoMemory => io::ErrorKind::OutOfMemory,
            ErrorKind::EndOfFile => io::ErrorKind::UnexpectedEof,
            ErrorKind::Unsupported => io::ErrorKind::Unsupported,
            ErrorKind::TimedOut => io::ErrorKind::TimedOut,
            ErrorKind::Busy => io::ErrorKind::ResourceBusy,
            ErrorKind::WouldDeadlock => io::ErrorKind::Deadlock,
            ErrorKind::NotFound => io::ErrorKind::NotFound,
            ErrorKind::AlreadyExists => io::ErrorKind::AlreadyExists,
            ErrorKind::PermissionDenied => io::ErrorKind::PermissionDenied,
            ErrorKind::Open | ErrorKind::Io => {
                error.0.source.as_ref().map_or(io::ErrorKind::Other, |source| source.kind())
            }
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}
