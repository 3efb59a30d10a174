//! The settings that a comparison changes, locked from its start to its end.
//!
//! A value that the kernel refuses, or a setting that another comparison uses, is found here,
//! before the first run, and not when an arm's turn comes.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::held::{Held, changed_along};
use super::{Journal, Places, Tuning, TuningError};

/// The settings of one comparison.
#[derive(Debug)]
pub struct Claim {
    locks: Vec<Lock>,
}

/// A locked file. Closing it would not unlock it at once: a child that another thread has just
/// started holds it too, for a moment.
#[derive(Debug)]
pub(super) struct Lock {
    path: PathBuf,
    file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

impl Claim {
    /// Returns the claim of a comparison that changes no setting.
    pub const fn none() -> Self {
        Self { locks: Vec::new() }
    }

    /// Locks the settings of an arm, then sets and restores each of them once.
    ///
    /// # Errors
    /// [`TuningError`] for the first that cannot be set. All of them are as they were.
    pub fn add(
        &mut self,
        tunings: &[Tuning],
        places: &Places,
        journal: &Journal,
    ) -> Result<(), TuningError> {
        for tuning in tunings {
            let file = places.look(&tuning.knob)?;
            for file in changed_along(&file).iter().chain([&file]) {
                self.lock(file, tuning)?;
            }
        }
        let held = Held::new(tunings, places, journal, self)?;
        held.release().map_err(TuningError::NotRestored)
    }

    fn lock(&mut self, file: &Path, tuning: &Tuning) -> Result<(), TuningError> {
        if self.has(file) {
            return Ok(());
        }
        self.locks.extend(lock(file, tuning)?);
        Ok(())
    }

    pub(super) fn has(&self, file: &Path) -> bool {
        self.locks.iter().any(|lock| lock.path == file)
    }
}

/// Locks a file for a setting; none if this file system has no locks.
pub(super) fn lock(path: &Path, tuning: &Tuning) -> Result<Option<Lock>, TuningError> {
    let file = File::open(path).map_err(|error| tuning.refused(&error))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(Lock { path: path.to_owned(), file })),
        Err(Errno::WOULDBLOCK) => Err(TuningError::NotSet(format!(
            "{}: another comparison uses this setting; wait until it ends",
            tuning.knob
        ))),
        Err(_) => Ok(None),
    }
}

impl Lock {
    pub(super) fn is_on(&self, path: &Path) -> bool {
        self.path == path
    }
}
