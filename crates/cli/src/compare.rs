//! `forebay compare`: tell what will be done, do it, show what came out. Leaves nothing but the
//! result.
//!
//! All that will be run is planned before anything is: a suite whose last part cannot be planned
//! costs no run of its first. Then part after part runs, and what came out is one document.

mod left_out;
mod resume;
mod settings;
mod tunings;
mod writes;

use std::cell::RefCell;
use std::io;
use std::mem;
use std::path::Path;
use std::time::{Duration, Instant};

use forebay_lab::compare::judge::{Judging, judge};
use forebay_lab::compare::record::{PartOfRecord, Record};
use forebay_lab::compare::{CompareError, Outcome, Setting, Until, Writes, compare as run_rounds};
use forebay_lab::file_system::{FileSystemError, Spec};
use forebay_lab::manifest::{self, Manifest};
use forebay_lab::plan::{Job, Plan, PlanError, Room, Wish, fresh_seed};
use forebay_lab::progress::Progress;
use forebay_lab::report;
use forebay_lab::schema::{self, Document};
use forebay_lab::scratch::{Scratch, Stop, leftovers};
use forebay_lab::suite::{Form, Part, Suite};

use crate::build;
use crate::failure::Failure;
use crate::meaning::{CompareRequest, TargetAsked, check_size};
use crate::output::{print, say, write_json};
use crate::wiring;
use settings::Settings;

/// Rounds at most where they go on until intervals are narrow, and the user says no other number.
const ROUNDS_UNTIL: u32 = 20;

/// The longest wait for quiet between two cells.
pub(crate) const QUIET_WITHIN: Duration = Duration::from_secs(10);

/// What an interrupted comparison says of its files.
const NOTHING_LEFT: &str = "nothing was left behind";

/// A part and what will be run of it.
struct Planned<'a> {
    suite: &'a Suite,
    part: &'a Part,
    plan: Plan,
    form: Form,
    /// The share of the form's sizes and times.
    scale: Option<f64>,
}

impl Planned<'_> {
    fn judging(&self) -> Judging<'_> {
        let Part { base, metric, again, .. } = self.part;
        Judging { base, metric, again, also: &self.plan.also }
    }
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
    let mut manifest = gather(request);
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
    if let Some(repeated) = &request.repeated {
        let size = |planned: &Planned<'_>| planned.plan.size.map(|size| size.data_bytes());
        let sizes = planned.iter().map(|planned| (planned.part.name.as_str(), size(planned)));
        sizes
            .into_iter()
            .try_for_each(|(part, size)| check_size(&repeated.document, part, size))?;
    }
    if let Some(limit) = request.time_limit {
        share_out(&mut planned, limit);
    }
    if let (TargetAsked::Read(target), true) =
        (&request.target, planned.iter().all(|planned| planned.plan.target.is_none()))
    {
        return Err(Failure::usage(format!(
            "--target {target}: nothing that is run reads a file that is there (`plug` does, and job files that read; \
             to write over a device give --allow-write-device)"
        )));
    }
    tunings::check_before(request, planned.iter().map(|planned| &planned.plan))?;
    let writes = writes::check(request, planned.iter().map(|planned| &planned.plan))?;
    let record = resume::open(request, &planned, &manifest)?;
    planned
        .iter()
        .flat_map(|planned| planned.plan.announcement())
        .chain(writes)
        .for_each(|line| say(&line));

    let document = measure(request, &settings, planned, manifest, (&stop, record))?;
    // The file before the table: a reader of the table may have gone.
    let written = request.json.as_deref().map_or(Ok(()), |path| write_json(&document, path));
    let outputs = request.outputs.write(&document);
    print(&report::comparison(&document, request.format))?;
    written.and(outputs)?;
    left_out::failure(&document.manifest)
}

/// What is known of where it will run, and of what is asked.
fn gather(request: &CompareRequest) -> Manifest {
    let mut manifest = Manifest::gather(&request.directory);
    build::tell(&mut manifest);
    manifest.job_files.clone_from(&request.job_files);
    if let Some(repeated) = &request.repeated {
        // So that this one can be done again too.
        manifest.command_line.clone_from(&repeated.document.manifest.command_line);
    }
    if request.tells_host_name {
        manifest.host_name = Some(manifest::host_name());
    }
    manifest
}

/// Every part of every suite that is in the form.
fn plan<'a>(
    request: &'a CompareRequest,
    settings: &Settings,
    (free_bytes, room): (u64, Room),
) -> Result<Vec<Planned<'a>>, Failure> {
    let recorded =
        request.resume.as_deref().map(Record::seed_of).transpose().map_err(Failure::usage)?;
    let seed = request.seed.or(recorded.flatten()).unwrap_or_else(fresh_seed);
    let target = match &request.target {
        TargetAsked::Read(target) => Some(target),
        TargetAsked::None | TargetAsked::Write(_) => None,
    };
    let rounds = request.rounds.or(request.until.map(|_| ROUNDS_UNTIL));
    let mut planned = Vec::new();
    for (suite, part) in
        request.suites.iter().flat_map(|suite| suite.parts.iter().map(move |part| (suite, part)))
    {
        let wish = Wish {
            suite: &suite.name,
            form: request.form,
            scale: request.scale,
            rounds,
            time_limit: None,
            seed,
            free_bytes,
            room,
            settings: &settings.queue,
            engine_settings: &settings.engine,
            target,
        };
        let plan = Plan::new(suite, part, &wish).map_err(|error| match error {
            PlanError::NoSpace { .. } => Failure::failed(error),
            PlanError::TooManyRounds { .. }
            | PlanError::Rounds { .. }
            | PlanError::Target(_)
            | PlanError::Held { .. } => Failure::usage(error),
        })?;
        let form = request.form;
        let scale = request.scale.or(part.cut(form).map(|cut| cut.scale));
        planned.extend(plan.map(|plan| Planned { suite, part, plan, form, scale }));
    }
    if planned.is_empty() {
        let form = request.form;
        return Err(Failure::usage(format!(
            "the suite has nothing in its {form} form (add [part.{form}])"
        )));
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
    (stop, record): (&Stop, Option<RefCell<Record>>),
) -> Result<Document, Failure> {
    let scratch = Scratch::new_in(&request.directory)
        .map_err(|error| not_writable(&request.directory, &error))?;
    // What has ended is kept where rounds are.
    let left_behind =
        if record.is_some() { "what had ended goes on with --resume" } else { NOTHING_LEFT };
    if let Some(spec) = &request.scratch {
        say(&format!("Making {spec} ..."));
        let (storage, made) =
            scratch.make_file_system(spec, stop).map_err(|error| match error {
                FileSystemError::Refused(_) => Failure::usage(error),
                FileSystemError::Failed { .. } => Failure::failed(error),
                FileSystemError::Interrupted => Failure::Interrupted(left_behind),
            })?;
        tunings::check_made(
            Path::new(&storage.device),
            planned.iter().map(|planned| &planned.plan),
        )?;
        manifest.storage = storage;
        manifest.file_system = Some(made);
        manifest.ground = format!("made for this: {spec}");
    }
    let writes = Writes::up_to(request.max_writes);
    writes.add(request.scratch.as_ref().map_or(0, Spec::image_bytes));
    let names: Vec<&str> = request.suites.iter().map(|suite| suite.name.as_str()).collect();
    let mut document = Document::new(manifest, names.join("+"), Vec::new(), Vec::new());
    document.manifest.settings.clone_from(&request.settings);
    let parts = if planned.len() == 1 { Parts::One } else { Parts::Several };
    let mut fruitless = None;
    // Time that a part did not need goes to those after it.
    let began = Instant::now();
    let mut granted = Duration::ZERO;
    for (part, mut planned) in planned.into_iter().enumerate() {
        if let Some(limit) = &mut planned.plan.time_limit {
            granted += *limit;
            *limit = granted.saturating_sub(began.elapsed());
        }
        let plan = &planned.plan;
        let setting = Setting {
            plan,
            settings: &settings.engine,
            scratch: &scratch,
            target: match &request.target {
                TargetAsked::Write(device) => Some(device),
                TargetAsked::None | TargetAsked::Read(_) => None,
            },
            quiet_within: QUIET_WITHIN,
            stop,
            metric: planned.part.metric,
            processors: &request.processors,
            writes: &writes,
            record: record.as_ref().map(|record| PartOfRecord { record, part }),
            until: request.until.map(|width| Until { width, judging: planned.judging() }),
        };
        let mut progress = Progress::new(plan);
        let mut runner = wiring::runner(stop, &request.processors, &request.watching);
        let outcome = run_rounds(&setting, &mut runner, &mut progress);
        progress.finish();
        match outcome {
            Ok(outcome) => add(&mut document, &planned, &outcome, parts),
            Err(CompareError::Interrupted) => {
                return Err(Failure::Interrupted(left_behind));
            }
            Err(error @ (CompareError::Scratch { .. } | CompareError::Record(_))) => {
                return Err(Failure::failed(error));
            }
            // The other parts may still have something to say.
            Err(error) => {
                left_out::tell_fruitless(&mut document.manifest, &planned.part.name, &error);
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
    let Planned { suite, part, plan, .. } = planned;
    let mut judged = judge(&outcome.measured, planned.judging(), plan.seed);
    document.rows.extend(mem::take(&mut judged.rows));
    document.comparisons.extend(mem::take(&mut judged.comparisons));
    document.differences.extend(mem::take(&mut judged.differences));
    let cells =
        outcome.measured.iter().flat_map(|one| schema::cells(&one.job, &one.arm, &one.rounds));
    document.cells.extend(cells);

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
    left_out::tell(manifest, &outcome.left_out);
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
        form: Some(planned.form),
        scale: planned.scale,
        data_bytes: plan.data_bytes,
        orders: outcome.orders.clone(),
        crossed: plan.crossed.clone(),
        contrasts: plan.contrasts.clone(),
        jobs: plan.jobs.iter().map(job).collect(),
        cells: outcome.states.clone(),
    });
}

/// Removes what a killed run has left, and says so.
pub(crate) fn remove_leftovers(directory: &Path) {
    for leftover in leftovers(directory) {
        let path = leftover.path.display().to_string();
        let owner = leftover.owner.map(|owner| format!(" (process {owner})")).unwrap_or_default();
        if let Err(why) = tunings::put_back(&leftover.path) {
            // What it says is still to be done.
            say(&why);
            continue;
        }
        match leftover.remove() {
            Ok(()) => say(&format!("Removed {path}, left by a run{owner} that was killed.")),
            Err(error) => {
                say(&format!("{path} was left by a killed run{owner}: {error} (rm -r it)"))
            }
        }
    }
}

pub(crate) fn not_writable(directory: &Path, error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::ResourceBusy {
        let directory = directory.display();
        return Failure::failed(format!(
            "{directory}: another comparison runs there, and they would measure each other (wait for its end)"
        ));
    }
    let remedy = "use --dir with a directory you may write to";
    Failure::failed(format!("{}: {error} ({remedy})", directory.display()))
}
