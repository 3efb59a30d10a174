//! Planning of cells: how much a cell writes and needs, and how a planned cell gets its place.
//!
//! A plan has cells without a place: no directory, no seed, no device. [`Cell::at`] gives them one
//! when their turn has come.

use std::io;
use std::path::Path;

use super::{Cell, CellSpec, Verify, outside};
use crate::job::{Devices, Workload};
use crate::programs::spec::CountCalls;
use crate::request::Operation;
use crate::scratch::Scratch;
use crate::through::CopyWay;

/// The path of a device until a cell has its place.
pub const DEVICE_TO_COME: &str = "<device>";

#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Its directory is called so.
    pub name: &'a str,
    pub scratch: &'a Scratch,
    /// For offsets and data; the same in every arm of a round.
    pub seed: u64,
    /// Whether the data is read back.
    pub verify: Verify,
    /// The block device of cells that want one.
    pub device: Option<&'a Path>,
}

impl Cell {
    /// The cell at a place. Makes its directory.
    pub fn at(&self, place: &Place<'_>) -> io::Result<Self> {
        let Place { name, scratch, seed, verify, device } = *place;
        let mut placed = self.clone();
        match &mut placed {
            Cell::Jobs(cell) => {
                (cell.seed, cell.verify) = (seed, verify);
                // The device may be that of the cells' file system, which must not be mounted then.
                cell.directory = if cell.wants_device() {
                    scratch.directory_beside(name)?
                } else {
                    scratch.cell_directory(name)?
                };
                if let Some(device) = device.filter(|_| cell.wants_device()) {
                    let files = cell.workload.jobs.iter_mut().flat_map(|job| &mut job.files);
                    files.for_each(|file| *file = device.to_owned());
                }
            }
            Cell::Requests(cell) => {
                (cell.spec.seed, cell.directory) = (seed, scratch.shared_directory()?);
            }
            Cell::Copies(cell) => {
                (cell.seed, cell.verify) = (seed, verify);
                cell.directory = scratch.cell_directory(name)?;
            }
            Cell::Fio(cell) => {
                (cell.seed, cell.directory) = (seed, scratch.cell_directory(name)?);
            }
            Cell::Program(cell) => {
                cell.seed = seed;
                cell.directory = match cell.load.keeps_files() {
                    true => scratch.kept_directory(name)?,
                    false => scratch.cell_directory(name)?,
                };
                // A file system of the cells' own may be another for each cell.
                let shared = cell.load.shares_source() && scratch.made().is_none();
                cell.source =
                    if shared { scratch.shared_directory()? } else { cell.directory.clone() };
                // In one round: they hardly differ from one to the next.
                cell.count_calls = match verify {
                    Verify::After => CountCalls::On,
                    Verify::Off => CountCalls::Off,
                };
            }
        }
        Ok(placed)
    }

    pub fn directory(&self) -> &Path {
        match self {
            Cell::Jobs(cell) => &cell.directory,
            Cell::Requests(cell) => &cell.directory,
            Cell::Copies(cell) => &cell.directory,
            Cell::Fio(cell) => &cell.directory,
            Cell::Program(cell) => &cell.directory,
        }
    }

    /// Whether it goes to the disk that the directory is on.
    pub fn on_disk(&self) -> bool {
        match self {
            Cell::Jobs(_) | Cell::Fio(_) | Cell::Program(_) => true,
            Cell::Requests(cell) => cell.spec.device.is_file(),
            Cell::Copies(cell) => cell.way != CopyWay::Memcpy,
        }
    }

    /// The jobs of a cell that has some.
    fn workload(&self) -> Option<&Workload> {
        match self {
            Cell::Jobs(cell) => Some(&cell.workload),
            Cell::Fio(cell) => Some(&cell.workload),
            Cell::Requests(_) | Cell::Copies(_) | Cell::Program(_) => None,
        }
    }

    /// Whether it reads existing files or devices, wherever they are.
    pub fn works_outside(&self) -> bool {
        self.workload().and_then(outside).is_some()
    }

    /// Whether it writes to a block device.
    pub fn wants_device(&self) -> bool {
        matches!(self, Cell::Jobs(cell) if cell.wants_device())
    }

    /// Bytes of a device it needs, if it works on one.
    pub fn device_bytes(&self) -> Option<u64> {
        self.workload().filter(|_| self.wants_device()).map(Workload::file_bytes)
    }

    /// Bytes of data it writes, if that number is fixed. Files that are filled before are not
    /// counted.
    pub fn written_bytes(&self) -> u64 {
        match self {
            Cell::Program(cell) => cell.load.written_bytes(),
            cell => cell.workload().map_or(0, Workload::written_bytes),
        }
    }

    /// Whether it writes as much as it can in a time.
    pub fn writes_for_a_time(&self) -> bool {
        match self {
            Cell::Program(cell) => cell.load.writes_for_a_time(),
            Cell::Requests(cell) => {
                cell.spec.device.is_file() && cell.spec.operation == Operation::Write
            }
            cell => cell.workload().is_some_and(Workload::writes_for_a_time),
        }
    }

    /// Bytes it brings to the disk, if that number is fixed: files that are filled before, and
    /// writes.
    pub fn fixed_bytes(&self) -> u64 {
        self.laid_out_bytes().saturating_add(self.written_bytes())
    }

    /// Bytes of files that are filled before the clock starts.
    pub fn laid_out_bytes(&self) -> u64 {
        self.workload().map_or(0, Workload::laid_out_bytes)
    }

    /// Bytes of memory for data of a bounded arm, if it has a budget.
    pub fn budget_bytes(&self) -> Option<u64> {
        match self {
            Cell::Jobs(cell) => Some(cell.budget_bytes),
            Cell::Program(cell) => cell.load.memory_bytes(),
            Cell::Requests(_) | Cell::Copies(_) | Cell::Fio(_) => None,
        }
    }

    /// Seconds until it begins no more operations, if it runs for a time.
    pub fn seconds(&self) -> Option<f64> {
        match self {
            Cell::Jobs(_) | Cell::Fio(_) => self.workload()?.seconds(),
            Cell::Requests(cell) => Some(cell.spec.seconds),
            Cell::Copies(cell) => Some(cell.seconds),
            Cell::Program(cell) => (!cell.load.ends_itself()).then_some(cell.seconds),
        }
    }
}

impl CellSpec {
    fn wants_device(&self) -> bool {
        self.workload.devices == Devices::Write
    }
}
