//! The errors of mounting and unmounting, and the numbers that the kernel gets.

use std::io;
use std::path::{Path, PathBuf};

use forebay::ErrorKind;

/// Why a directory could not be mounted or unmounted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The arguments are invalid, or this machine or file system cannot do it.
    #[error("{}: {what} ({remedy})", path.display())]
    Unsuitable {
        /// The directory concerned.
        path: PathBuf,
        /// Reason why it cannot be used.
        what: String,
        /// Remedy for the user.
        remedy: String,
    },
    /// A call of the system failed.
    #[error("{}: could not {what}: {source}", path.display())]
    Failed {
        /// The file or directory concerned.
        path: PathBuf,
        /// Name of the failed step.
        what: &'static str,
        /// The reason of the system.
        source: io::Error,
    },
    /// The engine reported an error.
    #[error(transparent)]
    Engine(#[from] forebay::Error),
    /// The mount ended, but not all data could be written.
    #[error("{0}")]
    Unwritten(String),
}

impl Error {
    pub(crate) fn unsuitable(path: &Path, what: &str, remedy: &str) -> Self {
        Self::Unsuitable { path: path.into(), what: what.into(), remedy: remedy.into() }
    }

    pub(crate) fn failed(
        path: impl AsRef<Path>,
        what: &'static str,
        source: impl Into<io::Error>,
    ) -> Self {
        Self::Failed { path: path.as_ref().into(), what, source: source.into() }
    }

    /// Whether the arguments or the machine are the reason, not a failure on the way.
    #[must_use]
    pub fn is_unsuitable(&self) -> bool {
        match self {
            Self::Unsuitable { .. } => true,
            Self::Failed { source, .. } => source.kind() == io::ErrorKind::NotFound,
            Self::Engine(error) => {
                matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported)
            }
            _ => false,
        }
    }
}

/// The error of the system for an error of the engine.
pub(crate) fn of_engine(error: forebay::Error) -> io::Error {
    io::Error::from_raw_os_error(error.os_error().unwrap_or_else(|| number_of(error.kind())))
}

/// The number for a kind of error that has none of the system.
fn number_of(kind: ErrorKind) -> i32 {
    match kind {
        ErrorKind::InvalidInput => libc::EINVAL,
        ErrorKind::NotFound => libc::ENOENT,
        ErrorKind::AlreadyExists => libc::EEXIST,
        ErrorKind::PermissionDenied => libc::EACCES,
        ErrorKind::NotPermitted => libc::EBADF,
        ErrorKind::NoSpace => libc::ENOSPC,
        ErrorKind::Unsupported => libc::EOPNOTSUPP,
        ErrorKind::TimedOut => libc::ETIMEDOUT,
        ErrorKind::Busy => libc::EBUSY,
        ErrorKind::NoMemory => libc::ENOMEM,
        _ => libc::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_the_system_is_passed_on_and_other_kinds_have_a_number() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let engine = forebay::Engine::new().unwrap();
        let refused = engine
            .open(directory.path(), forebay::OpenOptions::new().read(true).write(true))
            .unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        assert_eq!(of_engine(refused).raw_os_error(), Some(libc::EISDIR), "that of the system");
        for (kind, errno) in [
            (ErrorKind::NoSpace, libc::ENOSPC),
            (ErrorKind::Poisoned, libc::EIO),
            (ErrorKind::Busy, libc::EBUSY),
        ] {
            assert_eq!(number_of(kind), errno, "{kind:?}");
        }
    }
}
