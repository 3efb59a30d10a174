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

mod queued;
mod thread;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use forebay_block::limits::{PLUG_BIOS, TAGS};
use forebay_block::random::Random;
use forebay_block::{Device, Knobs, Queue};
use forebay_uring::{Modelled, Null, Profile};

use super::data;
use super::driver::{Batch, Drive, Source};
use super::error::{CellError, Context as _};
use super::figures::{add_flow, add_usage};
use super::fio;
use super::futures::FuturesLane;
use super::guard;
use super::kernel::KernelFiles;
use super::lane::{Lane, Nothing, SerialLane, buffer};
use super::library;
use super::ring::{self, HandOver, RingLane};
use super::sequence::{self, Kind};
use super::timed::{Counted, Spans, count};
use crate::cell::CellResult;
use crate::detail::Detail;
use crate::job::YesNo;
use crate::metric::{put, put_latencies};
use crate::queue_knobs;
use crate::request::{
    DATA_FILE, Operation, Pattern, Poll, RequestCell, RequestSpec, Submitter, Switch, Way,
};
use crate::scratch::Stop;
use queued::Queued;

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
    if *way == Way::Queue {
        return run_queue(cell);
    }
    if !spec.device.is_file() {
        let way = way.name();
        return Err(CellError::invalid(format!(
            "{way} goes to a file alone, not to {}",
            spec.device
        )));
    }
    let path = path_of(cell)?;
    let (mut notes, mut spec) = (Vec::new(), spec.clone());
    let (slots, bytes) = (spec.depth as usize, spec.block_bytes as usize);
    let counted = match way {
        Way::Fio => return fio::run_requests(&spec, &path),
        Way::Pread => {
            if spec.depth > 1 {
                notes.push("one call at a time; the depth has no effect".into());
            }
            (spec.depth, spec.batch) = (1, None);
            let files = KernelFiles::one(open_direct(&spec, &path)?, path);
            let mut counted = counted(&spec, &mut SerialLane::new(1, buffer(0, bytes), files))?;
            let calls = counted.tally.operations;
            (counted.counters.doorbells, counted.counters.requests) = (calls, calls);
            counted
        }
        Way::Uring => {
            let polled = match (cell.poll, guard::device_polls(cell.place())) {
                (Poll::Never, _) => YesNo::No,
                (Poll::WhereItCan, Ok(())) => YesNo::Yes,
                (Poll::WhereItCan, Err(why)) => {
                    notes.push(format!("not polled: {why}"));
                    YesNo::No
                }
            };
            let files = KernelFiles::one(open_direct(&spec, &path)?, path);
            let ring = ring::set_up(spec.depth, polled).map_err(|error| {
                CellError::unavailable(format!("io_uring is missing or forbidden here: {error}"))
            })?;
            let buffers = (0..slots).map(|slot| buffer(slot, bytes)).collect();
            let fixed_files = (spec.fixed_files == Switch::On).into();
            let hand_over = HandOver::WithWait { fixed_files };
            counted(&spec, &mut RingLane::new(ring, buffers, files, hand_over)?)?
        }
        Way::Library => {
            let engine = Arc::new(library::build_engine(0, &spec.knobs, |builder| builder)?);
            let mut how = forebay::OpenOptions::new();
            how.read(true).write(spec.operation == Operation::Write);
            let file = engine.open_direct(&path, &how).context_at("could not open it", &path)?;
            let buffers = library::pool_buffers(&engine, slots, bytes)?;
            let batch = spec.batch.unwrap_or(spec.depth) as usize;
            let mut lane = FuturesLane::new(buffers, Arc::clone(&engine), vec![file], batch);
            let counted = counted(&spec, &mut lane)?;
            Box::new(lane).close()?;
            library::shut_down(engine)?;
            counted
        }
        Way::Queue => unreachable!("it went another way"),
    };
    result(&spec, &counted, notes)
}

/// Runs a cell through Forebay's queue over its device.
fn run_queue(cell: &RequestCell) -> Result<CellResult, CellError> {
    let RequestCell { spec: spec @ RequestSpec { device, .. }, .. } = cell;
    let knobs = knobs(spec)?;
    if !device.is_file() && spec.fixed_files == Switch::On {
        return Err(CellError::invalid(format!(
            "files are registered with a ring, and {device} has none: take device=file"
        )));
    }
    match (device.name(), device.free_nanos()) {
        ("null", _) => queued(spec, knobs, Null::new(), Vec::new()),
        ("file", _) => {
            let (ring, notes) = queued::ring(cell)?;
            queued(spec, knobs, ring, notes)
        }
        (name, nanos) => {
            let free = nanos.map(|nanos| Profile::free(Duration::from_nanos(nanos)));
            let profile = free.or_else(|| Profile::by_name(name)).ok_or_else(|| {
                CellError::invalid(format!("{name}: no such device (of {})", Profile::CHOICES))
            })?;
            queued(spec, knobs, Modelled::new(profile), Vec::new())
        }
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
    let mut lane = Queued::new(spec, queue, device);
    let counted = match spec.from {
        Submitter::Local => counted(spec, &mut lane)?,
        Submitter::Thread => thread::count_crossed(spec, &mut lane, Spans::of(spec.counted()))?,
    };
    result(spec, &counted, notes)
}

/// Drives a lane for the time of a cell.
fn counted<L: Lane>(spec: &RequestSpec, lane: &mut L) -> Result<Counted, CellError> {
    let mut drive = Drive::new(Blocks::new(spec), lane.slots(), batch_of(spec));
    count(&mut drive, lane, Spans::of(spec.counted()))
}

/// Returns the figures of a cell. Rates are over the time the loop ran, which is up to one turn
/// longer than asked.
fn result(
    spec: &RequestSpec,
    counted: &Counted,
    notes: Vec<String>,
) -> Result<CellResult, CellError> {
    let Counted { tally, elapsed, counters, holds, usage } = counted;
    let mut metrics = BTreeMap::new();
    let flow = Some(add_flow(&mut metrics, spec.operation.name(), tally, *elapsed));
    // From another thread no latencies are known.
    if !tally.latencies.is_empty() {
        put_latencies(&mut metrics, "", &tally.latencies);
        metrics.remove("latency_p999_us");
    }
    put(&mut metrics, "elapsed_s", elapsed.as_secs_f64());
    put(&mut metrics, "iops", tally.operations as f64 / elapsed.as_secs_f64());
    put(&mut metrics, "ns_per_io", counted.seconds_each() * 1e9);
    put(&mut metrics, "driver_ns_per_io", driver_ns_per_io(spec)?);
    counters.put(&mut metrics, tally.operations);
    add_usage(&mut metrics, *usage, tally.operations, tally.bytes);
    let (read, write) = match spec.operation {
        Operation::Read => (flow, None),
        Operation::Write => (None, flow),
    };
    let detail = Detail { read, write, usage: usage.process, holds: holds.clone() };
    Ok(CellResult { metrics, notes, detail: Some(Box::new(detail)) })
}

/// Measures the cost of the loop itself, per operation.
fn driver_ns_per_io(spec: &RequestSpec) -> Result<f64, CellError> {
    let spans = Spans::without_ramp(DRIVER_SPAN.min(spec.counted()));
    let slots = spec.depth as usize;
    let mut lane = SerialLane::new(slots, buffer(0, spec.block_bytes as usize), Nothing);
    let mut drive = Drive::new(Blocks::new(spec), slots, batch_of(spec));
    let mut least = f64::INFINITY;
    for _ in 0..DRIVER_RUNS {
        least = least.min(count(&mut drive, &mut lane, spans)?.seconds_each() * 1e9);
    }
    Ok(least)
}

/// Refuses invalid values.
fn check(spec: &RequestSpec, way: Way) -> Result<(), CellError> {
    let invalid = |reason: String| Err(CellError::invalid(reason));
    if !(1..=MOST_DEPTH).contains(&spec.depth) {
        return invalid(format!("depth={}: not between 1 and {MOST_DEPTH}", spec.depth));
    }
    if spec.batch == Some(0) {
        return invalid("batch=0: one bio at least is handed over at a time".into());
    }
    let block_bytes = u64::from(spec.block_bytes);
    let sector = forebay_block::limits::SECTOR as u64;
    let paged = spec.device.is_file() && way == Way::Queue;
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
    let device = &spec.device;
    let ends_at_doorbell = device.name() == "null" || device.free_nanos().is_some();
    if spec.from == Submitter::Thread && !ends_at_doorbell {
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

/// The operations of a request cell: block after block of a file, a few instructions each, because
/// they are paid for every one. Random blocks are drawn with replacement. The same seed gives the
/// same blocks in every arm.
#[derive(Clone, Debug)]
struct Blocks {
    /// Draws them, if they do not follow each other.
    random: Option<Random>,
    next: u64,
    blocks: u64,
    block_bytes: u32,
    kind: Kind,
}

impl Blocks {
    fn new(spec: &RequestSpec) -> Self {
        let RequestSpec { block_bytes, .. } = *spec;
        let blocks = spec.file_bytes / u64::from(block_bytes);
        assert!(blocks > 0, "the file holds a block");
        let random = (spec.pattern == Pattern::Random).then(|| Random::new(spec.seed));
        let kind = match spec.operation {
            Operation::Read => Kind::Read,
            Operation::Write => Kind::Write,
        };
        Self { random, next: 0, blocks, block_bytes, kind }
    }

    /// Returns the next operation. There is always one.
    #[inline]
    fn draw(&mut self) -> sequence::Operation {
        let block = match &mut self.random {
            Some(random) => random.below(self.blocks),
            None => {
                let block = self.next;
                self.next = if block + 1 == self.blocks { 0 } else { block + 1 };
                block
            }
        };
        let offset = block * u64::from(self.block_bytes);
        sequence::Operation { kind: self.kind, file: 0, offset, bytes: self.block_bytes }
    }
}

impl Source for Blocks {
    #[inline]
    fn next(&mut self) -> Option<sequence::Operation> {
        Some(self.draw())
    }
}

/// Returns exactly the batch that was asked for, so that a ladder of batches is one on devices that
/// end one at a time; but not more than there are slots or a queue has room for.
fn batch_of(spec: &RequestSpec) -> Batch {
    match spec.batch {
        Some(batch) => Batch::exactly((batch.min(spec.depth) as usize).min(PLUG_BIOS)),
        None => Batch { least: 1, most: usize::MAX, complete: 1 },
    }
}

#[cfg(test)]
pub(crate) mod tests;
