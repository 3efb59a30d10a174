//! The one place where the command line meets the part of the lab that runs cells and job files.

use std::process::ExitCode;

use forebay_lab::cell::CellSpec;
use forebay_lab::compare::runner::{CellRunner, RunError};
use forebay_lab::job::Workload;
use forebay_lab::scratch::Stop;

use crate::failure::Failure;
use crate::meaning::RunRequest;

/// The first argument of a process that is one cell.
const CELL_ARGUMENT: &str = "__cell";

/// What is said where there is nothing to run a cell with.
const NO_LOAD_GENERATOR: &str = "this build has no load generator (use a released one)";

/// Whether this process is one cell of a comparison.
pub(crate) fn is_cell() -> bool {
    std::env::args_os().nth(1).is_some_and(|word| word == CELL_ARGUMENT)
}

/// Runs the cell that this process is.
pub(crate) fn cell_main() -> ExitCode {
    Failure::failed(NO_LOAD_GENERATOR).tell()
}

/// The jobs of the question `layout`.
pub(crate) fn workload(_files: u32, _file_bytes: u64, _block_bytes: u32) -> Workload {
    Workload::default()
}

/// What runs the cells of a comparison; ends the running one soon after `stop` is set.
pub(crate) fn runner(_stop: &Stop) -> impl CellRunner {
    |_spec: &CellSpec| Err(RunError::Failed(NO_LOAD_GENERATOR.to_owned()))
}

/// Runs a job file.
pub(crate) fn run(_request: &RunRequest) -> Result<(), Failure> {
    Err(Failure::failed(NO_LOAD_GENERATOR))
}
