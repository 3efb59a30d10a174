//! Why a cell has no result. It crosses a process boundary, so it is text and numbers, no live
//! errors.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::arm::Arm;

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
pub enum CellError {
    /// This arm cannot run this workload here: leave it out, and say why.
    #[error("{} cannot run here: {reason}", arm.name())]
    ArmRefused { arm: Arm, reason: String },
    /// This machine, kernel or file cannot do what the cell asks: leave it out, and say why.
    #[error("{reason}")]
    Unavailable {
        /// Why, and the remedy.
        reason: String,
    },
    /// The workload cannot be run as it stands; nothing was done yet.
    #[error("{reason}")]
    Invalid {
        /// The problem, and the remedy.
        reason: String,
    },
    #[error("{}{what}: {cause}", path.iter().map(|path| format!("{}: ", path.display())).collect::<String>())]
    Failed {
        what: String,
        path: Option<PathBuf>,
        cause: String,
        /// The system's error number, if any.
        os_error: Option<i32>,
    },
    /// A file does not hold what was written to it.
    #[error("{}: wrong data at byte {offset}: {found}", path.display())]
    Mismatch {
        path: PathBuf,
        /// The first wrong byte.
        offset: u64,
        found: String,
    },
    /// The process of the cell died, or spoke nonsense.
    #[error("the process of the cell failed: {what}")]
    Process {
        /// How it ended, with its last words.
        what: String,
    },
}

impl CellError {
    pub(crate) fn refused(arm: Arm, reason: impl Into<String>) -> Self {
        Self::ArmRefused { arm, reason: reason.into() }
    }

    /// This machine, kernel or file cannot do it.
    pub fn unavailable(reason: impl Into<String>) -> Self {
        Self::Unavailable { reason: reason.into() }
    }

    pub(crate) fn invalid(reason: impl Into<String>) -> Self {
        Self::Invalid { reason: reason.into() }
    }

    pub(crate) fn io(what: impl Into<String>, path: &Path, error: &io::Error) -> Self {
        Self::Failed {
            what: what.into(),
            path: Some(path.to_owned()),
            cause: error.to_string(),
            os_error: error.raw_os_error(),
        }
    }

    pub(crate) fn system(what: impl Into<String>, error: &io::Error) -> Self {
        Self::Failed {
            what: what.into(),
            path: None,
            cause: error.to_string(),
            os_error: error.raw_os_error(),
        }
    }

    pub(crate) fn library(what: impl Into<String>, error: &forebay::Error) -> Self {
        Self::Failed {
            what: what.into(),
            path: error.path().map(Path::to_owned),
            cause: error.to_string(),
            os_error: error.os_error(),
        }
    }
}
