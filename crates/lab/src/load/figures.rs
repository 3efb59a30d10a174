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

use forebay_block::Moment;
use forebay_block::limits::BATCH_REQUESTS;
use forebay_uring::{Extents, Geometry};
use serde::{Deserialize, Serialize};

use super::arms::{self, DIRECT_DEPTH};
use super::conduct::{Conducted, EngineReport};
use super::lane::LaneCounters;
use super::layout::{FileKind, JobPlan};
use super::pace::Kept;
use super::sequence::repeats_offsets;
use super::tally::Tally;
use super::usage::Usage;
use super::work::JobOutcome;
use crate::arm::Arm;
use crate::batching;
use crate::cell::{CellResult, CellSpec};
use crate::detail::{Detail, Flow, Latency};
use crate::job::{Caching, IoEngine, YesNo};
use crate::metric::{put, put_latencies};

type Metrics = BTreeMap<String, f64>;

/// Result of a cell, with a row for each job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CellReport {
    /// For the cell as a whole.
    pub total: CellResult,
    /// For each job, in the order of the workload: the figures that are defined for one job alone.
    pub jobs: Vec<JobRow>,
}

/// One job's figures.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct JobRow {
    /// The job's name.
    pub name: String,
    /// By metric name.
    pub metrics: BTreeMap<String, f64>,
}

pub(crate) fn report(spec: &CellSpec, plans: &[JobPlan], conducted: &Conducted) -> CellReport {
    assert_eq!(plans.len(), conducted.jobs.len());
    let (mut metrics, directions) = throughput(&conducted.jobs);
    let jobs = &conducted.jobs;
    let operations: u64 = jobs.iter().map(|job| job.reads.operations + job.writes.operations).sum();
    let written: u64 = jobs.iter().map(|job| job.writes.bytes).sum();
    let bytes: u64 = jobs.iter().map(|job| job.reads.bytes + job.writes.bytes).sum();
    add_usage(&mut metrics, conducted.usage, operations, bytes);
    if spec.arm != Arm::Null {
        memory(&mut metrics, conducted);
        layout(&mut metrics, plans);
        probe(&mut metrics, conducted);
        match &conducted.engine {
            Some(engine) => of_engine(&mut metrics, engine, conducted, operations, written),
            None => of_kernel(&mut metrics, conducted, operations, written),
        }
        if spec.arm.is_raw() {
            // A device writes what it is asked; the kernel counts a write again that had to wait
            // for a tag.
            metrics.remove("written_per_asked");
        }
    }
    let rows = plans.iter().zip(jobs).map(|(plan, outcome)| JobRow {
        name: plan.job.name.clone(),
        metrics: throughput(std::slice::from_ref(outcome)).0,
    });
    let notes = notes(spec, plans, conducted);
    let detail = Some(Box::new(detail(conducted, directions)));
    CellReport { jobs: rows.collect(), total: CellResult { metrics, notes, detail } }
}

/// Returns how it went, all jobs together.
fn detail(conducted: &Conducted, [read, write]: [Option<Direction>; 2]) -> Detail {
    Detail {
        read: read.map(Direction::flow),
        write: write.map(Direction::flow),
        usage: conducted.usage.process,
        holds: conducted.engine.as_ref().map(|engine| engine.holds.clone()).unwrap_or_default(),
    }
}

/// One direction of some jobs, from when the first of them was counted.
struct Direction {
    sum: Tally,
    runtime: Duration,
}

impl Direction {
    /// Sums one direction; `None` if nothing went that way.
    fn of(jobs: &[&JobOutcome], began: Moment, tally: fn(&JobOutcome) -> &Tally) -> Option<Self> {
        let jobs = jobs.iter().filter(|job| tally(job).operations > 0);
        let mut sum = Tally::new();
        jobs.clone().for_each(|job| sum.add(tally(job)));
        (sum.operations > 0).then(|| Self { sum, runtime: until(jobs, began) })
    }

    fn put(&self, metrics: &mut Metrics, name: &str) {
        let seconds = self.runtime.as_secs_f64();
        put(metrics, &format!("{name}_iops"), self.sum.operations as f64 / seconds);
        put(metrics, &format!("{name}_bytes_per_s"), self.sum.bytes as f64 / seconds);
        put_latencies(metrics, &format!("{name}_"), &self.sum.latencies);
    }

    fn flow(self) -> Flow {
        Flow {
            operations: self.sum.operations,
            bytes: self.sum.bytes,
            runtime_ns: self.runtime.as_nanos() as u64,
            latency: Latency::of(&self.sum.latencies),
        }
    }
}

fn until<'a>(jobs: impl Iterator<Item = &'a &'a JobOutcome>, began: Moment) -> Duration {
    let ended = jobs.map(|job| job.ended).max().unwrap_or(began);
    (ended - began).max(Duration::from_nanos(1))
}

/// Adds a ratio, unless there is nothing to divide by.
fn put_ratio(metrics: &mut Metrics, name: &str, part: u64, whole: u64) {
    if whole > 0 {
        put(metrics, name, part as f64 / whole as f64);
    }
}

/// Returns the figures that are defined for some of the jobs, and both directions of these.
fn throughput(jobs: &[JobOutcome]) -> (Metrics, [Option<Direction>; 2]) {
    let mut metrics = Metrics::new();
    let jobs: Vec<_> = jobs.iter().filter(|job| job.is_counted()).collect();
    let Some(began) = jobs.iter().map(|job| job.began).min() else {
        return (metrics, [None, None]);
    };
    let elapsed = until(jobs.iter(), began).as_secs_f64();
    put(&mut metrics, "elapsed_s", elapsed);
    let operations: u64 = jobs.iter().map(|job| job.reads.operations + job.writes.operations).sum();
    put(&mut metrics, "iops", operations as f64 / elapsed);
    let read = Direction::of(&jobs, began, |job| &job.reads);
    let write = Direction::of(&jobs, began, |job| &job.writes);
    for (name, direction) in [("read", &read), ("write", &write)] {
        direction.iter().for_each(|direction| direction.put(&mut metrics, name));
    }
    schedule(&mut metrics, jobs.into_iter());
    (metrics, [read, write])
}

/// Adds how jobs with a rate to keep kept it.
fn schedule<'a>(metrics: &mut Metrics, jobs: impl Iterator<Item = &'a JobOutcome>) {
    let Some(kept) = kept(jobs) else { return };
    put(metrics, "start_late_p99_us", kept.late.value_at_quantile(0.99) as f64 / 1000.0);
    put(metrics, "backlog_peak", kept.backlog_peak as f64);
    put(metrics, "never_started", kept.never_started as f64);
}

fn kept<'a>(jobs: impl Iterator<Item = &'a JobOutcome>) -> Option<Kept> {
    jobs.filter_map(|job| job.kept.clone()).reduce(|mut sum, one| {
        sum.add(&one);
        sum
    })
}

/// Adds what operations that moved these bytes cost the process and the system.
pub(crate) fn add_usage(metrics: &mut Metrics, usage: Usage, operations: u64, bytes: u64) {
    let own = usage.process.context_switches;
    put(metrics, "context_switches", own as f64);
    put_ratio(metrics, "context_switches_per_io", own, operations);
    per_gib(metrics, "context_switches_per_gib", own, bytes);
    if let Some(switches) = usage.system_context_switches {
        put(metrics, "system_context_switches", switches as f64);
        put_ratio(metrics, "system_context_switches_per_io", switches, operations);
        per_gib(metrics, "system_context_switches_per_gib", switches, bytes);
    }
    put_ratio(metrics, "cpu_us_per_io", usage.process.cpu_us(), operations);
    if let Some(batched) = usage.batched {
        batching::add(batched, metrics);
    }
}

/// Adds a count per GiB, for arms whose I/Os differ in size.
fn per_gib(metrics: &mut Metrics, name: &str, count: u64, bytes: u64) {
    if bytes > 0 {
        put(metrics, name, count as f64 * (1u64 << 30) as f64 / bytes as f64);
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
    let (mut sum, mut groups) = (Extents::default(), Some(Groups::default()));
    for file in &files {
        // Not every file system can tell.
        let Ok(opened) = File::open(&file.path) else { return };
        let Ok(extents) = Extents::of(opened.as_fd()) else { return };
        sum.count += extents.count;
        sum.bytes += extents.bytes;
        groups = groups.and_then(|groups| groups.with(&opened));
    }
    put_ratio(metrics, "extents_per_file", sum.count, files.len() as u64);
    put_ratio(metrics, "mean_extent_bytes", sum.bytes, sum.count);
    if let Some(groups) = groups {
        put_ratio(metrics, "groups_per_file", groups.of_files, files.len() as u64);
        put_ratio(metrics, "home_group_share", groups.at_home, groups.bytes);
    }
}

/// The allocation groups that the extents of files lie in.
#[derive(Default)]
struct Groups {
    /// The sum of the numbers of groups of each file.
    of_files: u64,
    bytes: u64,
    /// Bytes in the group of the inode of their file.
    at_home: u64,
}

impl Groups {
    /// Adds a file; `None` if its file system has no groups.
    fn with(self, file: &File) -> Option<Self> {
        let geometry = Geometry::of(file.as_fd())?;
        let by_group = Extents::by_group(file.as_fd(), &geometry).ok()?;
        let home = file.metadata().ok().and_then(|data| geometry.group_of_inode(data.ino()));
        Some(Self {
            of_files: self.of_files + by_group.len() as u64,
            bytes: self.bytes + by_group.values().sum::<u64>(),
            at_home: self.at_home + home.and_then(|home| by_group.get(&home)).copied().unwrap_or(0),
        })
    }
}

fn probe(metrics: &mut Metrics, conducted: &Conducted) {
    let Some(probe) = conducted.probe.as_ref().filter(|probe| probe.operations > 0) else { return };
    for (name, quantile) in [("sync_probe_p50_us", 0.5), ("sync_probe_p99_us", 0.99)] {
        put(metrics, name, probe.latencies.value_at_quantile(quantile) as f64 / 1000.0);
    }
}

fn of_engine(
    metrics: &mut Metrics,
    engine: &EngineReport,
    conducted: &Conducted,
    operations: u64,
    written: u64,
) {
    let (before, after) = (&engine.before, &engine.after);
    let probed = conducted.probe.as_ref().map_or(0, |probe| probe.operations);
    let doorbells = after.doorbells - before.doorbells;
    let requests = after.requests - before.requests;
    let bios = after.bios - before.bios;
    if doorbells > 0 {
        put_ratio(metrics, "doorbells_per_io", doorbells, operations + probed);
        put_ratio(metrics, "requests_per_doorbell", requests, doorbells);
    }
    let runs = after.completion_runs - before.completion_runs;
    put_ratio(metrics, "bios_per_run", after.completed_bios - before.completed_bios, runs);
    put_ratio(metrics, "merged_share", after.merged_bios - before.merged_bios, bios);
    let moved = after.written_bytes + after.read_bytes - before.written_bytes - before.read_bytes;
    put_ratio(metrics, "run_bytes", moved, bios);
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
    let device = after.written_bytes - before.written_bytes;
    if device > 0 && written > 0 {
        put_ratio(metrics, "written_per_asked", device, written + probed * 4096);
    }
}

fn of_kernel(metrics: &mut Metrics, conducted: &Conducted, operations: u64, written: u64) {
    let mut counters = LaneCounters::default();
    conducted.jobs.iter().for_each(|job| counters += job.counters);
    if counters.doorbells > 0 {
        put_ratio(metrics, "doorbells_per_io", counters.doorbells, operations);
        put_ratio(metrics, "requests_per_doorbell", counters.requests, counters.doorbells);
        put_ratio(metrics, "bios_per_run", counters.completions, counters.runs);
    }
    let probed = conducted.probe.as_ref().map_or(0, |probe| probe.operations);
    if let Some(device) = conducted.usage.written_bytes.filter(|&bytes| bytes > 0 && written > 0) {
        put_ratio(metrics, "written_per_asked", device, written + probed * 4096);
    }
}

/// Returns how far a job that had a rate to keep was behind it.
fn behind(kept: &Kept) -> String {
    let Kept { backlog_peak, never_started, .. } = kept;
    let mut note = format!(
        "a rate to keep: latencies count from when an operation was due; at most {backlog_peak} were due and not \
         started"
    );
    if *never_started > 0 {
        note.push_str(&format!(
            "; {never_started} never were, and count as having waited until the end"
        ));
    }
    note
}

/// Returns how many direct operations cost a copy.
fn copied(engine: &EngineReport) -> Option<String> {
    let copied = engine.after.bounced - engine.before.bounced;
    (copied > 0).then(|| format!("{copied} direct operations were not aligned and copied"))
}

fn notes(spec: &CellSpec, plans: &[JobPlan], conducted: &Conducted) -> Vec<String> {
    let mut notes = Vec::new();
    let deepest = plans.iter().map(|plan| arms::depth_of(&plan.job)).max().unwrap_or(1);
    let single = |plan: &JobPlan| plan.job.io_engine == IoEngine::Calls && plan.job.depth > 1;
    match spec.arm {
        arm if arm.is_forebay() => {
            notes.extend(
                conducted.engine.as_ref().map(|engine| format!("engine: {}", engine.description)),
            );
            notes.extend(conducted.engine.as_ref().and_then(copied));
            let mut past = plans.iter().filter(|plan| plan.job.caching == Caching::Direct);
            let most = BATCH_REQUESTS as u32;
            if past.any(|plan| plan.job.submit_batch.is_some_and(|batch| batch > most)) {
                notes.push(format!("iodepth_batch_submit: at most {most} go out together"));
            }
            if deepest > 1 {
                notes.push(format!(
                    "iodepth={deepest}: {deepest} futures, polled by the job's own thread"
                ));
            }
        }
        Arm::KernelDirectPrealloc if deepest < DIRECT_DEPTH => {
            notes.push(format!("runs at depth {DIRECT_DEPTH} per job, not {deepest}"));
        }
        Arm::KernelDirectPrealloc
        | Arm::KernelDirect1m
        | Arm::RawDevice
        | Arm::RawDevice1m
        | Arm::Null => {}
        _ if plans.iter().any(single) => {
            notes.push("iodepth has no effect: this ioengine makes single calls".into());
        }
        _ => {}
    }
    if plans.iter().any(|plan| repeats_offsets(&plan.job)) {
        notes.push(
            "mixed block sizes: random offsets may repeat, and some blocks are never used".into(),
        );
    }
    if plans.iter().any(|plan| plan.job.ramp_us > 0) {
        notes.push("ramp_time: operations that started before its end are not counted".into());
    }
    let pairs = plans.iter().zip(&conducted.jobs);
    notes.extend(pairs.filter(|(_, outcome)| !outcome.is_counted()).map(|(plan, _)| {
        format!("{}: ended before its ramp_time did; nothing of it is counted", plan.job.name)
    }));
    if let Some(kept) = kept(conducted.jobs.iter()) {
        notes.push(behind(&kept));
    }
    notes
}
