//! A cell: one job on one arm in one round. Its specification and its result.
//!
//! A cell runs in a process of its own (the same program, started again), so that its memory,
//! context switches and page cache are its own and its death is an ordinary result.

mod plan;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::arm::Arm;
use crate::detail::Detail;
use crate::job::{Devices, IoEngine, Workload};
use crate::load::guard::is_block_device;
use crate::programs::spec::{FilesWay, ProgramCell, ProgramWay};
use crate::through::{CopyCell, CopyWay, RequestCell, Way};
pub use plan::{DEVICE_TO_COME, Place};

/// Specification of a cell of any kind.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Cell {
    Jobs(CellSpec),
    Requests(RequestCell),
    Copies(CopyCell),
    Fio(FioCell),
    Program(ProgramCell),
}

/// A job file of one group for fio, unchanged.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct FioCell {
    /// The job file, or why fio cannot do it.
    pub text: Result<String, String>,
    /// The same jobs, as they were understood.
    pub workload: Workload,
    /// Where its files go: an existing, empty directory of its own.
    pub directory: PathBuf,
    /// Of its offsets, where the file says nothing.
    pub seed: u64,
}

impl Cell {
    /// Where its I/O goes: a block device, a file that is there and only read, or the directory its
    /// files are in. None if it does none.
    pub fn works_on(&self) -> Option<&Path> {
        match self {
            Cell::Jobs(spec) => Some(outside(&spec.workload).unwrap_or(&spec.directory)),
            Cell::Requests(cell) => cell.spec.device.is_file().then(|| cell.place()),
            Cell::Copies(cell) => Some(&cell.directory),
            Cell::Fio(cell) => Some(outside(&cell.workload).unwrap_or(&cell.directory)),
            Cell::Program(cell) => Some(&cell.directory),
        }
    }

    /// Whether it may do some of it through io_uring.
    pub fn may_use_ring(&self) -> bool {
        match self {
            Cell::Jobs(spec) => match spec.arm {
                Arm::Null => false,
                arm if arm.is_forebay() || arm.is_direct_kernel() => true,
                _ => spec.workload.jobs.iter().any(|job| job.io_engine == IoEngine::Ring),
            },
            Cell::Requests(cell) => matches!(cell.way, Way::Queue | Way::Uring),
            Cell::Copies(cell) => cell.way == CopyWay::Forebay,
            Cell::Fio(cell) => cell.workload.jobs.iter().any(|job| job.io_engine == IoEngine::Ring),
            Cell::Program(cell) => {
                cell.way.is_forebay() || cell.way == ProgramWay::Files(FilesWay::RingOfFsyncs)
            }
        }
    }
}

/// Returns the block device, or the existing file, that jobs work on outside the directory of their
/// cell.
pub fn outside(workload: &Workload) -> Option<&Path> {
    let only_read = workload.devices == Devices::ReadOnly;
    workload.absolute_paths().find(|path| only_read || is_block_device(path)).map(PathBuf::as_path)
}

/// Specification of a cell of jobs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CellSpec {
    pub workload: Workload,
    pub arm: Arm,
    /// Where its files go: an existing, empty directory of its own.
    pub directory: PathBuf,
    /// Bytes of memory a bounded arm may use for data: the engine's cache, or the kernel's dirty
    /// window.
    pub budget_bytes: u64,
    /// Knobs of the arm, as `--set KEY=VALUE` gave them.
    pub settings: Vec<(String, String)>,
    /// Where the engine of the library serves its control socket, if it does.
    pub control: Option<PathBuf>,
    /// For offsets and data; the same in every arm of a round.
    pub seed: u64,
    /// Read everything back after the clock has stopped, and compare.
    pub verify: Verify,
    /// Write 4 KiB to a file of its own and sync it, through the arm's own path.
    pub sync_probe: SyncProbe,
}

impl CellSpec {
    /// Without a place, settings, and all that can be left out.
    pub fn of(arm: Arm, workload: Workload) -> Self {
        Self {
            workload,
            arm,
            directory: PathBuf::new(),
            budget_bytes: 0,
            settings: Vec::new(),
            control: None,
            seed: 0,
            verify: Verify::Off,
            sync_probe: SyncProbe::Off,
        }
    }
}

/// Whether the data is read back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Verify {
    Off,
    /// After the clock has stopped.
    After,
}

/// Whether the sync probe runs beside the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SyncProbe {
    Off,
    /// Every 10 ms.
    On,
    Always,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct CellResult {
    /// Metric name (see [`crate::metric`]) to value, for the cell as a whole.
    pub metrics: BTreeMap<String, f64>,
    /// Remarks for a reader of the result: a degraded path, a short file.
    pub notes: Vec<String>,
    /// Details of the course, if they were kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Box<Detail>>,
}
