//! Why a cell has no result. It crosses a process boundary, so it is text and numbers, no live
//! errors.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::arm::Arm;

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
pub enum CellError {
    /// This arm cannot run this workload here: leave it out, and say why.
    #[error("{} cannot run here: {reason}", arm.name())]
    ArmRefused { arm: Arm, reason: String },
    /// This machine, kernel or file cannot do what the cell asks: leave it out, and say why.
    #[error("{reason}")]
    Unavailable { reason: String },
    /// The workload cannot be run as it stands; nothing was done yet.
    #[error("{reason}")]
    Invalid { reason: String },
    #[error(
        "{}{what}: {cause}",
        path.iter().map(|path| format!("{}: ", path.display())).collect::<String>()
    )]
    Failed {
        what: String,
        path: Option<PathBuf>,
        cause: String,
        /// The system's error number, if any.
        os_error: Option<i32>,
    },
    #[error("{}: wrong data at byte {offset}: {found}", path.display())]
    Mismatch { path: PathBuf, offset: u64, found: String },
    /// The process of the cell died, or spoke nonsense.
    #[error("the process of the cell failed: {what}")]
    Process { what: String },
}

impl CellError {
    pub(crate) fn refused(arm: Arm, reason: impl Into<String>) -> Self {
        Self::ArmRefused { arm, reason: reason.into() }
    }

    /// Returns that this machine, kernel or file cannot do it.
    pub fn unavailable(reason: impl Into<String>) -> Self {
        Self::Unavailable { reason: reason.into() }
    }

    pub(crate) fn invalid(reason: impl Into<String>) -> Self {
        Self::Invalid { reason: reason.into() }
    }

    /// Describes an error of the system or of the engine.
    pub(crate) fn failed(what: impl Into<String>, error: &(impl Error + 'static)) -> Self {
        let (what, cause) = (what.into(), error.to_string());
        let error: &(dyn Error + 'static) = error;
        if let Some(error) = error.downcast_ref::<forebay::Error>() {
            let (path, os_error) = (error.path().map(Path::to_owned), error.os_error());
            return Self::Failed { what, path, cause, os_error };
        }
        let os_error = match error.downcast_ref::<Errno>() {
            Some(errno) => Some(errno.raw_os_error()),
            None => error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error),
        };
        Self::Failed { what, path: None, cause, os_error }
    }

    pub(crate) fn failed_at(
        what: impl Into<String>,
        path: &Path,
        error: &(impl Error + 'static),
    ) -> Self {
        let mut failed = Self::failed(what, error);
        if let Self::Failed { path: place, .. } = &mut failed {
            *place = Some(path.to_owned());
        }
        failed
    }
}

/// Returns the error of a number of the system.
pub(crate) fn system_error(errno: forebay_block::Errno) -> io::Error {
    io::Error::from_raw_os_error(errno.0)
}

/// Adds to an error what failed.
pub(crate) trait Context<T> {
    fn context(self, what: impl Into<String>) -> Result<T, CellError>;

    fn context_at(self, what: impl Into<String>, path: &Path) -> Result<T, CellError>;
}

impl<T, E: Error + 'static> Context<T> for Result<T, E> {
    fn context(self, what: impl Into<String>) -> Result<T, CellError> {
        self.map_err(|error| CellError::failed(what, &error))
    }

    fn context_at(self, what: impl Into<String>, path: &Path) -> Result<T, CellError> {
        self.map_err(|error| CellError::failed_at(what, path, &error))
    }
}
