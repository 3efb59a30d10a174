//! Request cells beside Forebay: the kernel's own calls, its ring with nothing of ours between, and
//! fio.
//!
//! ```text
//! ramp, not counted  [ closed loop for so many seconds ]  wait for the rest, not counted
//! ```
//!
//! All read or write one laid-out file past the page cache ([`data`]). What is in brackets is
//! counted: bios that ended in it, over the time it took. Clocks are read once for each batch, so
//! that reading them is not what is measured.

mod calls;
pub mod data;
mod fio;
mod tally;
mod uring;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::CellError;

use crate::cell::CellResult;
use crate::request::{DATA_FILE, Operation, RequestSpec};
use crate::through::{RequestCell, Way};
pub(crate) use tally::flow;

/// Runs one request cell in this process, through whatever it says.
pub fn run(cell: &RequestCell) -> Result<CellResult, CellError> {
    let spec = &cell.spec;
    if cell.way == Way::Queue {
        return super::request::run_on(spec, &cell.directory, cell.target.as_deref());
    }
    if !spec.device.is_file() {
        let way = cell.way.name();
        return Err(CellError::invalid(format!(
            "{way} goes to a file alone, not to {}",
            spec.device
        )));
    }
    check(spec)?;
    let path = match &cell.target {
        Some(target) => only_read(spec, target)?,
        None => data_file(spec, &cell.directory)?,
    };
    match cell.way {
        Way::Pread => calls::run(spec, &path),
        Way::Uring => uring::run(cell, &path),
        Way::Fio => fio::run(spec, &path),
        Way::Queue => unreachable!("it went another way"),
    }
}

fn check(spec: &RequestSpec) -> Result<(), CellError> {
    let blocks = spec.file_bytes.checked_div(u64::from(spec.block_bytes));
    let sound =
        spec.depth > 0 && spec.batch != Some(0) && spec.seconds > 0.0 && spec.seconds.is_finite();
    if !sound || blocks.is_none_or(|blocks| blocks == 0) {
        return Err(CellError::invalid(
            "depth, batch, seconds and blocks in the file have to be above 0",
        ));
    }
    Ok(())
}

/// What is read in place of the laid-out file.
pub(super) fn only_read(spec: &RequestSpec, target: &Path) -> Result<PathBuf, CellError> {
    if spec.operation == Operation::Write {
        return Err(CellError::invalid(format!("{}: it is only read", target.display())));
    }
    Ok(target.to_owned())
}

/// The laid-out file, as long as the cell needs it: made here if nobody has.
fn data_file(spec: &RequestSpec, directory: &Path) -> Result<PathBuf, CellError> {
    let path = directory.join(DATA_FILE);
    data::lay_out(directory, spec.file_bytes, spec.seed, &crate::scratch::Stop::default())
        .map_err(|error| CellError::io("could not lay it out", &path, &error))?;
    Ok(path)
}

/// Opens it past the page cache.
fn open_direct(spec: &RequestSpec, path: &Path) -> Result<File, CellError> {
    let mut options = OpenOptions::new();
    options.read(true).write(spec.operation == Operation::Write).custom_flags(libc::O_DIRECT);
    options.open(path).map_err(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => CellError::unavailable(format!(
            "{}: no direct I/O on this file system (use --dir with another)",
            path.display()
        )),
        _ => CellError::io("could not open it", path, &error),
    })
}

#[cfg(test)]
mod tests;
