//! Checks the verdicts of the lab where the answer is known ([`against_itself()`]).
//!
//! The check runs real cells on this machine, one at a time, in a directory that is removed at the
//! end and on a file system at rest. On a busy machine its result means little.

mod against_itself;

use std::io;
use std::time::Duration;

use crate::cell::{Cell, CellResult};
use crate::compare::runner::{CellRunner, RunError};
use crate::compare::settle::{Settled, settle};
use crate::load::data::{self, LaidOut};
use crate::scratch::{Scratch, Stop};

pub use against_itself::Load;
pub use against_itself::{Itself, MOST_FALSE, Said, against_itself};

/// Rounds of a check, unless told.
pub const ROUNDS: u32 = 5;

#[derive(Clone, Copy, Debug)]
pub struct Ground<'a> {
    pub scratch: &'a Scratch,
    pub stop: &'a Stop,
    /// The longest wait for quiet between two cells.
    pub quiet_within: Duration,
    pub rounds: u32,
    /// Share of the full sizes and times; above 0, at most 1.
    pub scale: f64,
    /// Of the order, the offsets and the data.
    pub seed: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    #[error("interrupted")]
    Interrupted,
    #[error("{0}")]
    Failed(String),
}

impl Ground<'_> {
    /// Writes the file that all cells work on; its directory.
    fn lay_out(&self, bytes: u64) -> Result<std::path::PathBuf, CheckError> {
        let directory = self.scratch.shared_directory().map_err(|error| self.lost(error))?;
        match data::lay_out(&directory, bytes, self.seed, self.stop) {
            Ok(LaidOut::Whole) => Ok(directory),
            Ok(LaidOut::Stopped) => Err(CheckError::Interrupted),
            Err(error) => Err(self.lost(error)),
        }
    }

    fn settle(&self) -> Result<(), CheckError> {
        match settle(self.scratch.directory(), self.quiet_within, self.stop) {
            Ok(Settled::Quiet | Settled::StillBusy) => Ok(()),
            Ok(Settled::Stopped) => Err(CheckError::Interrupted),
            Err(error) => Err(self.lost(error)),
        }
    }

    fn run(
        &self,
        runner: &mut dyn CellRunner,
        cell: &Cell,
        what: &str,
    ) -> Result<CellResult, CheckError> {
        runner.run(cell).map_err(|error| match error {
            RunError::Interrupted => CheckError::Interrupted,
            // Ctrl-C reaches the cell's process too.
            _ if self.stop.is_set() => CheckError::Interrupted,
            RunError::Refused(reason) | RunError::Failed(reason) => {
                CheckError::Failed(format!("{what}: {reason}"))
            }
        })
    }

    fn lost(&self, error: io::Error) -> CheckError {
        let path = self.scratch.path().display();
        CheckError::Failed(format!("{path}: {error} (is the disk full, or read-only?)"))
    }
}
