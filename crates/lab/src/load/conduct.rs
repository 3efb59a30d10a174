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
use std::sync::mpsc::channel;
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Duration;

use forebay::{Engine, Stats};
use forebay_block::Moment;
use forebay_uring::clock;
use rustix::thread::CpuSet;

use super::arms::{self, Opener, Way};
use super::error::{CellError, Context};
use super::kernel::{Opening, Space};
use super::lane::Lane;
use super::layout::JobPlan;
use super::library;
use super::memory::{self, Peak};
use super::probe;
use super::start::{Runner, StartLine};
use super::tally::Tally;
use super::usage::Usage;
use super::work::{JobOutcome, LOOK_FOR_STOP, drive};
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
    pub(crate) probe: Option<Tally>,
    pub(crate) engine: Option<EngineReport>,
}

#[derive(Debug)]
pub(crate) struct EngineReport {
    pub(crate) before: Stats,
    /// When the last final sync had ended.
    pub(crate) after: Stats,
    /// How long completions were held in between.
    pub(crate) holds: Holds,
    /// Value of the knob `completion`.
    pub(crate) completion: String,
    pub(crate) description: String,
}

#[derive(Clone)]
struct Go {
    at: Moment,
    engine: Option<Arc<Engine>>,
}

type Closable = Box<dyn Lane + Send>;

pub(crate) fn conduct(stage: &Stage<'_>) -> Result<Conducted, CellError> {
    assert_eq!(stage.plans.len(), stage.ways.len());
    let stop = AtomicBool::new(false);
    let quiet = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut line = StartLine::new();
        let (running, all_ended) = channel::<Infallible>();
        let mut jobs = Vec::new();
        for (plan, &way) in stage.plans.iter().zip(stage.ways) {
            let (runner, running, stop) = (line.runner(), running.clone(), &stop);
            jobs.push(scope.spawn(move || {
                let _running = running;
                run_job(plan, way, runner, stop)
            }));
        }
        drop(running);
        let prober = stage.probe.map(|plan| {
            let (runner, way, quiet) = (line.runner(), probe_way(stage.ways), &quiet);
            let how = stage.spec.sync_probe;
            scope.spawn(move || run_probe(plan, (way, how), runner, quiet))
        });
        // If one fails here, all that wait return.
        let gates = line.all_ready()?;

        let baseline_bytes = memory::resident_bytes();
        let engine = engine_for(stage)?;
        let sampler = spawn_sampler(scope, stage, baseline_bytes, engine.clone(), &quiet);
        let counts_after = |plan: &JobPlan| plan.job.start_delay_us + plan.job.ramp_us;
        let uncounted = stage.plans.iter().map(counts_after).min().unwrap_or(0);
        let mut before = Usage::now();
        gates.open(&Go { at: clock::now(), engine: engine.clone() });
        let state = |engine: &Arc<Engine>| (engine.stats(), Holds::of(engine.holds()));
        let mut state_before = engine.as_ref().map(state);
        if uncounted > 0 {
            // Returns early once all jobs have ended: no job sends anything.
            let _ = all_ended.recv_timeout(Duration::from_micros(uncounted));
            before = Usage::now();
            state_before = engine.as_ref().map(state);
        }
        let finished: Vec<_> = jobs.into_iter().map(join).collect();
        let usage = Usage::now().since(before);
        let report = engine.as_ref().zip(state_before).map(|(engine, (before, held_before))| {
            let (after, held) = state(engine);
            EngineReport {
                before,
                after,
                holds: held.since(&held_before),
                completion: engine.get("completion").unwrap_or_default(),
                description: engine.describe(),
            }
        });

        quiet.store(true, Ordering::Release);
        sampler.thread().unpark();
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
    runner: Runner<Go>,
    stop: &AtomicBool,
) -> Result<(JobOutcome, Closable), CellError> {
    let (open, go) = runner.wait(set_up(plan, way))?;
    let began = go.at + Duration::from_micros(plan.job.start_delay_us);
    while !stop.load(Ordering::Relaxed) && clock::now() < began {
        thread::sleep((began - clock::now()).min(LOOK_FOR_STOP));
    }
    let outcome = open(plan, go.engine).and_then(|mut lane| {
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
    runner: Runner<Go>,
    quiet: &AtomicBool,
) -> Result<(Tally, Closable), CellError> {
    let (open, go) = runner.wait(set_up(plan, way))?;
    let mut lane = open(plan, go.engine)?;
    let outcome = probe::run(plan, lane.as_mut(), how, quiet)?;
    Ok((outcome, lane))
}

/// Does everything a thread does before the clock starts.
fn set_up(plan: &JobPlan, way: Way) -> Result<Opener, CellError> {
    pin(&plan.job.cpus)?;
    arms::prepare(way, plan)
}

fn pin(cpus: &[u32]) -> Result<(), CellError> {
    if let Some(cpu) = cpus.iter().find(|cpu| **cpu as usize >= CpuSet::MAX_CPU) {
        return Err(CellError::invalid(format!("cpus_allowed: there is no processor {cpu}")));
    }
    processors::pin(cpus).context(format!("could not run on processors {cpus:?}"))
}

/// Returns the way of the first job, without what concerns bulk data alone.
fn probe_way(ways: &[Way]) -> Way {
    match ways[0] {
        Way::Kernel { opening, ring, .. } => {
            let opening = Opening { space: Space::AsItGrows, ..opening };
            Way::Kernel { opening, ring: ring.map(|_| 1), window_bytes: None }
        }
        Way::Library { direct, .. } => Way::Library { direct, depth: 1 },
        Way::Null => Way::Null,
    }
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

/// Returns the settings of the cell, after those that its direct jobs need, so that they overrule
/// these.
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

/// Closes everything. Returns an error that no operation reported.
fn close(
    lanes: impl Iterator<Item = Closable>,
    engine: Option<Arc<Engine>>,
) -> Result<(), CellError> {
    for lane in lanes {
        lane.close()?;
    }
    engine.map_or(Ok(()), library::shut_down)
}
