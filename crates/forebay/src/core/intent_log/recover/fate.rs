//! The result of a recovery.

use std::path::PathBuf;

use crate::core::error::Error;

/// Result of a recovery.
#[derive(Debug)]
#[non_exhaustive]
pub struct Recovery {
    /// The files that the log has records of.
    pub files: Vec<Recovered>,
    /// Number of batches in the log.
    pub batches: usize,
    /// Whether the log is empty now: every file can be opened.
    pub is_empty: bool,
}

/// Result of the recovery of one file.
#[derive(Debug)]
#[non_exhaustive]
pub struct Recovered {
    /// Path of the file below the directory of the log: where it was found, or else where it once
    /// was.
    pub path: PathBuf,
    /// Bytes of its records that count.
    pub bytes: u64,
    /// Their fate.
    pub fate: Fate,
}

/// Fate of the records of a file.
#[derive(Debug)]
#[non_exhaustive]
pub enum Fate {
    /// They are in the file and durable (or can be put there, in a dry run).
    InPlace,
    /// The file was removed, and its records are dropped.
    Deleted,
    /// They may not be put into the file, because it may be newer or because of its mark.
    Skipped {
        /// The reason.
        reason: String,
        /// File that has the bytes now. Without one, the log keeps them.
        saved: Option<PathBuf>,
    },
    /// The recovery of this file failed, and the log keeps its records.
    Kept(Error),
}

impl Fate {
    /// Returns whether the log need not keep the records.
    pub(super) fn is_settled(&self) -> bool {
        match self {
            Self::InPlace | Self::Deleted => true,
            Self::Skipped { saved, .. } => saved.is_some(),
            Self::Kept(_) => false,
        }
    }
}
