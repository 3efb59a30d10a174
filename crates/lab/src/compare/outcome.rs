//! The setting of a comparison, and its outcome.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::record::{PartOfRecord, RecordError};
use super::state::CellState;
use super::writes::Writes;
use crate::cell::CellResult;
use crate::plan::Plan;
use crate::scratch::{Scratch, Stop};
use crate::tuning::Claim;

#[derive(Debug)]
pub struct Setting<'a> {
    pub plan: &'a Plan,
    pub scratch: &'a Scratch,
    /// The block device that jobs on one write over, if the user names one.
    pub target: Option<&'a Path>,
    /// The longest wait for quiet between two cells.
    pub quiet_within: Duration,
    pub stop: &'a Stop,
    /// Metric of the notes on trends and outliers.
    pub metric: &'a str,
    pub claim: &'a Claim,
    /// Limit of the bytes written by all parts together.
    pub writes: &'a Writes,
    /// Where rounds are written down as they end, and where they are from that ended before.
    pub record: Option<PartOfRecord<'a>>,
}

/// One arm's cells in one job, one per round.
#[derive(Clone, PartialEq, Debug)]
pub struct Measured {
    pub job: String,
    pub arm: String,
    /// Its results; index is the round.
    pub rounds: Vec<CellResult>,
}

/// Why an arm is not among the results of a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LeftOut {
    pub job: String,
    pub arm: String,
    pub reason: String,
    /// Whether that is a failure, rather than something this kernel or file system does not do.
    pub failed: bool,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// Arms that ran in every round, in the order of the table.
    pub measured: Vec<Measured>,
    pub left_out: Vec<LeftOut>,
    /// The order of the arms in each counted round, with the job if there are several.
    pub orders: Vec<Vec<String>>,
    pub notes: Vec<String>,
    /// In what surroundings each cell ran that counts.
    pub states: Vec<CellState>,
}

#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    #[error("interrupted")]
    Interrupted,
    #[error("no arm could run: {reason}")]
    NoArm { reason: String, left_out: Vec<LeftOut> },
    /// A limit was reached before one round was whole; which, and what would do.
    #[error("no round was complete within {0}")]
    NoRound(String),
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The directory of the files failed.
    #[error(transparent)]
    Directory(#[from] std::io::Error),
}

/// Why a cell has no result.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RunError {
    /// This kernel, file system or kind of file does not do what the arm needs; the reason, with a
    /// remedy.
    #[error("{0}")]
    Refused(String),
    /// It went wrong: an I/O error, a wrong byte, a process that died.
    #[error("{0}")]
    Failed(String),
    #[error("interrupted")]
    Interrupted,
}
