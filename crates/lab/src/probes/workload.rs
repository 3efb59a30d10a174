//! Jobs on files or devices: what the probes of new files, jobs, writers and job files run.

use std::path::Path;

use serde::Deserialize;

use crate::arm::{Arm, Way};
use crate::cell::{Cell, CellSpec, DEVICE_TO_COME, FioCell, Ground, Work};
use crate::job::{Access, Devices, Direction, IoEngine, Order, Workload};
use crate::load::{self, CellError, CellReport};
use crate::probe::read;

/// Name of the probe of a job file.
pub const JOB_FILE: &str = "job-file";

/// The arm that gives the job file to fio.
pub(super) const FIO: &str = "fio";

/// Returns the arms of jobs on files.
pub(super) fn on_files() -> Vec<Way> {
    Arm::ALL.into_iter().filter(|arm| *arm != Arm::Kernel).map(way).collect()
}

/// Returns an arm as a suite names it.
pub(super) fn way(arm: Arm) -> Way {
    if arm.is_forebay() { Way::engine(arm.name()) } else { Way::plain(arm.name()) }
}

/// Returns a cell of jobs.
pub fn cell(spec: CellSpec) -> Cell {
    let cell = Cell::new(JOB_FILE, spec.arm.name(), &spec);
    let CellSpec { directory, settings, seed, verify, .. } = spec;
    Cell { directory, settings, seed, verify, ..cell }
}

/// Returns the arm of a word.
pub(super) fn arm(word: &str) -> Arm {
    Arm::by_name(word).expect("the arms of jobs have a way of I/O each")
}

/// Returns how much a cell of jobs does.
pub(super) fn work(cell: &Cell) -> Result<Work, String> {
    let CellSpec { workload, budget_bytes, .. } = read(&cell.shape)?;
    let is_fio = cell.arm == FIO;
    let wants_device = !is_fio && workload.devices == Devices::Write;
    let arm = Arm::by_name(&cell.arm);
    let ring = workload.jobs.iter().any(|job| job.io_engine == IoEngine::Ring);
    let direct = arm.is_some_and(|arm| arm.is_forebay() || arm.is_direct_kernel());
    Ok(Work {
        written_bytes: workload.written_bytes(),
        laid_out_bytes: workload.laid_out_bytes(),
        writes_for_a_time: workload.writes_for_a_time(),
        seconds: workload.seconds(),
        budget_bytes: (!is_fio).then_some(budget_bytes),
        device_bytes: wants_device.then(|| workload.file_bytes()),
        ground: if wants_device { Ground::Device } else { Ground::Own },
        on_disk: true,
        outside: outside(&workload).map(Path::to_owned),
        uses_ring: arm != Some(Arm::Null) && (direct || ring),
        is_bounded: arm.is_some_and(|arm| arm.is_bounded_kernel() || arm == Arm::Kernel),
        shares_source: false,
    })
}

/// Returns the block device, or the existing file, that jobs work on outside the directory of their
/// cell.
fn outside(workload: &Workload) -> Option<&Path> {
    let only_read = workload.devices == Devices::ReadOnly;
    let mut paths = workload.absolute_paths();
    paths.find(|path| only_read || load::is_block_device(path)).map(std::path::PathBuf::as_path)
}

/// Runs a cell of jobs.
pub(super) fn run(cell: &Cell) -> Result<CellReport, CellError> {
    let mut spec: CellSpec = read(&cell.shape).map_err(CellError::invalid)?;
    let Cell { directory, seed, settings, verify, .. } = cell.clone();
    if cell.arm == FIO {
        let text = spec.text.unwrap_or_else(|| Err("there is no job file for fio".to_owned()));
        let total = load::run_fio(&FioCell { text, workload: spec.workload, directory, seed })?;
        return Ok(CellReport { total, jobs: Vec::new() });
    }
    if let Some(device) = &cell.device {
        let files = spec.workload.jobs.iter_mut().flat_map(|job| &mut job.files);
        files.filter(|file| **file == Path::new(DEVICE_TO_COME)).for_each(|file| {
            file.clone_from(device);
        });
    }
    let arm = Arm::by_name(&cell.arm)
        .ok_or_else(|| CellError::invalid(format!("{}: no arm of jobs", cell.arm)))?;
    load::report_cell(&CellSpec { arm, directory, seed, settings, verify, ..spec })
}

/// fio's `rw`, as far as suites have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ReadWrite {
    Write,
    RandWrite,
    /// Half reads, half writes, each front to back.
    Rw,
}

impl ReadWrite {
    /// Returns direction and order.
    pub(super) fn access(self) -> Access {
        let (direction, order) = match self {
            ReadWrite::Write => (Direction::Write, Order::Sequential),
            ReadWrite::RandWrite => (Direction::Write, Order::Random),
            ReadWrite::Rw => (Direction::Mixed { read_percent: 50 }, Order::Sequential),
        };
        Access { direction, order }
    }
}

/// Refuses a number that is not between 1 and `most`.
pub(super) fn bounded(what: &str, value: u32, most: u32) -> Result<(), String> {
    if (1..=most).contains(&value) {
        return Ok(());
    }
    Err(format!("{what} {value}: out of range (1 to {most})"))
}
