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

mod blocks;
mod device;
mod queued;
mod thread;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_block::limits::TAGS;
use forebay_block::{Device, Knobs, Queue};

use super::driver::Drive;
use super::error::{CellError, Context as _};
use super::figures::{add_flow, add_usage};
use super::fio;
use super::futures::FuturesLane;
use super::guard;
use super::kernel::KernelFiles;
use super::lane::{Lane, Nothing, SerialLane, buffer};
use super::library;
use super::ring::{self, HandOver, RingLane};
use super::timed::{Counted, Spans, count};
use crate::cell::CellResult;
use crate::detail::Detail;
use crate::job::YesNo;
use crate::metric::{put, put_latencies};
use crate::queue_knobs;
use crate::request::{Operation, Poll, RequestCell, RequestSpec, Submitter, Switch, Way};
use blocks::{Blocks, batch_of};
use device::{Opened, open_direct, path_of};
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
            let engine = Arc::new(library::build_engine(0, &spec.knobs, None)?);
            let how = match spec.operation {
                Operation::Read => forebay::Open::read(),
                Operation::Write => forebay::Open::write(),
            };
            let file = engine.open_direct(&path, how).context_at("could not open it", &path)?;
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
