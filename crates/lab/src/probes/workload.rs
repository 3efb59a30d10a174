//! Jobs on files or devices: what the probes of new files, jobs, writers and job files run.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::arm::{Arm, Way};
use crate::cell::{Cell, CellSpec, DEVICE_TO_COME, FioCell, Ground, SyncProbe, Work};
use crate::job::{Access, Devices, Direction, IoEngine, Order, Workload};
use crate::load::{self, CellError, CellReport};
use crate::probe::read;

/// Name of the probe of a job file.
pub const JOB_FILE: &str = "job-file";

/// The arm that gives the job file to fio.
pub(super) const FIO: &str = "fio";

/// Arms of jobs on files.
pub(super) static ON_FILES: &[Way] = &[
    Way::plain("kernel-buffered"),
    Way::plain("kernel-buffered-prealloc"),
    Way::plain("kernel-cgroup"),
    Way::plain("kernel-bounded"),
    Way::plain("kernel-bounded-prealloc"),
    Way::plain("kernel-uncached"),
    Way::plain("kernel-uncached-prealloc"),
    Way::plain("kernel-direct-prealloc"),
    Way::plain("kernel-direct"),
    Way::plain("kernel-direct-1m"),
    Way::plain("raw-device"),
    Way::plain("raw-device-1m"),
    Way::engine("forebay"),
    Way::engine("forebay-declared"),
    Way::engine("forebay-survive"),
    Way::plain("null"),
];

/// The work of a cell of jobs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct JobCell {
    pub workload: Workload,
    /// Bytes of memory a bounded arm may use for data.
    #[serde(default)]
    pub budget_bytes: u64,
    #[serde(default)]
    pub sync_probe: SyncProbe,
    /// The control socket of the engine, if it serves one.
    #[serde(default)]
    pub control: Option<std::path::PathBuf>,
    /// The job file for fio, or why fio cannot do it.
    #[serde(default)]
    pub text: Option<Result<String, String>>,
}

impl JobCell {
    /// Returns the work of jobs with this memory for data.
    pub fn new(workload: Workload, budget_bytes: u64) -> Self {
        let sync_probe = SyncProbe::Off;
        Self { workload, budget_bytes, sync_probe, control: None, text: None }
    }
}

/// Returns a cell of jobs.
pub fn cell(spec: CellSpec) -> Cell {
    let CellSpec { workload, budget_bytes, sync_probe, control, .. } = spec;
    let shape = JobCell { sync_probe, control, ..JobCell::new(workload, budget_bytes) };
    let CellSpec { arm, directory, settings, seed, verify, .. } = spec;
    Cell { directory, settings, seed, verify, ..Cell::new(JOB_FILE, arm.name(), &shape) }
}

/// Returns the arm of a word of [`ON_FILES`].
pub(super) fn arm(word: &str) -> Arm {
    Arm::by_name(word).expect("the arms of jobs have a way of I/O each")
}

/// Returns how much a cell of jobs does.
pub(super) fn work(cell: &Cell) -> Result<Work, String> {
    let JobCell { workload, budget_bytes, .. } = read(&cell.shape)?;
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
    let JobCell { mut workload, budget_bytes, sync_probe, control, text } =
        read(&cell.shape).map_err(CellError::invalid)?;
    let (directory, seed) = (cell.directory.clone(), cell.seed);
    if cell.arm == FIO {
        let text = text.unwrap_or_else(|| Err("there is no job file for fio".to_owned()));
        let total = load::run_fio(&FioCell { text, workload, directory, seed })?;
        return Ok(CellReport { total, jobs: Vec::new() });
    }
    if let Some(device) = &cell.device {
        let files = workload.jobs.iter_mut().flat_map(|job| &mut job.files);
        files.filter(|file| **file == Path::new(DEVICE_TO_COME)).for_each(|file| {
            file.clone_from(device);
        });
    }
    let arm = Arm::by_name(&cell.arm)
        .ok_or_else(|| CellError::invalid(format!("{}: no arm of jobs", cell.arm)))?;
    let settings = cell.settings.clone();
    let spec = CellSpec { directory, seed, settings, ..CellSpec::of(arm, workload) };
    load::report_cell(&CellSpec { budget_bytes, control, verify: cell.verify, sync_probe, ..spec })
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
