//! The one place where the command line meets the part of the lab that runs cells and job files.

use std::path::Path;
use std::process::ExitCode;

use forebay_lab::batching::Batching;
use forebay_lab::cell::{Cell, CellResult};
use forebay_lab::child::{self, run_cell};
use forebay_lab::compare::RunError;
use forebay_lab::load::{CellError, CellReport};
use forebay_lab::scratch::Stop;

use crate::failure::Failure;

/// Whether this process is one cell of a comparison.
pub(crate) fn is_cell() -> bool {
    child::is_cell(std::env::args_os())
}

/// Runs the cell that this process is.
pub(crate) fn cell_main() -> ExitCode {
    child::cell_main()
}

/// Returns the runner for the groups of a job file, each in a process of its own. It ends the
/// running group soon after `stop` is set.
pub(crate) fn group_runner(
    stop: &Stop,
    batching: Batching,
) -> impl FnMut(&Cell) -> Result<CellReport, CellError> {
    let stop = stop.flag();
    move |cell: &Cell| run_cell(cell, &[], batching, &stop)
}

/// Describes the engine that Forebay has here, or the reason why it has none. Unknown knobs and an
/// unusable path for the control socket are refused before anything runs.
pub(crate) fn describe_engine(
    cache_bytes: Option<u64>,
    settings: &[(String, String)],
    control: Option<&Path>,
) -> Result<forebay::Result<String>, Failure> {
    let mut options = forebay::Options { cache_bytes, ..forebay::Options::default() };
    for (key, value) in settings {
        options
            .set(key, value)
            .map_err(|error| Failure::usage(format!("--set {key}={value}: {error}")))?;
    }
    match forebay::Engine::start(options) {
        Ok(engine) => {
            if let Some(path) = control {
                let served = engine.serve_control(path);
                served.map_err(|error| Failure::usage(format!("--control: {error}")))?;
            }
            Ok(Ok(engine.describe()))
        }
        // A value out of its range is seen only with all the others.
        Err(error) if error.kind() == forebay::ErrorKind::InvalidInput => {
            Err(Failure::usage(format!("--set: {error}")))
        }
        Err(error) => Ok(Err(error)),
    }
}

/// Takes away the control socket of a group that was killed.
pub(crate) fn remove_control(path: &Path) {
    // A path that is no leftover stays.
    let _ = forebay_uring::local::remove_leftover(path);
}

/// Returns the runner for the cells of a comparison, on `processors` if there are any. It ends the
/// running cell soon after `stop` is set.
pub(crate) fn runner(
    stop: &Stop,
    processors: &[u32],
    batching: Batching,
) -> impl FnMut(&Cell) -> Result<CellResult, RunError> {
    move |cell| match run_cell(cell, processors, batching, &stop.flag()) {
        Ok(report) => Ok(report.total),
        Err(_) if stop.is_set() => Err(RunError::Interrupted),
        Err(CellError::ArmRefused { reason, .. } | CellError::Unavailable { reason }) => {
            Err(RunError::Refused(reason))
        }
        Err(error) => Err(RunError::Failed(error.to_string())),
    }
}
