//! Request cells: bios in a closed loop, through Forebay's queue over a device, or beside it
//! through the kernel's own calls, its ring with nothing of ours between, and fio.
//!
//! ```text
//! spec --> way, places --> ramp --> [ turns, for a time ] --> wait for the rest
//! ```
//!
//! The part in brackets is inside the clock. No files are made there and nothing is synced, because
//! the path of a request is measured and not durability. One loop drives all ways but fio. Its own
//! cost is measured over nothing and reported as `driver_ns_per_io`.

mod calls;
mod device;
mod drive;
mod figures;
mod fio;
mod offsets;
mod thread;
mod uring;
mod way;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_block::limits::TAGS;
use forebay_block::{Device, Knobs, Queue};

use super::{CellError, Context, Spans, data, ring};
use crate::cell::CellResult;
use crate::job::YesNo;
use crate::plan::queue_knobs;
use crate::request::{DATA_FILE, Operation, RequestSpec, Submitter};
use crate::scratch::Stop;
use crate::through::{self, Poll, RequestCell};
use calls::Calls;
use device::Opened;
use drive::{Drive, Outcome};
use uring::Kernel;
use way::{Echo, Queued, Way};

/// Most bios in flight: a multiple of one queue's tags.
pub const MOST_DEPTH: u32 = 16 * TAGS as u32;

/// How long the loop runs over nothing, and how often: the least counts, for all that disturbs
/// makes it more.
const DRIVER_SPAN: Duration = Duration::from_millis(3);
const DRIVER_RUNS: usize = 7;

/// Runs one request cell in this process. Files that it needs are made in its directory, and stay
/// there.
pub fn run(cell: &RequestCell) -> Result<CellResult, CellError> {
    let RequestCell { way, spec, .. } = cell;
    check(spec, *way)?;
    if *way == through::Way::Queue {
        let knobs = knobs(spec)?;
        return match device::open(cell)? {
            Opened::Null(device) => queued(spec, knobs, device, Vec::new()),
            Opened::Modelled(device) => queued(spec, knobs, *device, Vec::new()),
            Opened::File { ring, notes } => queued(spec, knobs, *ring, notes),
        };
    }
    if !spec.device.is_file() {
        let way = way.name();
        return Err(CellError::invalid(format!(
            "{way} goes to a file alone, not to {}",
            spec.device
        )));
    }
    let path = path_of(cell)?;
    let mut notes = Vec::new();
    match way {
        through::Way::Fio => fio::run(spec, &path),
        through::Way::Pread => {
            if spec.depth > 1 {
                notes.push("one call at a time; the depth has no effect".into());
            }
            let one = RequestSpec { depth: 1, batch: None, ..spec.clone() };
            measured(&one, Calls::open(&one, &path)?, notes)
        }
        through::Way::Uring => {
            let polled = match (cell.poll, ring::device_polls(cell.place())) {
                (Poll::Never, _) => YesNo::No,
                (Poll::WhereItCan, Ok(())) => YesNo::Yes,
                (Poll::WhereItCan, Err(why)) => {
                    notes.push(format!("not polled: {why}"));
                    YesNo::No
                }
            };
            measured(spec, Kernel::open(spec, &path, polled)?, notes)
        }
        through::Way::Queue => unreachable!("it went another way"),
    }
}

fn queued<D: Device>(
    spec: &RequestSpec,
    knobs: Knobs,
    device: D,
    notes: Vec<String>,
) -> Result<CellResult, CellError> {
    let mut queue = Queue::new();
    queue.set_knobs(knobs);
    let mut way = Queued::new(queue, device);
    match spec.from {
        Submitter::Local => measured(spec, way, notes),
        Submitter::Thread => {
            let driver_ns = driver_ns_per_io(spec)?;
            let outcome = thread::count(spec, &mut way, Spans::of(spec.counted()))?;
            Ok(result(spec, &outcome, driver_ns, notes))
        }
    }
}

/// Drives a way for the time of a cell.
fn measured<W: Way>(
    spec: &RequestSpec,
    mut way: W,
    notes: Vec<String>,
) -> Result<CellResult, CellError> {
    let driver_ns = driver_ns_per_io(spec)?;
    let outcome = Drive::new(spec).count(&mut way, Spans::of(spec.counted()))?;
    Ok(result(spec, &outcome, driver_ns, notes))
}

fn result(spec: &RequestSpec, outcome: &Outcome, driver_ns: f64, notes: Vec<String>) -> CellResult {
    let detail = Some(Box::new(figures::detail(spec, outcome)));
    CellResult { metrics: figures::of(spec, outcome, driver_ns), notes, detail }
}

/// Returns the file of a cell: the target, which is only read, or the laid-out file, which this
/// makes if it does not exist.
fn path_of(cell: &RequestCell) -> Result<PathBuf, CellError> {
    let RequestCell { spec, directory, target, .. } = cell;
    if let Some(target) = target {
        if spec.operation == Operation::Write {
            return Err(CellError::invalid(format!("{}: it is only read", target.display())));
        }
        return Ok(target.clone());
    }
    let path = directory.join(DATA_FILE);
    data::lay_out(directory, spec.file_bytes, spec.seed, &Stop::default())
        .context_at("could not lay it out", &path)?;
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
        _ => CellError::failed_at("could not open it", path, &error),
    })
}

/// Cost of the loop itself, per bio.
fn driver_ns_per_io(spec: &RequestSpec) -> Result<f64, CellError> {
    let counted = DRIVER_SPAN.min(spec.counted());
    let mut drive = Drive::new(spec);
    let mut least = f64::INFINITY;
    for _ in 0..DRIVER_RUNS {
        let outcome = drive.count(&mut Echo::default(), Spans { ramp: Duration::ZERO, counted })?;
        least = least.min(outcome.elapsed.as_secs_f64() * 1e9 / outcome.bios as f64);
    }
    Ok(least)
}

/// Refuses invalid values.
fn check(spec: &RequestSpec, way: through::Way) -> Result<(), CellError> {
    let invalid = |reason: String| Err(CellError::invalid(reason));
    if !(1..=MOST_DEPTH).contains(&spec.depth) {
        return invalid(format!("depth={}: not between 1 and {MOST_DEPTH}", spec.depth));
    }
    if spec.batch == Some(0) {
        return invalid("batch=0: one bio at least is handed over at a time".into());
    }
    let block_bytes = u64::from(spec.block_bytes);
    let sector = forebay_block::limits::SECTOR as u64;
    let paged = spec.device.is_file() && way == through::Way::Queue;
    let unit = if paged { forebay_block::limits::PAGE as u64 } else { sector };
    if block_bytes == 0 || !block_bytes.is_multiple_of(unit) {
        return invalid(format!("block_bytes={block_bytes}: not a multiple of {unit}"));
    }
    if spec.file_bytes == 0 || !spec.file_bytes.is_multiple_of(block_bytes) {
        return invalid(format!(
            "file_bytes={}: not a multiple of block_bytes={block_bytes}",
            spec.file_bytes
        ));
    }
    if !Duration::try_from_secs_f64(spec.seconds).is_ok_and(|span| span > Duration::ZERO) {
        return invalid(format!("seconds={}: not a time", spec.seconds));
    }
    if spec.from == Submitter::Thread && !device::ends_at_doorbell(&spec.device) {
        let device = &spec.device;
        return invalid(format!(
            "from=thread measures the list, so what ends by itself would be in the way: {device} does (take null, \
             or free:NANOSECONDS)"
        ));
    }
    Ok(())
}

fn knobs(spec: &RequestSpec) -> Result<Knobs, CellError> {
    let mut knobs = Knobs::default();
    for (name, value) in &spec.knobs {
        let set = queue_knobs::set(&mut knobs, name, value);
        set.map_err(|why| CellError::invalid(format!("{name}={value}: {why}")))?;
    }
    Ok(knobs)
}

#[cfg(test)]
pub(crate) mod tests;
