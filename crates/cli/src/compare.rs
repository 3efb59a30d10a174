//! `forebay compare`: tell what will be done, do it, show what came out. Leaves nothing but the result.
//!
//! All that will be run is planned before anything is: a suite whose last part cannot be planned costs no run of its
//! first. Then part after part runs, and what came out is one document.

mod settings;

use std::io;
use std::mem;
use std::path::Path;
use std::time::{Duration, Instant};

use forebay_lab::compare::judge::{Judging, judge};
use forebay_lab::compare::{CompareError, Outcome, Setting, compare as run_rounds};
use forebay_lab::file_system::FileSystemError;
use forebay_lab::manifest::{ArmLeftOut, Manifest};
use forebay_lab::plan::{Job, Plan, PlanError, Room, Wish, fresh_seed};
use forebay_lab::progress::Progress;
use forebay_lab::report;
use forebay_lab::schema::{self, Document};
use forebay_lab::scratch::{Scratch, Stop, leftovers};
use forebay_lab::suite::{Part, Suite};

use crate::failure::Failure;
use crate::meaning::CompareRequest;
use crate::output::{print, say, write_json};
use crate::wiring;
use settings::Settings;

/// The longest wait for quiet between two cells.
const QUIET_WITHIN: Duration = Duration::from_secs(10);

/// A part and what will be run of it.
struct Planned<'a> {
    suite: &'a Suite,
    part: &'a Part,
    plan: Plan,
}

/// Whether what is noted has to say of which part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Parts {
    One,
    Several,
}

/// Does a comparison.
pub(crate) fn compare(request: &CompareRequest) -> Result<(), Failure> {
    let stop = Stop::on_signals().map_err(|error| Failure::failed(format!("signals: {error}")))?;
    remove_leftovers(&request.directory);
    let mut manifest = Manifest::gather(&request.directory);
    let settings = Settings::sort(request)?;
    let (free_bytes, room) = match &request.scratch {
        Some(spec) => (spec.free_bytes(), Room::Own),
        None => (manifest.storage.free_bytes, Room::Shared),
    };
    let mut planned = plan(request, &settings, (free_bytes, room))?;
    let shared = planned.iter().find(|planned| planned.plan.data_bytes.is_some());
    if let (Some(_), Some(shared)) = (&request.scratch, shared) {
        let part = &shared.part.name;
        return Err(Failure::usage(format!(
            "--scratch: {part} works on one file for all its cells (leave --scratch out, or take another suite)"
        )));
    }
    if let Some(budget_bytes) = planned.iter().find_map(|planned| planned.plan.budget_bytes()) {
        // Its arms are left out where it has none; the kernel's can still be compared.
        manifest.engine = wiring::describe_engine(Some(budget_bytes), &settings.engine, None)?
            .unwrap_or_else(|error| format!("no engine: {error}"));
    }
    if let Some(limit) = request.time_limit {
        share_out(&mut planned, limit);
    }
    planned.iter().flat_map(|planned| planned.plan.announcement()).for_each(|line| say(&line));

    let document = measure(request, &settings, planned, manifest, &stop)?;
    // The file before the table: a reader of the table may have gone.
    let written = request.json.as_deref().map_or(Ok(()), |path| write_json(&document, path));
    print(&report::comparison(&document, request.format))?;
    written?;
    match document.manifest.left_out.iter().find(|left_out| left_out.failed) {
        Some(failed) => Err(Failure::failed(format!("{} failed: {}", failed.arm, failed.reason))),
        None => Ok(()),
    }
}

/// Every part of every suite that is in the form.
fn plan<'a>(
    request: &'a CompareRequest,
    settings: &Settings,
    (free_bytes, room): (u64, Room),
) -> Result<Vec<Planned<'a>>, Failure> {
    let seed = request.seed.unwrap_or_else(fresh_seed);
    let mut planned = Vec::new();
    for (suite, part) in
        request.suites.iter().flat_map(|suite| suite.parts.iter().map(move |part| (suite, part)))
    {
        let wish = Wish {
            suite: &suite.name,
            form: request.form,
            scale: request.scale,
            rounds: request.rounds,
            time_limit: None,
            seed,
            free_bytes,
            room,
            settings: &settings.queue,
            engine_settings: &settings.engine,
        };
        let plan = Plan::new(suite, part, &wish).map_err(|error| match error {
            PlanError::NoSpace { .. } => Failure::failed(error),
            PlanError::TooManyRounds { .. } | PlanError::Rounds { .. } => Failure::usage(error),
        })?;
        planned.extend(plan.map(|plan| Planned { suite, part, plan }));
    }
    if planned.is_empty() {
        let form = request.form;
        return Err(Failure::usage(format!("the suite has nothing in its {form} form (add [part.{form}])")));
    }
    Ok(planned)
}

/// Each part gets of the time what it should take of the whole.
fn share_out(planned: &mut [Planned<'_>], limit: Duration) {
    let whole: f64 = planned.iter().map(|planned| planned.plan.expected(None).as_secs_f64()).sum();
    for planned in planned {
        let share = planned.plan.expected(None).as_secs_f64() / whole.max(f64::MIN_POSITIVE);
        planned.plan.time_limit = Some(limit.mul_f64(share));
    }
}

fn measure(
    request: &CompareRequest,
    settings: &Settings,
    planned: Vec<Planned<'_>>,
    mut manifest: Manifest,
    stop: &Stop,
) -> Result<Document, Failure> {
    let scratch =
        Scratch::new_in(&request.directory).map_err(|error| not_writable(&request.directory, &error))?;
    if let Some(spec) = &request.scratch {
        say(&format!("Making {spec} ..."));
        let (storage, made) = scratch.make_file_system(spec, stop).map_err(|error| match error {
            FileSystemError::Refused(_) => Failure::usage(error),
            FileSystemError::Failed { .. } => Failure::failed(error),
            FileSystemError::Interrupted => Failure::Interrupted("nothing was left behind"),
        })?;
        manifest.storage = storage;
        manifest.file_system = Some(made);
    }
    let names: Vec<&str> = request.suites.iter().map(|suite| suite.name.as_str()).collect();
    let mut document = Document::new(manifest, names.join("+"), Vec::new(), Vec::new());
    document.manifest.settings.clone_from(&request.settings);
    let parts = if planned.len() == 1 { Parts::One } else { Parts::Several };
    let mut fruitless = None;
    // Time that a part did not need goes to those after it.
    let began = Instant::now();
    let mut granted = Duration::ZERO;
    for mut planned in planned {
        if let Some(limit) = &mut planned.plan.time_limit {
            granted += *limit;
            *limit = granted.saturating_sub(began.elapsed());
        }
        let plan = &planned.plan;
        let setting = Setting {
            plan,
            settings: &settings.engine,
            scratch: &scratch,
            target: request.target.as_deref(),
            quiet_within: QUIET_WITHIN,
            stop,
        };
        let mut progress = Progress::new(plan);
        let outcome = run_rounds(&setting, &mut wiring::runner(stop, &request.watching), &mut progress);
        progress.finish();
        match outcome {
            Ok(outcome) => add(&mut document, &planned, &outcome, parts),
            Err(CompareError::Interrupted) => {
                return Err(Failure::Interrupted("nothing was left behind"));
            }
            Err(error @ CompareError::Scratch { .. }) => return Err(Failure::failed(error)),
            // The other parts may still have something to say.
            Err(error) => {
                document.manifest.notes.push(format!("{}: {error}", planned.part.name));
                fruitless = Some(error);
            }
        }
    }
    // What was done to age it is known once a cell has had it.
    document.manifest.file_system = scratch.made();
    match fruitless {
        Some(error) if document.parts.is_empty() => Err(Failure::failed(error)),
        _ => Ok(document),
    }
}

/// Everything that came out of a part, as it goes to the file and to the table.
fn add(document: &mut Document, planned: &Planned<'_>, outcome: &Outcome, parts: Parts) {
    let Planned { suite, part, plan } = planned;
    let judging = Judging { base: &part.base, metric: part.metric, again: &part.again, also: &plan.also };
    let mut judged = judge(&outcome.measured, judging, plan.seed);
    document.rows.extend(mem::take(&mut judged.rows));
    document.comparisons.extend(mem::take(&mut judged.comparisons));
    document.differences.extend(mem::take(&mut judged.differences));

    let rounds = u32::try_from(outcome.orders.len()).unwrap_or(u32::MAX);
    let manifest = &mut document.manifest;
    if document.parts.is_empty() {
        manifest.title.clone_from(&suite.title);
        manifest.seed = format!("{:x}", plan.seed);
        manifest.rounds = rounds;
        manifest.orders.clone_from(&outcome.orders);
    }
    if let Some(size) = plan.size {
        manifest.cell_bytes = Some(size.data_bytes());
    }
    if let Some(bytes) = plan.budget_bytes() {
        manifest.budget_bytes.get_or_insert(bytes);
    }
    // Which engine ran stands in the heading; a cell in which another one did keeps its note.
    let known = format!(": engine: {}", manifest.engine);
    let notes = outcome.notes.iter().filter(|note| !note.ends_with(&known));
    manifest.notes.extend(notes.map(|note| match parts {
        Parts::One => note.clone(),
        Parts::Several => format!("{}: {note}", part.name),
    }));
    for left_out in &outcome.left_out {
        let (arm, reason) = (left_out.arm.clone(), left_out.reason.clone());
        let left_out = ArmLeftOut { arm, reason, failed: left_out.failed };
        if !manifest.left_out.contains(&left_out) {
            manifest.left_out.push(left_out);
        }
    }
    let base = |job: &Job| {
        let mut bases = judged.bases.iter();
        bases.find(|(name, _)| *name == job.name).map(|(_, base)| base.clone())
    };
    let job = |job: &Job| schema::PartJob {
        name: job.name.clone(),
        title: job.title.clone(),
        workload: job.workload.clone(),
        device: job.place.as_ref().map(|(device, _)| device.name().to_owned()),
        depth: job.place.as_ref().map(|(_, depth)| *depth),
        base: base(job),
        best: judged.best_of(&job.name),
    };
    let of_suite = |done: &schema::Part| suite.parts.iter().any(|part| part.name == done.name);
    let begins = !document.parts.iter().any(of_suite);
    let question = (begins && suite.title != part.title).then(|| suite.title.clone());
    document.parts.push(schema::Part {
        name: part.name.clone(),
        question,
        title: part.title.clone(),
        table: part.table,
        metric: part.metric.to_owned(),
        again: part.again.clone(),
        rounds,
        cell_bytes: plan.size.map(|size| size.data_bytes()),
        orders: outcome.orders.clone(),
        crossed: plan.crossed.clone(),
        contrasts: plan.contrasts.clone(),
        jobs: plan.jobs.iter().map(job).collect(),
    });
}

/// Removes what a killed run has left, and says so.
fn remove_leftovers(directory: &Path) {
    for leftover in leftovers(directory) {
        let path = leftover.path.display().to_string();
        let owner = leftover.owner.map(|owner| format!(" (process {owner})")).unwrap_or_default();
        match leftover.remove() {
            Ok(()) => say(&format!("Removed {path}, left by a run{owner} that was killed.")),
            Err(error) => say(&format!("{path} was left by a killed run{owner}: {error} (rm -r it)")),
        }
    }
}

fn not_writable(directory: &Path, error: &io::Error) -> Failure {
    let remedy = "use --dir with a directory you may write to";
    Failure::failed(format!("{}: {error} ({remedy})", directory.display()))
}
