//! From counts to metrics. Metrics that are not defined for a cell are left out.
//!
//! An *I/O* is one operation of the caller in every figure. Rates are over the time until the last
//! job of that direction had ended, its final sync included. Figures of the process and of the
//! engine cover the probe too: where a figure is per I/O of the engine, the probe's I/Os are among
//! them.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use forebay_block::limits::BATCH_REQUESTS;
use forebay_uring::{Extents, Geometry};
use serde::{Deserialize, Serialize};

use super::arms::{self, DIRECT_DEPTH};
use super::conduct::{Conducted, EngineReport};
use super::driver::Tally;
use super::lane::LaneCounters;
use super::layout::{FileKind, JobPlan};
use super::pace::Kept;
use super::sequence::{Kind, repeats_offsets};
use super::usage::Usage;
use super::work::JobOutcome;
use crate::arm::Arm;
use crate::batching;
use crate::cell::{CellResult, CellSpec};
use crate::detail::{Detail, Flow, Latency};
use crate::job::{Caching, IoEngine, YesNo};
use crate::metric::{put, put_latencies, put_ratio};

type Metrics = BTreeMap<String, f64>;

/// Result of a cell, with a row for each job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CellReport {
    pub total: CellResult,
    /// In the order of the workload.
    pub jobs: Vec<JobRow>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct JobRow {
    pub name: String,
    /// Figures that are defined for one job alone.
    pub metrics: BTreeMap<String, f64>,
}

/// Returns everything that is defined for this cell.
pub(crate) fn report(spec: &CellSpec, plans: &[JobPlan], conducted: &Conducted) -> CellReport {
    let Conducted { jobs, usage, engine, probe, .. } = conducted;
    assert_eq!(plans.len(), jobs.len());
    let (mut metrics, [read, write]) = throughput(jobs);
    let operations = jobs.iter().map(JobOutcome::operations).sum();
    let bytes = |kind: usize| jobs.iter().map(|job| job.tallies[kind].bytes).sum::<u64>();
    let written = bytes(Kind::Write as usize);
    let bytes = written + bytes(Kind::Read as usize);
    add_usage(&mut metrics, *usage, operations, bytes);
    if spec.arm != Arm::Null {
        memory(&mut metrics, conducted);
        layout(&mut metrics, plans);
        let probed = probe.as_ref().map_or(0, |probe| probe.operations);
        if let Some(probe) = probe.as_ref().filter(|_| probed > 0) {
            for (name, quantile) in [("sync_probe_p50_us", 0.5), ("sync_probe_p99_us", 0.99)] {
                let micros = probe.latencies.value_at_quantile(quantile) as f64 / 1000.0;
                put(&mut metrics, name, micros);
            }
        }
        let (counters, of_operations, device) = match engine {
            Some(engine) => {
                of_engine(&mut metrics, engine);
                let (before, after) = (&engine.before, &engine.after);
                let counters = LaneCounters::from(after).since(before.into());
                let device = after.written_bytes - before.written_bytes;
                (counters, operations + probed, Some(device))
            }
            None => {
                let counters = jobs.iter().map(|job| job.counters);
                let counters = counters.fold(LaneCounters::default(), LaneCounters::plus);
                (counters, operations, usage.written_bytes)
            }
        };
        counters.put(&mut metrics, of_operations);
        // A device writes what it is asked; the kernel counts a write again that had to wait for a
        // tag.
        if let Some(device) = device.filter(|&bytes| bytes > 0 && written > 0 && !spec.arm.is_raw())
        {
            put_ratio(&mut metrics, "written_per_asked", device, written + probed * 4096);
        }
    }
    let rows = plans.iter().zip(jobs).map(|(plan, outcome)| JobRow {
        name: plan.job.name.clone(),
        metrics: throughput(std::slice::from_ref(outcome)).0,
    });
    let notes = notes(spec, plans, conducted);
    let holds = engine.as_ref().map(|engine| engine.holds.clone()).unwrap_or_default();
    let detail = Some(Box::new(Detail { read, write, usage: usage.process, holds }));
    CellReport { jobs: rows.collect(), total: CellResult { metrics, notes, detail } }
}

/// Returns the figures that are defined for some of the jobs, and how both directions of these
/// went.
fn throughput(jobs: &[JobOutcome]) -> (Metrics, [Option<Flow>; 2]) {
    let mut metrics = Metrics::new();
    let jobs: Vec<_> = jobs.iter().filter(|job| job.is_counted()).collect();
    let Some(began) = jobs.iter().map(|job| job.began).min() else {
        return (metrics, [None, None]);
    };
    let runtime = |jobs: &[&JobOutcome]| {
        let ended = jobs.iter().map(|job| job.ended).max().unwrap_or(began);
        (ended - began).max(Duration::from_nanos(1))
    };
    let elapsed = runtime(&jobs).as_secs_f64();
    put(&mut metrics, "elapsed_s", elapsed);
    let operations: u64 = jobs.iter().map(|job| job.operations()).sum();
    put(&mut metrics, "iops", operations as f64 / elapsed);
    let flows = [("read", Kind::Read), ("write", Kind::Write)].map(|(name, kind)| {
        let of = |job: &JobOutcome| job.tallies[kind as usize].operations;
        let jobs: Vec<_> = jobs.iter().copied().filter(|job| of(job) > 0).collect();
        let mut sum = Tally::new();
        jobs.iter().for_each(|job| sum.add(&job.tallies[kind as usize]));
        (!jobs.is_empty()).then(|| add_flow(&mut metrics, name, &sum, runtime(&jobs)))
    });
    if let Some(kept) = kept(jobs.into_iter()) {
        let late = kept.late.value_at_quantile(0.99) as f64 / 1000.0;
        put(&mut metrics, "start_late_p99_us", late);
        put(&mut metrics, "backlog_peak", kept.backlog_peak as f64);
        put(&mut metrics, "never_started", kept.never_started as f64);
    }
    (metrics, flows)
}

/// Adds the figures of one direction, and returns how it went.
pub(crate) fn add_flow(
    metrics: &mut Metrics,
    name: &str,
    tally: &Tally,
    runtime: Duration,
) -> Flow {
    let (operations, bytes, seconds) = (tally.operations, tally.bytes, runtime.as_secs_f64());
    put(metrics, &format!("{name}_iops"), operations as f64 / seconds);
    put(metrics, &format!("{name}_bytes_per_s"), bytes as f64 / seconds);
    if !tally.latencies.is_empty() {
        put_latencies(metrics, &format!("{name}_"), &tally.latencies);
    }
    let latency = Latency::of(&tally.latencies);
    Flow { operations, bytes, runtime_ns: runtime.as_nanos() as u64, latency }
}

/// Returns how all jobs with a rate to keep kept it.
fn kept<'a>(jobs: impl Iterator<Item = &'a JobOutcome>) -> Option<Kept> {
    jobs.filter_map(|job| job.kept.clone()).reduce(|mut sum, one| {
        sum.add(&one);
        sum
    })
}

/// Adds what operations that moved these bytes cost the process and the system.
pub(crate) fn add_usage(metrics: &mut Metrics, usage: Usage, operations: u64, bytes: u64) {
    let own = Some(usage.process.context_switches);
    for (of, switches) in [("", own), ("system_", usage.system_context_switches)] {
        let Some(switches) = switches else { continue };
        put(metrics, &format!("{of}context_switches"), switches as f64);
        put_ratio(metrics, &format!("{of}context_switches_per_io"), switches, operations);
        // For arms whose I/Os differ in size.
        let per_gib = switches as f64 * (1u64 << 30) as f64 / bytes as f64;
        put(metrics, &format!("{of}context_switches_per_gib"), per_gib);
    }
    put_ratio(metrics, "cpu_us_per_io", usage.process.cpu_us(), operations);
    if let Some(batched) = usage.batched {
        batching::add(batched, metrics);
    }
}

fn memory(metrics: &mut Metrics, conducted: &Conducted) {
    put(metrics, "peak_memory_bytes", conducted.peak.memory_bytes as f64);
    // The engine knows its own peak exactly; the sampler also sees what it left dirty in the page
    // cache.
    let of_engine = conducted.engine.as_ref().map(|engine| engine.after.peak_dirty_bytes);
    if let Some(dirty) = conducted.peak.dirty_bytes.max(of_engine) {
        put(metrics, "peak_dirty_bytes", dirty as f64);
    }
}

/// Adds the extents of the files the cell wrote into new space; a file written over keeps the
/// layout it had.
fn layout(metrics: &mut Metrics, plans: &[JobPlan]) {
    let plans = plans.iter().filter(|plan| plan.writes() && plan.job.overwrite == YesNo::No);
    let mut files: Vec<_> = plans.flat_map(|plan| &plan.files).collect();
    files.retain(|file| file.kind == FileKind::Regular);
    files.sort_by(|one, other| one.path.cmp(&other.path));
    files.dedup_by(|one, other| one.path == other.path);
    let (mut sum, mut groups) = (Extents::default(), Some([0; 3]));
    for file in &files {
        // Not every file system can tell.
        let Ok(opened) = File::open(&file.path) else { return };
        let Ok(extents) = Extents::of(opened.as_fd()) else { return };
        sum.count += extents.count;
        sum.bytes += extents.bytes;
        let with = |sum: [u64; 3], one: [u64; 3]| std::array::from_fn(|at| sum[at] + one[at]);
        groups = groups.and_then(|sum| Some(with(sum, groups_of(&opened)?)));
    }
    put_ratio(metrics, "extents_per_file", sum.count, files.len() as u64);
    put_ratio(metrics, "mean_extent_bytes", sum.bytes, sum.count);
    if let Some([of_files, bytes, at_home]) = groups {
        put_ratio(metrics, "groups_per_file", of_files, files.len() as u64);
        put_ratio(metrics, "home_group_share", at_home, bytes);
    }
}

/// Returns the number of allocation groups that the extents of a file lie in, its bytes there, and
/// those in the group of its inode; `None` if its file system has no groups.
fn groups_of(file: &File) -> Option<[u64; 3]> {
    let geometry = Geometry::of(file.as_fd())?;
    let by_group = Extents::by_group(file.as_fd(), &geometry).ok()?;
    let home = file.metadata().ok().and_then(|data| geometry.group_of_inode(data.ino()));
    let at_home = home.and_then(|home| by_group.get(&home)).copied().unwrap_or(0);
    Some([by_group.len() as u64, by_group.values().sum(), at_home])
}

fn of_engine(metrics: &mut Metrics, engine: &EngineReport) {
    let (before, after) = (&engine.before, &engine.after);
    let moved = after.written_bytes + after.read_bytes - before.written_bytes - before.read_bytes;
    put_ratio(metrics, "run_bytes", moved, after.bios - before.bios);
    let delay = engine.completion.strip_prefix("delay=").and_then(|delay| delay.parse().ok());
    if let Some(microseconds) = delay {
        put(metrics, "hold_asked_us", microseconds);
    }
    let holds = after.completion_holds - before.completion_holds;
    put(metrics, "completion_holds", holds as f64);
    put_ratio(metrics, "hold_mean_us", after.completion_held_us - before.completion_held_us, holds);
    put(metrics, "hold_p99_us", after.hold_p99_us as f64);
    // Without such writes the engine reports none.
    for (name, microseconds) in [
        ("written_latency_p99_us", after.written_latency_p99_us),
        ("writeback_latency_p99_us", after.writeback_latency_p99_us),
    ] {
        if microseconds > 0 {
            put(metrics, name, microseconds as f64);
        }
    }
}

/// Returns the remarks for a reader of the figures.
fn notes(spec: &CellSpec, plans: &[JobPlan], conducted: &Conducted) -> Vec<String> {
    let mut notes = Vec::new();
    let deepest = plans.iter().map(|plan| arms::depth_of(&plan.job)).max().unwrap_or(1);
    let any = |is_it: &dyn Fn(&JobPlan) -> bool| plans.iter().any(is_it);
    if let Some(engine) = &conducted.engine {
        notes.push(format!("engine: {}", engine.description));
        let copied = engine.after.bounced - engine.before.bounced;
        if copied > 0 {
            notes.push(format!("{copied} direct operations were not aligned and copied"));
        }
        let most = BATCH_REQUESTS as u32;
        if any(&|JobPlan { job, .. }| {
            job.caching == Caching::Direct && job.submit_batch.is_some_and(|batch| batch > most)
        }) {
            notes.push(format!("iodepth_batch_submit: at most {most} go out together"));
        }
        if deepest > 1 {
            let polled = "polled by the job's own thread";
            notes.push(format!("iodepth={deepest}: {deepest} futures, {polled}"));
        }
    }
    let single = |plan: &JobPlan| plan.job.io_engine == IoEngine::Calls && plan.job.depth > 1;
    match spec.arm {
        Arm::KernelDirectPrealloc if deepest < DIRECT_DEPTH => {
            notes.push(format!("runs at depth {DIRECT_DEPTH} per job, not {deepest}"));
        }
        Arm::KernelDirectPrealloc
        | Arm::KernelDirect1m
        | Arm::RawDevice
        | Arm::RawDevice1m
        | Arm::Null => {}
        arm if !arm.is_forebay() && any(&single) => {
            notes.push("iodepth has no effect: this ioengine makes single calls".into());
        }
        _ => {}
    }
    if any(&|plan| repeats_offsets(&plan.job)) {
        notes.push(
            "mixed block sizes: random offsets may repeat, and some blocks are never used".into(),
        );
    }
    if any(&|plan| plan.job.ramp_us > 0) {
        notes.push("ramp_time: operations that started before its end are not counted".into());
    }
    let pairs = plans.iter().zip(&conducted.jobs);
    notes.extend(pairs.filter(|(_, outcome)| !outcome.is_counted()).map(|(plan, _)| {
        format!("{}: ended before its ramp_time did; nothing of it is counted", plan.job.name)
    }));
    if let Some(Kept { backlog_peak, never_started, .. }) = kept(conducted.jobs.iter()) {
        let never = match never_started {
            0 => String::new(),
            _ => format!("; {never_started} never were, and count as having waited until the end"),
        };
        notes.push(format!(
            "a rate to keep: latencies count from when an operation was due; at most \
             {backlog_peak} were due and not started{never}"
        ));
    }
    notes
}
