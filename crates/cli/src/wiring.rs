//! The one place where the command line meets the part of the lab that runs cells and job files.

use std::process::ExitCode;

use forebay_lab::cell::CellSpec;
use forebay_lab::child::{self, run_cell_in_child};
use forebay_lab::compare::runner::{CellRunner, RunError};
use forebay_lab::job::Workload;
use forebay_lab::load::CellError;
use forebay_lab::scratch::Stop;

use crate::failure::Failure;
use crate::meaning::RunRequest;

/// Whether this process is one cell of a comparison.
pub(crate) fn is_cell() -> bool {
    child::is_cell(std::env::args_os())
}

/// Runs the cell that this process is.
pub(crate) fn cell_main() -> ExitCode {
    child::cell_main()
}

/// The jobs of the question `layout`.
pub(crate) fn workload(files: u32, file_bytes: u64, block_bytes: u32) -> Workload {
    Workload::random_writes_into_new_files(files, file_bytes, block_bytes)
}

/// What runs the cells of a comparison; ends the running one soon after `stop` is set.
pub(crate) fn runner(stop: &Stop) -> impl CellRunner {
    let stop = stop.clone();
    move |spec: &CellSpec| match run_cell_in_child(spec, &stop.flag()) {
        Ok(result) => Ok(result),
        Err(_) if stop.is_set() => Err(RunError::Interrupted),
        Err(CellError::ArmRefused { reason, .. }) => Err(RunError::Refused(reason)),
        Err(error) => Err(RunError::Failed(error.to_string())),
    }
}

/// Runs a job file.
pub(crate) fn run(_request: &RunRequest) -> Result<(), Failure> {
    Err(Failure::failed("not wired"))
}
