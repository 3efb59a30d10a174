//! The threads of a cell: one per job, the sync probe, the memory sampler, and this one, which
//! gives the beat.
//!
//! Each job's thread sets itself up and says so; when all have, the baseline is taken, the engine
//! (if any) made, and everyone is let go at once. A job that fails stops the others. The second
//! snapshot is taken as soon as the last job has had its final sync; only then do lanes close,
//! outside the clock but not unheard.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use forebay::{Engine, Stats, inside};
use forebay_block::Moment;
use forebay_uring::clock;
use rustix::thread::CpuSet;

use super::arms::{self, Way};
use super::driver::Tally;
use super::error::{CellError, Context};
use super::kernel::{Opening, Space};
use super::lane::Lane;
use super::layout::JobPlan;
use super::library;
use super::memory::{self, Peak};
use super::probe;
use super::start::{Runner, StartLine};
use super::usage::Usage;
use super::work::{JobOutcome, LOOK_FOR_STOP, drive};
use crate::arm::Arm;
use crate::cell::CellSpec;
use crate::detail::Holds;
use crate::processors;

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

/// Runs jobs, each on its way, and the sync probe.
pub(crate) fn conduct(
    spec: &CellSpec,
    directory: &Path,
    plans: &[JobPlan],
    ways: &[Way],
    probe: Option<&JobPlan>,
) -> Result<Conducted, CellError> {
    assert_eq!(plans.len(), ways.len());
    let (stop, quiet) = (&AtomicBool::new(false), &AtomicBool::new(false));
    thread::scope(|scope| {
        let mut line = StartLine::new();
        let (running, all_ended) = channel::<Infallible>();
        let mut jobs = Vec::new();
        for (plan, &way) in plans.iter().zip(ways) {
            let (runner, running) = (line.runner(), running.clone());
            jobs.push(scope.spawn(move || {
                let _running = running;
                let ended = run(plan, way, runner, stop, |lane, at| drive(plan, lane, at, stop));
                ended.inspect_err(|_| stop.store(true, Ordering::Relaxed))
            }));
        }
        drop(running);
        let prober = probe.map(|plan| {
            let (runner, way, how) = (line.runner(), probe_way(ways), spec.sync_probe);
            scope.spawn(move || {
                run(plan, way, runner, quiet, |lane, _| probe::run(plan, lane, how, quiet))
            })
        });
        // If one fails here, all that wait return.
        let open_gates = line.all_ready()?;

        let baseline_bytes = memory::resident_bytes();
        let on_their_ways = ways.iter().copied().zip(plans);
        let all = on_their_ways.chain(probe.map(|plan| (probe_way(ways), plan)));
        let engine = engine_for(spec, all)?;
        let watched = engine.clone();
        let sampler = scope.spawn(move || {
            let files = plans.iter().flat_map(|plan| &plan.files);
            let files: Vec<_> = files.map(|file| file.path.as_path()).collect();
            let engine_dirty = || watched.as_ref().map_or(0, |engine| engine.stats().dirty_bytes);
            memory::sample(directory, &files, baseline_bytes, &engine_dirty, quiet)
        });
        let counts_after = |plan: &JobPlan| plan.job.start_delay_us + plan.job.ramp_us;
        let uncounted = plans.iter().map(counts_after).min().unwrap_or(0);
        let state = |engine: &Arc<Engine>| (engine.stats(), Holds::of(inside::holds(engine)));
        let mut before = Usage::now();
        open_gates(&Go { at: clock::now(), engine: engine.clone() });
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
            let holds = held.since(&held_before);
            let knobs = engine.options().knobs();
            let completion = knobs.into_iter().find(|knob| knob.name == "completion");
            let completion = completion.map(|knob| knob.value).unwrap_or_default();
            EngineReport { before, after, holds, completion, description: engine.describe() }
        });

        quiet.store(true, Ordering::Release);
        sampler.thread().unpark();
        let peak = join(sampler);
        let probed = prober.map(join).transpose();
        let finished: Result<Vec<_>, _> = finished.into_iter().collect();
        let (jobs, lanes): (Vec<_>, Vec<_>) = finished?.into_iter().unzip();
        let (probe, probe_lane) = probed?.unzip();
        // Closing may return an error that no operation reported.
        lanes.into_iter().chain(probe_lane).try_for_each(|lane: Closable| lane.close())?;
        engine.map_or(Ok(()), library::shut_down)?;
        Ok(Conducted { jobs, usage, peak, probe, engine: report })
    })
}

/// Runs a job, or the sync probe, on its thread: sets it up, waits for the start and then for its
/// own time, opens its files and does its work.
fn run<T>(
    plan: &JobPlan,
    way: Way,
    runner: Runner<Go>,
    stop: &AtomicBool,
    work: impl FnOnce(&mut dyn Lane, Moment) -> Result<T, CellError>,
) -> Result<(T, Closable), CellError> {
    let set_up = pin(&plan.job.cpus).and_then(|()| arms::prepare(way, plan));
    let (open, go) = runner.wait(set_up)?;
    let began = go.at + Duration::from_micros(plan.job.start_delay_us);
    while !stop.load(Ordering::Relaxed) && clock::now() < began {
        thread::sleep((began - clock::now()).min(LOOK_FOR_STOP));
    }
    let mut lane = open(plan, go.engine)?;
    let outcome = work(lane.as_mut(), began)?;
    Ok((outcome, lane))
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
        Way::Kernel { opening: Opening { caching, .. }, ring } => {
            let opening = Opening { caching, space: Space::AsItGrows, window_bytes: None };
            Way::Kernel { opening, ring: ring.map(|_| 1) }
        }
        Way::Library { direct, .. } => Way::Library { direct, depth: 1 },
        Way::Null => Way::Null,
    }
}

/// Makes the engine of the cell, if its arm has one. The settings of the cell come after those that
/// its direct jobs need, so that they overrule these.
fn engine_for<'a>(
    spec: &CellSpec,
    jobs: impl Iterator<Item = (Way, &'a JobPlan)>,
) -> Result<Option<Arc<Engine>>, CellError> {
    if !spec.arm.is_forebay() {
        return Ok(None);
    }
    let bytes: u64 = jobs.map(|(way, plan)| arms::pool_bytes(way, &plan.job)).sum();
    let pool = (bytes > 0).then(|| ("buffer_bytes".to_owned(), bytes.to_string()));
    let settings: Vec<_> = pool.into_iter().chain(spec.settings.iter().cloned()).collect();
    let engine = library::build_engine(spec.budget_bytes, &settings, |builder| match spec.arm {
        Arm::ForebaySurvive => library::with_keeper(builder),
        _ => builder,
    })?;
    if let Some(path) = &spec.control {
        let served = engine.serve_control(path);
        served.map_err(|error| CellError::invalid(format!("--control: {error}")))?;
    }
    Ok(Some(Arc::new(engine)))
}

fn join<T>(handle: ScopedJoinHandle<'_, T>) -> T {
    handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
