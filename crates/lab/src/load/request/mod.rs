//! Request cells: bios through a queue over a device, in a closed loop, in one thread.
//!
//! ```text
//! spec --> device, queue, places --> ramp --> [ turns for so many seconds ] --> wait for the rest --> figures
//! ```
//!
//! What is in brackets is inside the clock. There are no files to make within it and no final sync,
//! because what is measured is the way of a request and not what became of the data: nothing here
//! says anything about durability. What the loop itself costs is measured beside it, over nothing,
//! and told as `driver_ns_per_io`.

mod device;
mod drive;
mod figures;
pub(crate) mod offsets;
mod thread;
mod way;

use std::path::Path;
use std::time::Duration;

use forebay_block::limits::TAGS;
use forebay_block::{Device, Knobs, Queue};

use super::CellError;
use crate::cell::CellResult;
use crate::request::{RequestSpec, Submitter};
use device::Opened;
use drive::{Drive, Spans};
use way::{Echo, Queued};

/// Most bios kept on their way: some multiples of what one queue has tags for.
pub const MOST_DEPTH: u32 = 16 * TAGS as u32;

/// How long the loop runs over nothing, and how often: the least counts, for all that disturbs
/// makes it more.
const DRIVER_SPAN: Duration = Duration::from_millis(3);
const DRIVER_RUNS: usize = 7;

/// Runs one request cell in this process. What it needs of files is in `directory`, and stays
/// there.
///
/// # Errors
/// What cannot be run as it stands, what this machine cannot do, and what went wrong.
pub fn run_request(spec: &RequestSpec, directory: &Path) -> Result<CellResult, CellError> {
    run_on(spec, directory, None)
}

/// The same on something that is only read, where there is such.
pub(crate) fn run_on(
    spec: &RequestSpec,
    directory: &Path,
    target: Option<&Path>,
) -> Result<CellResult, CellError> {
    check(spec)?;
    let knobs = knobs(spec)?;
    match device::open(spec, directory, target)? {
        Opened::Null(device) => on(spec, knobs, device, Vec::new()),
        Opened::Modelled(device) => on(spec, knobs, *device, Vec::new()),
        Opened::File { ring, notes } => on(spec, knobs, *ring, notes),
    }
}

fn on<D: Device>(
    spec: &RequestSpec,
    knobs: Knobs,
    device: D,
    notes: Vec<String>,
) -> Result<CellResult, CellError> {
    let mut queue = Queue::new();
    queue.set_knobs(knobs);
    let mut way = Queued::new(queue, device);
    let spans = Spans { ramp: spec.ramp(), counted: spec.counted() };
    let driver_ns = driver_ns_per_io(spec, DRIVER_SPAN.min(spans.counted))?;
    let outcome = match spec.from {
        Submitter::Local => Drive::new(spec).count(&mut way, spans)?,
        Submitter::Thread => thread::count(spec, &mut way, spans)?,
    };
    let detail = Some(Box::new(figures::detail(spec, &outcome)));
    Ok(CellResult { metrics: figures::of(spec, &outcome, driver_ns), notes, detail })
}

/// What the loop itself costs, per bio.
fn driver_ns_per_io(spec: &RequestSpec, counted: Duration) -> Result<f64, CellError> {
    let mut drive = Drive::new(spec);
    let mut least = f64::INFINITY;
    for _ in 0..DRIVER_RUNS {
        let outcome = drive.count(&mut Echo::default(), Spans { ramp: Duration::ZERO, counted })?;
        least = least.min(outcome.elapsed.as_secs_f64() * 1e9 / outcome.bios as f64);
    }
    Ok(least)
}

/// Refuses what cannot be meant.
fn check(spec: &RequestSpec) -> Result<(), CellError> {
    let invalid = |reason: String| Err(CellError::invalid(reason));
    if !(1..=MOST_DEPTH).contains(&spec.depth) {
        return invalid(format!("depth={}: not between 1 and {MOST_DEPTH}", spec.depth));
    }
    if spec.batch == Some(0) {
        return invalid("batch=0: one bio at least is handed over at a time".into());
    }
    let block_bytes = u64::from(spec.block_bytes);
    let sector = forebay_block::limits::SECTOR as u64;
    let unit = if spec.device.is_file() { forebay_block::limits::PAGE as u64 } else { sector };
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
        match knobs.set(name, value) {
            Some(Ok(())) => {}
            Some(Err(unknown)) => {
                return Err(CellError::invalid(format!(
                    "{name}={value}: there are {}",
                    unknown.choices
                )));
            }
            None => {
                let names = Knobs::NAMES.join(", ");
                return Err(CellError::invalid(format!(
                    "{name}: a queue has no such knob (it has {names})"
                )));
            }
        }
    }
    Ok(knobs)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::request::{Operation, Pattern, Switch};

    /// A small cell: sequential reads at depth 4, for two milliseconds.
    pub(crate) fn spec(device: &str) -> RequestSpec {
        RequestSpec {
            device: device.parse().unwrap(),
            depth: 4,
            block_bytes: 4096,
            pattern: Pattern::Sequential,
            operation: Operation::Read,
            knobs: Vec::new(),
            fixed_buffers: Switch::Off,
            fixed_files: Switch::Off,
            batch: None,
            from: Submitter::Local,
            file_bytes: 1 << 20,
            seconds: 0.002,
            seed: 7,
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_the_remedy() {
        let knob = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
        for (spec, remedy) in [
            (RequestSpec { depth: 0, ..spec("null") }, "between 1 and 4096"),
            (RequestSpec { depth: MOST_DEPTH + 1, ..spec("null") }, "between 1 and 4096"),
            (RequestSpec { batch: Some(0), ..spec("null") }, "one bio at least"),
            (RequestSpec { block_bytes: 1000, ..spec("null") }, "multiple of 512"),
            (RequestSpec { block_bytes: 512, ..spec("file") }, "multiple of 4096"),
            (RequestSpec { file_bytes: 4097, ..spec("null") }, "multiple of block_bytes"),
            (RequestSpec { seconds: f64::NAN, ..spec("null") }, "not a time"),
            (RequestSpec { from: Submitter::Thread, ..spec("gen4") }, "take null"),
            (
                RequestSpec { knobs: knob("plug", "often"), ..spec("null") },
                "never, always, adaptive",
            ),
            (RequestSpec { knobs: knob("plugs", "never"), ..spec("null") }, "it has plug, merge"),
            (RequestSpec { fixed_files: Switch::On, ..spec("null") }, "device=file"),
        ] {
            let refused = run_request(&spec, Path::new("/nowhere")).unwrap_err().to_string();
            assert!(refused.contains(remedy), "{refused}");
        }
    }
}
