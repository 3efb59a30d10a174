//! What does a write into memory cost by itself? One thread writes the blocks of a file again and
//! again, in a random order.
//!
//! ```text
//! every block once -> [ blocks in a random order, again and again ] -> every block, compared
//! ```
//!
//! The part in brackets is counted, and its pages all exist: the call and the copy are measured.
//! The bare copy goes into a shared mapping of a memory file, which is what an engine's arena is.
//! The clock is read once for many calls, so that it is not measured itself.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::arm::Way;
use crate::bytes::Bytes;
use crate::cell::{Cell, CellResult, Verify, Work};
use crate::job::FinalSync;
use crate::load::content::Content;
use crate::load::driver::{Batch, Drive, Source};
use crate::load::error::{CellError, Context};
use crate::load::figures::CellReport;
use crate::load::kernel::KernelFiles;
use crate::load::lane::{Lane, Serial, SerialLane, buffer};
use crate::load::library::{Blocking, build_engine, shut_down};
use crate::load::mapped::Memory;
use crate::load::sequence::{Kind, Operation};
use crate::load::shuffle::Permutation;
use crate::load::timed::{Spans, count};
use crate::load::verify;
use crate::planning::{Job, PlanError, Planner};
use crate::probe::{Probe, Steps, checked, read};
use crate::suite::model::Workload;

/// A shared mapping of a memory file, with nothing between.
const MEMCPY: &str = "copy-memcpy";

/// The page cache, by `pwrite`.
const PWRITE: &str = "copy-pwrite";

/// The cache of Forebay, by its blocking write.
const FOREBAY: &str = "copy-forebay";

pub(super) const PROBE: Probe = Probe {
    figures: &["write_bytes_per_s"],
    ..Probe::new("copies", ways, Steps { check, plan, work, run })
};

/// Calls between two looks at the clock.
const CALLS_BETWEEN_LOOKS: usize = 64;

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Shape {
    block: Bytes,
    /// Bytes of the file.
    bytes: Bytes,
}

/// Returns its arms.
fn ways() -> Vec<Way> {
    vec![
        Way::plain(MEMCPY),
        Way::plain(PWRITE).or("kernel-buffered"),
        Way::engine(FOREBAY).or("forebay"),
    ]
}

fn check(shape: &Value) -> Result<(), String> {
    let Shape { block, bytes: Bytes(bytes) } = read(shape)?;
    let block = u64::from(block.block()?);
    if bytes == 0 || bytes % block != 0 || bytes > 1 << 30 {
        return Err(format!("bytes {bytes}: out of range (whole blocks, 1g at most)"));
    }
    Ok(())
}

fn plan(planner: &mut Planner<'_>, workload: &Workload) -> Result<Vec<Job>, PlanError> {
    let shape: Shape = checked(workload);
    let seconds = planner.seconds();
    let job = planner.job(workload, |own| {
        let cell = Cell { seconds, ..Cell::new(PROBE.name, own.way.word, &workload.shape) };
        Some([cell.clone(), cell])
    });
    assert!(shape.bytes.0 >= shape.block.0, "a file has a block");
    Ok(vec![job])
}

fn work(cell: &Cell) -> Result<Work, String> {
    Ok(Work {
        seconds: Some(cell.seconds),
        on_disk: cell.arm != MEMCPY,
        uses_ring: cell.arm == FOREBAY,
        ..Work::default()
    })
}

fn run(cell: &Cell) -> Result<CellReport, CellError> {
    check(&cell.shape).map_err(CellError::invalid)?;
    let path = cell.directory.join("copy");
    let total = match cell.arm.as_str() {
        MEMCPY => {
            let shape: Shape = cell.shape().map_err(CellError::invalid)?;
            let memory = Memory::new(shape.bytes.0)?;
            let file = memory.file.try_clone().context("could not keep the memory file")?;
            measure(cell, memory, || Ok(file))
        }
        PWRITE => {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(true);
            let file = options.open(&path).context_at("could not open it", &path)?;
            let files = KernelFiles::one(file, path.clone());
            measure(cell, files, || verify::open_again(&path))
        }
        FOREBAY => {
            let engine = Arc::new(build_engine(0, &cell.settings, |builder| builder)?);
            let file = engine
                .open(&path, forebay::OpenOptions::new().write(true).create(true))
                .context("could not open it")?;
            measure(cell, Blocking(vec![file]), || {
                shut_down(engine)?;
                verify::open_again(&path)
            })
        }
        other => Err(CellError::invalid(format!("{other}: no arm of copies"))),
    };
    Ok(CellReport { total: total?, jobs: Vec::new() })
}

/// Measures writes, and compares the data if the cell is verified. `reopen` returns a file to read
/// it back, after the files were synced and closed.
fn measure<F: Serial>(
    cell: &Cell,
    files: F,
    reopen: impl FnOnce() -> Result<File, CellError>,
) -> Result<CellResult, CellError> {
    let shape: Shape = cell.shape().map_err(CellError::invalid)?;
    let (blocks, file_bytes) = (Blocks::new(shape, cell.seed), shape.bytes.0);
    let mut buffer = buffer(0, blocks.bytes as usize);
    buffer.fill(0xf0);
    let mut lane = SerialLane::new(CALLS_BETWEEN_LOOKS, buffer, files);
    blocks.write_all(&mut lane, |_, _| {})?;
    let batch = Batch { least: 1, most: CALLS_BETWEEN_LOOKS, complete: 1 };
    let mut drive = Drive::new(blocks.clone(), CALLS_BETWEEN_LOOKS, batch);
    let time = Spans::without_ramp(Duration::from_secs_f64(cell.seconds));
    let counted = count(&mut drive, &mut lane, time)?;
    let each = counted.seconds_each();
    let metrics = [
        ("ns_per_io", each * 1e9),
        ("iops", 1.0 / each),
        ("write_bytes_per_s", f64::from(blocks.bytes) / each),
        ("elapsed_s", counted.elapsed.as_secs_f64()),
    ];
    let metrics = metrics.map(|(name, value)| (name.to_owned(), value)).into();
    let mut notes = Vec::new();
    let name = Path::new(&cell.arm);
    let content = Content::new(cell.seed, name);
    if cell.verify == Verify::After {
        blocks.write_all(&mut lane, |offset, buffer| content.fill(offset, buffer))?;
    }
    lane.sync(0, FinalSync::Data)?;
    Box::new(lane).close()?;
    let written = reopen()?;
    if cell.verify == Verify::After {
        let mut buffer = vec![0; blocks.bytes as usize];
        for offset in (0..file_bytes).step_by(buffer.len()) {
            verify::compare(&written, name, content, offset, &mut buffer)?;
        }
        notes.push(verify::verified(file_bytes));
    }
    Ok(CellResult { metrics, notes, detail: None })
}

/// Blocks of a file in a random order, again and again.
#[derive(Clone)]
struct Blocks {
    offsets: Vec<u64>,
    next: usize,
    bytes: u32,
}

impl Blocks {
    fn new(shape: Shape, seed: u64) -> Self {
        let bytes = shape.block.0 as u32;
        let blocks = shape.bytes.0 / u64::from(bytes);
        assert!(blocks > 0, "a file without a block");
        let order = Permutation::new(blocks, seed);
        let offsets = (0..blocks).map(|index| order.at(index) * u64::from(bytes)).collect();
        Self { offsets, next: 0, bytes }
    }

    /// Writes every block once.
    fn write_all<F: Serial>(
        &self,
        lane: &mut SerialLane<F>,
        fill: impl Fn(u64, &mut [u8]),
    ) -> Result<(), CellError> {
        for &offset in &self.offsets {
            let write = Operation { kind: Kind::Write, file: 0, offset, bytes: self.bytes };
            lane.transfer(write, |buffer| fill(offset, buffer))?;
        }
        Ok(())
    }
}

impl Source for Blocks {
    #[inline]
    fn next(&mut self) -> Option<Operation> {
        let offset = self.offsets[self.next];
        self.next = if self.next + 1 == self.offsets.len() { 0 } else { self.next + 1 };
        Some(Operation { kind: Kind::Write, file: 0, offset, bytes: self.bytes })
    }
}
