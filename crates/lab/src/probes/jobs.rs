//! Jobs that run for a time over their file again and again, in the words of a fio job file. The
//! clock stops after the final sync: what an arm holds back it has to pay for before it is over.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;

use super::workload::{self, ReadWrite, arm, bounded, on_files};
use crate::arm::Arm;
use crate::bytes::Bytes;
use crate::cell::{Cell, CellSpec, DEVICE_TO_COME, SyncProbe};
use crate::job::{
    Amount, BlockSize, Blocks, Caching, Create, Devices, IoEngine, Job as OneJob, MOST_DEPTH,
    Workload as Jobs, YesNo,
};
use crate::planning::{Job, LENGTH_STEP_BYTES, MIB, PlanError, Planner, Settings, joined};
use crate::probe::{Probe, Steps, checked, read};
use crate::reader::{Reader, arm_name};
use crate::schema::Against;
use crate::sentence::{NO_DIFFERENCE, memory, usual};
use crate::suite::model::{Cut, Workload};
use crate::tuning::{Knob, Tuning};

pub(super) const PROBE: Probe = Probe {
    needs,
    sentence,
    figures: &[
        "peak_memory_bytes",
        "write_latency_p99_us",
        "write_latency_p999_us",
        "system_context_switches_per_gib",
        "read_bytes_per_s",
        "read_latency_p99_us",
        "read_latency_p999_us",
        "sync_probe_p50_us",
        "sync_probe_p99_us",
        "write_bytes_per_s",
        "system_context_switches",
        "system_context_switches_per_io",
        "context_switches",
        "context_switches_per_io",
        "cpu_us_per_io",
        "bios_per_run",
        "run_bytes",
        "completion_holds",
        "hold_mean_us",
        "hold_p99_us",
        "written_latency_p99_us",
        "writeback_latency_p99_us",
    ],
    ..Probe::new("jobs", on_files, Steps { check, plan, work: workload::work, run: workload::run })
};

/// Completion at once, as Forebay has it by default.
const AT_ONCE: &str = "forebay-immediate";

/// Completions that are held for a fixed time.
const HELD: &str = "forebay-delay";

/// Bytes of a write of the arm that writes the same bytes in large pieces.
const LARGE_BYTES: u32 = 1 << 20;

/// How many of those it keeps in flight.
const LARGE_DEPTH: u32 = 4;

/// The files of jobs are as many times their memory at least.
const FILE_IN_MEMORIES: u64 = 4;

/// Down to this share of its sizes a job keeps its memory; below, that shrinks too.
const MEMORY_KEPT_TO: f64 = 0.02;

/// Seconds of a cell that is not counted, at most.
const WARM_UP_SECONDS: f64 = 1.0;

/// Work and resources of every thread of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Shape {
    rw: ReadWrite,
    block: Bytes,
    /// Operations each thread keeps in flight.
    iodepth: u32,
    ioengine: ShapeEngine,
    /// Threads, each with a file of its own.
    numjobs: u32,
    /// Whether pages are to go when they are written or read.
    uncached: bool,
    #[serde(default)]
    on: On,
    /// Memory for data of a bounded arm.
    cache: Bytes,
    /// Bytes that may be dirty, where the job says so.
    #[serde(default)]
    dirty: Option<Bytes>,
    /// Bytes dirty from which on they are written, where the job says so.
    #[serde(default)]
    background: Option<Bytes>,
    /// Whether another writes a little and syncs it, again and again.
    #[serde(default)]
    beside: SyncProbe,
}

/// How a thread calls: fio's `ioengine`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ShapeEngine {
    Pvsync2,
    #[serde(rename = "io_uring")]
    IoUring,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum On {
    #[default]
    File,
    Device,
}

/// How long a cell is.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Extent {
    file_bytes: u64,
    seconds: f64,
}

fn check(shape: &Value) -> Result<(), String> {
    let shape: Shape = read(shape)?;
    shape.block.block()?;
    bounded("iodepth", shape.iodepth, MOST_DEPTH)?;
    bounded("numjobs", shape.numjobs, 1024)?;
    let on_device = shape.on == On::Device;
    let refused = if shape.with_memory(1.0) != shape {
        "memory out of range (in steps of 1m, cache 8m or more, dirty 4m to 7/8 of it)"
    } else if on_device && shape.numjobs > 1 {
        "on a device there is one job (give numjobs = 1)"
    } else if on_device && shape.beside != SyncProbe::Off {
        "on a device there is no file to sync beside it (leave out beside)"
    } else if shape.ioengine == ShapeEngine::Pvsync2 && shape.iodepth > 1 {
        "single calls have a depth of 1 (take ioengine = \"io_uring\")"
    } else {
        return Ok(());
    };
    Err(refused.to_owned())
}

fn needs(cut: &Cut) -> Result<(), String> {
    if cut.file_bytes.is_none_or(|bytes| bytes == 0 || bytes % LENGTH_STEP_BYTES != 0) {
        return Err("every form needs file_bytes, such as \"2g\", in steps of 16m".to_owned());
    }
    Ok(())
}

fn plan(planner: &mut Planner<'_>, workload: &Workload) -> Result<Vec<Job>, PlanError> {
    let first = planner.ground.is_none();
    let extent = extent(planner, first)?;
    if first {
        planner.ground = Some(format!(
            "{:.1} s each, on files of {} MiB",
            extent.seconds,
            extent.file_bytes / MIB
        ));
    }
    assert!(extent.file_bytes > 0 && extent.seconds > 0.0, "{extent:?} is no work");
    let shape = checked::<Shape>(workload).with_memory(memory_share(planner.scale()));
    let job_knobs = shape.knobs();
    let mut job = planner.job(workload, |own| {
        let way = arm(own.way.word);
        let settings = if own.way.is_engine() { job_knobs.clone() } else { Settings::new() };
        let cell = |extent: Extent| {
            let spec = CellSpec {
                budget_bytes: shape.budget_bytes(way),
                sync_probe: shape.beside,
                ..CellSpec::of(way, shape.workload(way, extent))
            };
            let cell = Cell::new(PROBE.name, own.way.word, &spec);
            Cell { settings: settings.clone(), seconds: extent.seconds, ..cell }
        };
        let short = Extent { seconds: extent.seconds.min(WARM_UP_SECONDS), ..extent };
        shape.suits(way).then(|| [extent, short].map(cell))
    });
    let (mut names, mut texts) = (Vec::new(), Vec::new());
    for one in &mut job.arms {
        let limits = shape.limits(arm(&one.cell.arm));
        if !limits.is_empty() {
            names.push(one.name.clone());
            texts = limits.iter().map(ToString::to_string).collect();
        }
        one.needs = joined(&one.needs, &limits);
    }
    if !names.is_empty() {
        let (job, names, limits) = (&job.name, names.join(", "), texts.join(" and "));
        planner.notes.push(format!("{job}: {names} with {limits}"));
    }
    Ok(vec![job])
}

/// Returns the length of the files and cells of all jobs of a part: at least a multiple of the
/// memory, so that the cache does not hold it; all together at most a quarter of the free space.
fn extent(planner: &mut Planner<'_>, noted: bool) -> Result<Extent, PlanError> {
    let share = memory_share(planner.scale());
    let shapes = planner.cut.workloads.iter().map(|one| checked::<Shape>(one).with_memory(share));
    let shapes: Vec<Shape> = shapes.collect();
    let threads = shapes.iter().map(|shape| u64::from(shape.numjobs)).max().unwrap_or(1);
    let device = u64::from(shapes.iter().any(|shape| shape.on == On::Device));
    let memory_bytes = shapes.iter().map(|shape| shape.cache.0).max().unwrap_or(0);
    let whole = planner.cut.file_bytes.expect("a form of jobs says how long their files are");
    let scaled = (whole as f64 * planner.scale()) as u64;
    let least = memory_bytes * FILE_IN_MEMORIES;
    let wanted = scaled.max(least).min(whole).next_multiple_of(LENGTH_STEP_BYTES);
    let fits = planner.fitting((threads + device) * LENGTH_STEP_BYTES)? * LENGTH_STEP_BYTES;
    if fits < wanted && noted {
        planner.note_space("smaller files", [fits, wanted], "a cell");
    }
    Ok(Extent { file_bytes: wanted.min(fits), seconds: planner.seconds() })
}

/// Returns the share of its memory that a job has at a scale.
fn memory_share(scale: f64) -> f64 {
    (scale / MEMORY_KEPT_TO).min(1.0)
}

impl Shape {
    /// Returns the jobs of one cell.
    fn workload(&self, arm: Arm, extent: Extent) -> Jobs {
        let shape = if arm == Arm::KernelDirect1m { self.in_large_pieces() } else { *self };
        let block = BlockSize::Fixed(shape.block.0 as u32);
        let access = shape.rw.access();
        let io_engine = match shape.ioengine {
            ShapeEngine::Pvsync2 => IoEngine::Calls,
            ShapeEngine::IoUring => IoEngine::Ring,
        };
        let job = |number: u32| OneJob {
            name: format!("job.{number}"),
            number,
            access,
            blocks: Blocks { read: block.clone(), write: block.clone() },
            files: vec![match shape.on {
                On::File => PathBuf::from(format!("job-{number}")),
                On::Device => PathBuf::from(DEVICE_TO_COME),
            }],
            size: Some(Amount::Bytes(extent.file_bytes)),
            create: if access.direction.reads() { Create::Before } else { Create::OnOpen },
            declared: (arm == Arm::ForebayDeclared).into(),
            depth: shape.iodepth,
            io_engine,
            caching: if shape.uncached { Caching::Uncached } else { Caching::Buffered },
            runtime_us: Some((extent.seconds * 1e6).round() as u64),
            time_based: YesNo::Yes,
            ..OneJob::default()
        };
        let devices = if shape.on == On::Device { Devices::Write } else { Devices::Refuse };
        Jobs { jobs: (0..shape.numjobs).map(job).collect(), devices }
    }

    /// Returns the same bytes in large pieces, front to back.
    fn in_large_pieces(&self) -> Self {
        Self {
            rw: ReadWrite::Write,
            block: Bytes(LARGE_BYTES.into()),
            iodepth: LARGE_DEPTH,
            ioengine: ShapeEngine::IoUring,
            ..*self
        }
    }

    /// Returns the memory for data of an arm: Forebay's cache, or what a bounded arm of the kernel
    /// may have dirty.
    fn budget_bytes(&self, arm: Arm) -> u64 {
        if arm.is_forebay() { self.cache.0 } else { self.dirty.unwrap_or(self.cache).0 }
    }

    /// Returns the engine's knobs that are the job's own.
    fn knobs(&self) -> Settings {
        let own = [("dirty_bytes", self.dirty), ("background_bytes", self.background)];
        let knob =
            |(name, bytes): (&str, Option<Bytes>)| Some((name.to_owned(), bytes?.0.to_string()));
        own.into_iter().filter_map(knob).collect()
    }

    /// Returns the settings of the kernel that bound the dirty pages of an arm as the job says.
    /// Forebay has limits of its own and the bounded arms write back by themselves; nothing else
    /// bounds these.
    fn limits(&self, arm: Arm) -> Vec<Tuning> {
        let unbounded = ["kernel-buffered", "kernel-uncached"];
        let is_unbounded = unbounded.iter().any(|begin| arm.name().starts_with(begin));
        let limits =
            [("vm.dirty_bytes", self.dirty), ("vm.dirty_background_bytes", self.background)];
        let tuning = |(name, bytes): (&str, Option<Bytes>)| {
            Some(Tuning { knob: Knob::Sysctl(name.to_owned()), value: bytes?.0.to_string() })
        };
        limits.into_iter().filter(|_| is_unbounded).filter_map(tuning).collect()
    }

    /// Returns the shape with a share of its memory, in steps of a mebibyte; a cache keeps the
    /// least size of an engine.
    fn with_memory(mut self, share: f64) -> Self {
        const LEAST_CACHE: u64 = 8 << 20;
        let of = |bytes: u64| ((bytes >> 20) as f64 * share).round().max(1.0) as u64 * (1 << 20);
        self.cache = Bytes(of(self.cache.0).max(LEAST_CACHE));
        // Of the cache an eighth is never dirty, and an engine wants 4 MiB that may be.
        let most = self.cache.0 / 8 * 7;
        self.dirty = self.dirty.map(|bytes| Bytes(of(bytes.0).clamp(4 << 20, most)));
        let most = self.dirty.map_or(most, |dirty| dirty.0);
        self.background = self.background.map(|bytes| Bytes(of(bytes.0).min(most)));
        self
    }

    /// Returns whether an arm can do the work: space cannot be allocated ahead on a device.
    fn suits(&self, arm: Arm) -> bool {
        let ahead = arm == Arm::ForebayDeclared || arm.name().ends_with("-prealloc");
        self.on == On::File || !ahead
    }
}

/// Compares completion at once with a delay and with the best bounded arm of the kernel.
fn sentence(reader: Reader<'_>) -> Option<String> {
    let job = reader.job;
    if !reader.arms().contains(&AT_ONCE) {
        return usual(reader);
    }
    let against = |base: &str, called: &str| {
        let found = |metric: &str| reader.compared(metric, Against { arm: AT_ONCE, base });
        let bandwidth = found("write_bytes_per_s")?;
        let latency = found("write_latency_p99_us").and_then(|found| reader.shown(found));
        let differs: Vec<String> = reader
            .shown(bandwidth)
            .map(|times| format!("{times} the bandwidth"))
            .into_iter()
            .chain(latency.map(|times| format!("{times} the p99 latency")))
            .collect();
        Some(match differs.as_slice() {
            [] => format!("{NO_DIFFERENCE}{called}"),
            differs => format!("gives {} of {called}", differs.join(" and ")),
        })
    };
    let kernel = job.base.as_deref().map(|base| {
        let memory = memory(reader, AT_ONCE, base).map(|memory| format!(" ({memory})"));
        let memory = memory.unwrap_or_default();
        (base, format!("the best bounded kernel arm, {}{memory}", arm_name(base)))
    });
    let said = [
        against(HELD, "holding them for 1 ms"),
        kernel.and_then(|(base, called)| against(base, &called)),
    ];
    let said: Vec<String> = said.into_iter().flatten().collect();
    // The name of the job stands before its title.
    let title = job.title.strip_prefix(&job.name).unwrap_or(&job.title);
    let title = title.trim_start_matches([':', ' ']);
    (!said.is_empty())
        .then(|| format!("{title}: ending completions at once {}.", said.join(". It ")))
}

#[cfg(test)]
mod tests;
