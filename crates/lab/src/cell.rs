//! A cell: one probe on one arm in one round. Its specification, its amounts, and its result.
//!
//! A cell runs in a process of its own (the same program, started again), so that its memory,
//! context switches and page cache are its own and its death is an ordinary result. A plan has
//! cells without a place, which they get when their turn has come.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::arm::Arm;
use crate::detail::Detail;
use crate::job::Workload;

/// The path of a device until a cell has its place.
pub const DEVICE_TO_COME: &str = "<device>";

/// Specification of a cell of any probe.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Cell {
    pub probe: String,
    /// Word of the arm, one of the probe's.
    pub arm: String,
    /// The work, in the probe's own form.
    pub shape: Value,
    /// Seconds that it runs, if its work does not end by itself.
    pub seconds: f64,
    pub settings: Vec<(String, String)>,
    /// For offsets and data; the same in every arm of a round.
    pub seed: u64,
    pub verify: Verify,
    /// Where its files go: an existing directory.
    pub directory: PathBuf,
    /// Where a file is that cells share: an existing directory.
    pub source: PathBuf,
    /// The block device that it writes over, if it does.
    pub device: Option<PathBuf>,
}

impl Cell {
    /// Returns a cell without a place.
    pub fn new(probe: &str, arm: &str, shape: &impl Serialize) -> Self {
        assert!(!probe.is_empty() && !arm.is_empty(), "a cell is of a probe and of an arm");
        let shape = serde_json::to_value(shape).expect("a shape is data");
        Self {
            probe: probe.to_owned(),
            arm: arm.to_owned(),
            shape,
            seconds: 0.0,
            settings: Vec::new(),
            seed: 0,
            verify: Verify::Off,
            directory: PathBuf::new(),
            source: PathBuf::new(),
            device: None,
        }
    }

    /// Returns the work in the probe's form.
    ///
    /// # Errors
    /// The shape is of another probe.
    pub fn shape<T: DeserializeOwned>(&self) -> Result<T, String> {
        let read = serde_json::from_value(self.shape.clone());
        read.map_err(|error| format!("no shape of {}: {error}", self.probe))
    }
}

/// Where the files of a cell go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ground {
    /// An empty directory of its own, removed after it.
    #[default]
    Own,
    /// A block device.
    Device,
    /// The directory that all cells share.
    Shared,
    /// A directory of its own that stays until the end of the comparison.
    Kept,
}

/// How much a cell does, and where.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Work {
    /// Bytes that it writes, if that number is fixed.
    pub written_bytes: u64,
    /// Bytes of files that are filled before the clock starts.
    pub laid_out_bytes: u64,
    /// Whether it writes as much as it can in a time.
    pub writes_for_a_time: bool,
    /// Seconds until it begins no more operations, if it runs for a time.
    pub seconds: Option<f64>,
    /// Bytes of memory for data of a bounded arm, if it has a budget.
    pub budget_bytes: Option<u64>,
    /// Bytes of the device that it writes over, if it does.
    pub device_bytes: Option<u64>,
    pub ground: Ground,
    /// Whether all cells share a large file.
    pub shares_source: bool,
    /// Whether it does I/O on the disk of its directory.
    pub on_disk: bool,
    /// The block device or file outside its directory that it works on.
    pub outside: Option<PathBuf>,
    /// Whether it may use io_uring.
    pub uses_ring: bool,
    /// Whether its arm keeps within a budget of memory as the base of a claim has to.
    pub is_bounded: bool,
}

impl Work {
    /// Returns whether it writes to a block device.
    pub fn wants_device(&self) -> bool {
        self.ground == Ground::Device
    }

    /// Returns the bytes that it brings to the disk, if that number is fixed: files that are filled
    /// before, and writes.
    pub fn fixed_bytes(&self) -> u64 {
        self.laid_out_bytes.saturating_add(self.written_bytes)
    }

    /// Returns where its I/O goes: a device or file outside, or its directory; none without a disk.
    pub fn works_on<'a>(&'a self, cell: &'a Cell) -> Option<&'a Path> {
        let outside = cell.device.as_deref().or(self.outside.as_deref());
        outside.or(self.on_disk.then_some(cell.directory.as_path()))
    }
}

/// A cell of jobs, as the load generator takes it. As a shape it has the work alone; the rest is
/// its cell's.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CellSpec {
    pub workload: Workload,
    #[serde(skip)]
    pub arm: Arm,
    /// Where its files go: an existing, empty directory of its own.
    #[serde(skip)]
    pub directory: PathBuf,
    /// Bytes of memory a bounded arm may use for data: the engine's cache, or the kernel's dirty
    /// window.
    pub budget_bytes: u64,
    /// Knobs of the arm, as `--set KEY=VALUE` gave them.
    #[serde(skip)]
    pub settings: Vec<(String, String)>,
    /// Where the engine of the library serves its control socket, if it does.
    pub control: Option<PathBuf>,
    /// For offsets and data; the same in every arm of a round.
    #[serde(skip)]
    pub seed: u64,
    /// Read everything back after the clock has stopped, and compare.
    #[serde(skip)]
    pub verify: Verify,
    /// Write 4 KiB to a file of its own and sync it, through the arm's own path.
    pub sync_probe: SyncProbe,
    /// The job file for fio, or why fio cannot do it.
    pub text: Option<Result<String, String>>,
}

impl CellSpec {
    /// Returns a cell without a place, settings, and all that can be left out.
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
            text: None,
        }
    }
}

/// A job file of one group for fio, unchanged.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct FioCell {
    /// The job file, or why fio cannot do it.
    pub text: Result<String, String>,
    pub workload: Workload,
    /// Where its files go: an existing, empty directory of its own.
    pub directory: PathBuf,
    /// Of its offsets, where the file says nothing.
    pub seed: u64,
}

/// Whether the data is read back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Verify {
    #[default]
    Off,
    /// After the clock has stopped.
    After,
}

/// Whether the sync probe runs beside the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SyncProbe {
    #[default]
    Off,
    /// Every 10 ms.
    On,
    /// One sync after the other.
    #[serde(rename = "sync")]
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
