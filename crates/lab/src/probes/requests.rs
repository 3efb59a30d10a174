//! Requests of one size at a depth, in a closed loop for a time: the path of a request alone,
//! without files to make and without a sync. One job for each device and depth.

use serde::Deserialize;
use serde_json::Value;

use crate::arm::{Knobs, Way};
use crate::bytes::Bytes;
use crate::cell::{Cell, Ground, Work};
use crate::figures::ratio;
use crate::load::{self, CellError, CellReport};
use crate::planning::{GIB, Job, LENGTH_STEP_BYTES, MIB, PlanError, Planner, scaled};
use crate::probe::{Batch, Probe, Steps, checked, read};
use crate::reader::Reader;
use crate::request::{
    Operation, Pattern, RequestCell, RequestDevice, RequestSpec, Switch, Way as RequestWay,
};
use crate::schema::Against;
use crate::sentence::{NO_DIFFERENCE, usual};
use crate::suite::model::{Arm, Cut, Workload};

/// Bytes of a device that has no file: as large as a small disk, which costs nothing.
const DEVICE_BYTES: u64 = GIB;

const FIO: &str = "fio";
const QUEUE: &str = "queue";

pub(super) const PROBE: Probe = Probe {
    needs,
    sentence,
    batch: Batch::OfArm,
    figures: &[
        "latency_p50_us",
        "latency_p99_us",
        "cpu_us_per_io",
        "doorbells_per_io",
        "requests_per_doorbell",
    ],
    ..Probe::new("requests", ways, Steps { check, plan, work, run })
};

/// The work of a suite's workload.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Shape {
    pattern: Pattern,
    operation: Operation,
    block: Bytes,
}

/// Returns a cell of requests.
pub fn cell(requests: RequestCell) -> Cell {
    let cell = Cell::new(PROBE.name, requests.way.name(), &requests);
    Cell { seconds: requests.spec.seconds, directory: requests.directory, ..cell }
}

/// Returns its arms.
fn ways() -> Vec<Way> {
    vec![
        Way { word: QUEUE, alias: "forebay", knobs: Knobs::Queue },
        Way::plain("pread"),
        Way::plain("uring").or("kernel-direct"),
        Way::engine("library"),
        Way::plain(FIO),
    ]
}

fn check(shape: &Value) -> Result<(), String> {
    read::<Shape>(shape)?.block.block().map(drop)
}

fn needs(cut: &Cut) -> Result<(), String> {
    if cut.devices.is_empty() || cut.depths.is_empty() {
        return Err("every form needs devices and depths".to_owned());
    }
    let modelled = cut.devices.iter().find(|device| !device.is_file());
    let other = cut.arms.iter().find(|arm| arm.way.word != QUEUE);
    if let (Some(device), Some(arm)) = (modelled, other) {
        return Err(format!("{} goes to a file alone (leave {device} out)", arm.way.word));
    }
    Ok(())
}

fn plan(planner: &mut Planner<'_>, workload: &Workload) -> Result<Vec<Job>, PlanError> {
    let shape: Shape = checked(workload);
    if planner.ground.is_none() {
        data_file(planner)?;
    }
    let mut jobs = Vec::new();
    for device in &planner.cut.devices {
        for &depth in &planner.cut.depths {
            let job = planner.job(workload, |arm| cells(planner, shape, (device, depth), arm));
            jobs.push(Job {
                name: format!("{}/{}/{device}/{depth}", planner.part.name, workload.name),
                title: format!("{}, depth {depth}, {device}", workload.name),
                place: Some((device.clone(), depth)),
                ..job
            });
        }
    }
    Ok(jobs)
}

/// Finds the file that requests go to, or what is read in its place.
fn data_file(planner: &mut Planner<'_>) -> Result<(), PlanError> {
    planner.ground = Some("without touching the disk".to_owned());
    if !planner.cut.devices.iter().any(RequestDevice::is_file) {
        return Ok(());
    }
    let Some(target) = planner.wish.target else {
        let Some(file) = planner.file else {
            let what = "the device `file` needs a [file] with its bytes for each form";
            return Err(PlanError::Refused(format!("{}: {what}", planner.part.name)));
        };
        let bytes = length(planner, file.of(planner.wish.form))?;
        planner.data_bytes = Some(bytes);
        planner.ground = Some(format!("on a file of {} MiB", bytes / MIB));
        return Ok(());
    };
    let shapes: Vec<(&Workload, Shape)> =
        planner.cut.workloads.iter().map(|one| (one, checked(one))).collect();
    let largest = shapes.iter().map(|(_, shape)| shape.block.0).max().unwrap_or(0);
    target.holds(largest as u32).map_err(|why| PlanError::target(&why))?;
    let writes = shapes.iter().find(|(_, shape)| shape.operation == Operation::Write);
    if let Some((workload, _)) = writes {
        let what = format!("{} writes, and {target} is only read", workload.name);
        return Err(PlanError::target(&what));
    }
    planner.ground = Some(format!("reading {target}"));
    planner.target = Some(target.clone());
    Ok(())
}

/// Returns the length of the laid-out file.
fn length(planner: &mut Planner<'_>, bytes: u64) -> Result<u64, PlanError> {
    let whole = bytes.next_multiple_of(LENGTH_STEP_BYTES);
    let wanted = scaled(whole, LENGTH_STEP_BYTES, planner.scale());
    let fits = planner.fitting(LENGTH_STEP_BYTES)? * LENGTH_STEP_BYTES;
    if fits < wanted {
        planner.note_space("a smaller file", [fits, wanted], "it");
    }
    Ok(wanted.min(fits))
}

/// Returns the cells of an arm if it can be run at this depth: a batch larger than the depth would
/// never come together.
fn cells(
    planner: &Planner<'_>,
    shape: Shape,
    (device, depth): (&RequestDevice, u32),
    arm: &Arm,
) -> Option<[Cell; 2]> {
    // fio takes what there is.
    let is_fio = arm.way.word == FIO;
    let batch = arm.batch.map(|batch| if is_fio { batch.min(depth) } else { batch });
    let at_this_depth = arm.depths.is_empty() || arm.depths.contains(&depth);
    if !at_this_depth || batch.is_some_and(|batch| batch > depth) {
        return None;
    }
    let block_bytes = shape.block.0 as u32;
    let file_bytes = file_bytes(planner, device, block_bytes);
    assert!(file_bytes >= block_bytes.into(), "no block in {file_bytes} bytes");
    let spec = RequestSpec {
        device: device.clone(),
        depth,
        block_bytes,
        pattern: shape.pattern,
        operation: shape.operation,
        knobs: planner.settings(arm),
        fixed_files: if device.is_file() { arm.fixed_files } else { Switch::Off },
        batch,
        file_bytes,
        seconds: planner.seconds(),
        seed: 0,
        from: arm.from,
    };
    let target = planner.target.as_ref().map(|target| target.path().to_owned());
    let way = RequestWay::by_name(arm.way.word).expect("each arm of requests has a way");
    let cell = cell(RequestCell { poll: arm.poll, target, ..RequestCell::of(way, spec) });
    Some([cell.clone(), cell])
}

/// Returns the bytes that offsets are drawn from.
fn file_bytes(planner: &Planner<'_>, device: &RequestDevice, block_bytes: u32) -> u64 {
    if !device.is_file() {
        return DEVICE_BYTES;
    }
    match &planner.target {
        Some(target) => target.bytes() / u64::from(block_bytes) * u64::from(block_bytes),
        None => planner.data_bytes.unwrap_or(DEVICE_BYTES),
    }
}

fn work(cell: &Cell) -> Result<Work, String> {
    let RequestCell { spec, target, .. } = read(&cell.shape)?;
    let is_file = spec.device.is_file();
    Ok(Work {
        writes_for_a_time: is_file && spec.operation == Operation::Write,
        seconds: Some(spec.seconds),
        ground: Ground::Shared,
        on_disk: is_file,
        outside: target,
        uses_ring: matches!(cell.arm.as_str(), QUEUE | "uring" | "library"),
        ..Work::default()
    })
}

fn run(cell: &Cell) -> Result<CellReport, CellError> {
    let mut requests: RequestCell = read(&cell.shape).map_err(CellError::invalid)?;
    let way = RequestWay::by_name(&cell.arm)
        .ok_or_else(|| CellError::invalid(format!("{}: no arm of requests", cell.arm)))?;
    requests.spec.seed = cell.seed;
    let directory = cell.directory.clone();
    let total = load::request::run(&RequestCell { way, directory, ..requests })?;
    Ok(CellReport { total, jobs: Vec::new() })
}

/// Compares adaptive batching with submitting requests one by one, and with the best of the
/// kernel's paths.
fn sentence(reader: Reader<'_>) -> Option<String> {
    let job = reader.job;
    let (adaptive, single) = ("adaptive", "never");
    if !reader.arms().contains(&adaptive) {
        return usual(reader);
    }
    let depth = job.depth.map(|depth| format!("at depth {depth}, ")).unwrap_or_default();
    let calls = |arm: &str| reader.mean(arm, "doorbells_per_io");
    let rate = |base: &str| {
        let compared = reader.compared("iops", Against { arm: adaptive, base })?;
        Some(reader.shown(compared))
    };
    let own = rate(single)?;
    let kernel = job.base.as_deref().filter(|base| base.starts_with("kernel-"));
    let kernel =
        kernel.and_then(|base| Some((format!("the best kernel path ({base})"), rate(base)?)));
    let mut said = match &own {
        Some(own) => format!("batching gives {own} the IOPS of single submission"),
        None => "batching shows no difference from single submission".to_owned(),
    };
    if let Some((path, other)) = kernel {
        said += &match (own, other) {
            (Some(_), Some(other)) => format!(" and {other} those of {path}"),
            (Some(_), None) => format!(" and {NO_DIFFERENCE}{path}"),
            (None, Some(other)) => format!(" and gives {other} the IOPS of {path}"),
            (None, None) => format!(" or from {path}"),
        };
    }
    let saved = match (calls(adaptive), calls(single)) {
        (Some(batched), Some(single)) if (single - batched).abs() >= 0.005 => {
            let [batched, single] = [batched, single].map(ratio);
            format!("; it makes {batched} system calls per I/O instead of {single}")
        }
        _ => String::new(),
    };
    Some(format!("{depth}{said}{saved}."))
}
