//! The threads of a cell: one per job, the sync probe, the memory sampler, and this one, which
//! gives the beat.
//!
//! Each job's thread sets itself up and says so; when all have, the baseline is taken, the engine
//! (if any) made, and everyone is let go at once. A job that fails stops the others. The second
//! snapshot is taken as soon as the last job has had its final sync; only then do lanes close,
//! outside the clock but not unheard.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use forebay::{Engine, Stats};
use rustix::thread::CpuSet;

use super::arms::{self, Prepared, Way};
use super::driver::{JobOutcome, LOOK_FOR_STOP, drive};
use super::kernel::Opening;
use super::lane::Lane;
use super::layout::JobPlan;
use super::library;
use super::memory::{self, Peak};
use super::probe::{self, ProbeOutcome};
use super::usage::Usage;
use super::{CellError, Context};
use crate::cell::{CellSpec, SyncProbe};
use crate::detail::Holds;
use crate::processors;

pub(crate) struct Stage<'a> {
    pub(crate) spec: &'a CellSpec,
    pub(crate) directory: &'a Path,
    pub(crate) plans: &'a [JobPlan],
    pub(crate) ways: &'a [Way],
    pub(crate) probe: Option<&'a JobPlan>,
}

#[derive(Debug)]
pub(crate) struct Conducted {
    pub(crate) jobs: Vec<JobOutcome>,
    pub(crate) usage: Usage,
    pub(crate) peak: Peak,
    pub(crate) probe: Option<ProbeOutcome>,
    pub(crate) engine: Option<EngineReport>,
}

#[derive(Debug)]
pub(crate) struct EngineReport {
    pub(crate) before: Stats,
    /// When the last final sync had ended.
    pub(crate) after: Stats,
    /// How long completions were held in between.
    pub(crate) holds: Holds,
    pub(crate) description: String,
}

#[derive(Clone)]
struct Go {
    at: Instant,
    engine: Option<Arc<Engine>>,
}

type Ready = Result<(), CellError>;
type Closable = Box<dyn Lane>;

pub(crate) fn conduct(stage: &Stage<'_>) -> Result<Conducted, CellError> {
    let stop = AtomicBool::new(false);
    let quiet = AtomicBool::new(false);
    thread::scope(|scope| {
        let (ready, all_ready) = channel();
        let (running, all_ended) = channel();
        let mut gates = Vec::new();
        let mut jobs = Vec::new();
        for (plan, &way) in stage.plans.iter().zip(stage.ways) {
            let (gate, go) = channel();
            gates.push(gate);
            let (ready, running): (_, Sender<Infallible>) = (ready.clone(), running.clone());
            let stop = &stop;
            jobs.push(scope.spawn(move || {
                let _running = running;
                run_job(plan, way, ready, &go, stop)
            }));
        }
        drop(running);
        let prober = stage.probe.map(|plan| {
            let (gate, go) = channel();
            gates.push(gate);
            let (way, ready, quiet) = (probe_way(stage.ways), ready.clone(), &quiet);
            let how = stage.spec.sync_probe;
            scope.spawn(move || run_probe(plan, (way, how), ready, &go, quiet))
        });
        drop(ready);
        // If one fails here, returning drops the gates, and all that wait at them return.
        let set_up = all_ready.iter().collect::<Result<Vec<()>, CellError>>()?;
        assert_eq!(set_up.len(), gates.len(), "a thread of the load died before the start");

        let baseline_bytes = memory::resident_bytes();
        let engine = engine_for(stage)?;
        let sampler = spawn_sampler(scope, stage, baseline_bytes, engine.clone(), &quiet);
        let counts_after = |plan: &JobPlan| plan.job.start_delay_us + plan.job.ramp_us;
        let uncounted = stage.plans.iter().map(counts_after).min().unwrap_or(0);
        let mut before = Usage::now();
        let go = Go { at: Instant::now(), engine: engine.clone() };
        for gate in gates {
            // A thread that is gone has said why, and is asked below.
            let _ = gate.send(go.clone());
        }
        drop(go);
        let told = |engine: &Arc<Engine>| (engine.stats(), Holds::of(engine.holds()));
        let mut told_before = engine.as_ref().map(told);
        if uncounted > 0 {
            // Returns early once all jobs have ended: no job sends anything.
            let _ = all_ended.recv_timeout(Duration::from_micros(uncounted));
            before = Usage::now();
            told_before = engine.as_ref().map(told);
        }
        let finished: Vec<_> = jobs.into_iter().map(join).collect();
        let usage = Usage::now().since(before);
        let report = engine.as_ref().zip(told_before).map(|(engine, (before, held_before))| {
            let (after, held) = told(engine);
            EngineReport {
                before,
                after,
                holds: held.since(&held_before),
                description: engine.describe(),
            }
        });

        quiet.store(true, Ordering::Release);
        sampler.thread().unpark();
        if let Some(prober) = &prober {
            prober.thread().unpark();
        }
        let peak = join(sampler);
        let probed = prober.map(join).transpose();
        let finished: Result<Vec<_>, _> = finished.into_iter().collect();
        let (jobs, lanes): (Vec<_>, Vec<_>) = finished?.into_iter().unzip();
        let (probe, probe_lane) = probed?.unzip();
        close(lanes.into_iter().chain(probe_lane), engine)?;
        Ok(Conducted { jobs, usage, peak, probe, engine: report })
    })
}

fn run_job(
    plan: &JobPlan,
    way: Way,
    ready: Sender<Ready>,
    go: &Receiver<Go>,
    stop: &AtomicBool,
) -> Result<(JobOutcome, Closable), CellError> {
    let (prepared, go) = set_up(plan, way, ready, go)?;
    let began = go.at + Duration::from_micros(plan.job.start_delay_us);
    while !stop.load(Ordering::Relaxed) && Instant::now() < began {
        thread::sleep(began.saturating_duration_since(Instant::now()).min(LOOK_FOR_STOP));
    }
    let outcome = prepared.open(plan, go.engine).and_then(|mut lane| {
        let outcome = drive(plan, lane.as_mut(), began, stop)?;
        Ok((outcome, lane))
    });
    if outcome.is_err() {
        stop.store(true, Ordering::Relaxed);
    }
    outcome
}

fn run_probe(
    plan: &JobPlan,
    (way, how): (Way, SyncProbe),
    ready: Sender<Ready>,
    go: &Receiver<Go>,
    quiet: &AtomicBool,
) -> Result<(ProbeOutcome, Closable), CellError> {
    let (prepared, go) = set_up(plan, way, ready, go)?;
    let mut lane = prepared.open(plan, go.engine)?;
    let outcome = probe::run(plan, lane.as_mut(), how, quiet)?;
    Ok((outcome, lane))
}

/// Everything a thread does before the clock starts.
fn set_up(
    plan: &JobPlan,
    way: Way,
    ready: Sender<Ready>,
    go: &Receiver<Go>,
) -> Result<(Prepared, Go), CellError> {
    let aborted = || CellError::Process { what: "another job failed before the start".into() };
    let set_up = pin(&plan.job.cpus).and_then(|()| Prepared::new(way, plan));
    let said = ready.send(set_up.as_ref().map(drop).map_err(Clone::clone));
    // The thread that waits for all must not wait for this one.
    drop(ready);
    let prepared = set_up?;
    said.map_err(|_| aborted())?;
    let go = go.recv().map_err(|_| aborted())?;
    Ok((prepared, go))
}

fn pin(cpus: &[u32]) -> Result<(), CellError> {
    if let Some(cpu) = cpus.iter().find(|cpu| **cpu as usize >= CpuSet::MAX_CPU) {
        return Err(CellError::invalid(format!("cpus_allowed: there is no processor {cpu}")));
    }
    processors::pin(cpus).context(format!("could not run on processors {cpus:?}"))
}

/// The way of the first job, without what concerns bulk data alone.
fn probe_way(ways: &[Way]) -> Way {
    match ways[0] {
        Way::Calls { opening, .. } => Way::Calls { opening: small(opening), window_bytes: None },
        Way::Ring { opening, .. } => {
            Way::Ring { opening: small(opening), depth: 1, window_bytes: None }
        }
        Way::Library { .. } => Way::Library { depth: 1 },
        Way::LibraryDirect { .. } => Way::LibraryDirect { depth: 1 },
        Way::Null => Way::Null,
    }
}

fn small(opening: Opening) -> Opening {
    Opening { space: super::kernel::Space::AsItGrows, ..opening }
}

fn engine_for(stage: &Stage<'_>) -> Result<Option<Arc<Engine>>, CellError> {
    let spec = stage.spec;
    if !spec.arm.is_forebay() {
        return Ok(None);
    }
    let settings = settings(stage);
    let engine = library::build_engine(spec.budget_bytes, &settings, library::keeper(spec.arm))?;
    if let Some(path) = &spec.control {
        engine
            .serve_control(path)
            .map_err(|error| CellError::invalid(format!("--control: {error}")))?;
    }
    Ok(Some(Arc::new(engine)))
}

/// The settings of the cell, after those that its direct jobs need, so that they overrule these.
fn settings(stage: &Stage<'_>) -> Vec<(String, String)> {
    let jobs = stage.ways.iter().copied().zip(stage.plans);
    let probe = stage.probe.map(|plan| (probe_way(stage.ways), plan));
    let bytes: u64 = jobs.chain(probe).map(|(way, plan)| arms::pool_bytes(way, &plan.job)).sum();
    let pool = (bytes > 0).then(|| ("buffer_bytes".to_owned(), bytes.to_string()));
    pool.into_iter().chain(stage.spec.settings.iter().cloned()).collect()
}

fn spawn_sampler<'scope>(
    scope: &'scope Scope<'scope, '_>,
    stage: &Stage<'_>,
    baseline_bytes: u64,
    engine: Option<Arc<Engine>>,
    quiet: &'scope AtomicBool,
) -> ScopedJoinHandle<'scope, Peak> {
    let directory = stage.directory.to_owned();
    let files: Vec<PathBuf> =
        stage.plans.iter().flat_map(|plan| &plan.files).map(|file| file.path.clone()).collect();
    scope.spawn(move || {
        let engine_dirty = || engine.as_ref().map_or(0, |engine| engine.stats().dirty_bytes);
        memory::sample(&directory, &files, baseline_bytes, &engine_dirty, quiet)
    })
}

fn join<T>(handle: ScopedJoinHandle<'_, T>) -> T {
    handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The last chance to hear an error.
fn close(
    lanes: impl Iterator<Item = Closable>,
    engine: Option<Arc<Engine>>,
) -> Result<(), CellError> {
    const PATIENCE: Duration = Duration::from_secs(60);
    for lane in lanes {
        lane.close()?;
    }
    match engine {
        Some(engine) => engine.shutdown(PATIENCE).context("could not shut the engine down"),
        None => Ok(()),
    }
}
