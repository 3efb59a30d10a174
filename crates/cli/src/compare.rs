//! `forebay compare`: announces the comparison, runs it, and shows the results. It leaves nothing
//! but the result.
//!
//! Everything is planned before anything runs: if the last part of a suite cannot be planned, no
//! time is lost on its first part. Then the parts run one after the other, and all results go into
//! one document.

mod left_out;
mod resume;
mod settings;
mod tunings;
mod writes;

use std::cell::RefCell;
use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use forebay_lab::compare::judge::{Judging, judge};
use forebay_lab::compare::record::{PartOfRecord, Record};
use forebay_lab::compare::{CompareError, Outcome, Setting, Writes, compare as run_rounds};
use forebay_lab::disk::Charges;
use forebay_lab::file_system::{FileSystemError, Per, Spec};
use forebay_lab::manifest::Manifest;
use forebay_lab::plan::{Job, Plan, PlanError, Room, Wish, fresh_seed};
use forebay_lab::price;
use forebay_lab::progress::{Progress, Verbosity};
use forebay_lab::report;
use forebay_lab::schema::{self, Document};
use forebay_lab::scratch::{Scratch, Stop, leftovers};
use forebay_lab::suite::{Form, Part, Suite};
use forebay_lab::terminal;
use forebay_lab::text::spoken;

use crate::build;
use crate::failure::Failure;
use crate::kept;
use crate::meaning::{CompareRequest, TargetAsked, check_size};
use crate::output::{print, say, write_json};
use crate::wiring;
use settings::Settings;

/// The longest wait for quiet between two cells.
pub(crate) const QUIET_WITHIN: Duration = Duration::from_secs(10);

/// How long a comparison takes at least for its disk to be measured at the end, too.
const LONG_ENOUGH: Duration = Duration::from_secs(20);

/// Message of an interrupted comparison about its files.
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

/// Whether notes name their part.
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
    if let (Some(spec), Some(shared)) = (&request.scratch, shared)
        && spec.per == Per::Cell
    {
        let part = &shared.part.name;
        return Err(Failure::usage(format!(
            "--scratch: part {part} reads one file in all its runs, but each run would get a file system of its \
             own; add the key keep, or use another suite"
        )));
    }
    if let Some(budget_bytes) = planned.iter().find_map(|planned| planned.plan.budget_bytes()) {
        // If it has none, its arms are left out and the kernel's are still compared.
        manifest.engine = wiring::describe_engine(Some(budget_bytes), &settings.engine, None)?
            .unwrap_or_else(|error| format!("no engine: {error}"));
    }
    if let Some(repeated) = &request.repeated {
        let size = |planned: &Planned<'_>| planned.plan.cell_bytes;
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
            "--target {target}: no part of this suite reads an existing file; use `plug` or a job file that reads, \
             or --allow-write-device to write over a device"
        )));
    }
    tunings::check_before(request, planned.iter().map(|planned| &planned.plan))?;
    let writes = writes::check(request, planned.iter().map(|planned| &planned.plan))?;
    let record = resume::open(request, &planned, &manifest)?;
    announce(request, &planned, writes);

    let document = measure(request, planned, manifest, (&stop, record))?;
    // The files before the table: a reader of the table may have closed the pipe.
    let written = request.json.as_deref().map_or(Ok(()), |path| write_json(&document, path));
    let outputs = request.outputs.write(&document);
    let everything = kept::keep(&document).or_else(|| {
        let path = request.json.as_deref().filter(|_| written.is_ok())?;
        Some(format!("forebay report {}", path.display()))
    });
    let is_brief = request.form == Form::Bare && request.verbosity == Verbosity::Brief;
    let width = terminal::columns(io::stdout()).unwrap_or(terminal::WIDTH);
    print(&match is_brief {
        true => report::summary(&document, everything.as_deref(), width),
        false => report::any(&document),
    })?;
    written.and(outputs)?;
    left_out::failure(&document.manifest)
}

/// Prints what will be done: all of it in one line, or each plan in full.
fn announce(request: &CompareRequest, planned: &[Planned<'_>], writes: Option<String>) {
    if request.verbosity == Verbosity::Verbose {
        let lines = planned.iter().flat_map(|planned| planned.plan.announcement());
        lines.chain(writes).for_each(|line| say(&line));
        return;
    }
    let time: Duration = planned.iter().map(|planned| planned.plan.expected(None)).sum();
    let bytes: u64 = planned.iter().map(|planned| planned.plan.most_written_bytes()).sum();
    let writes = writes.unwrap_or_else(|| writes::at_most(bytes));
    let removed = if writes.is_empty() { "" } else { " All files are removed again." };
    let charges = request.scratch.as_ref().is_some_and(|spec| spec.charges != Charges::NONE);
    let slower = if charges { "; longer on a disk that charges" } else { "" };
    say(format!("About {}{slower}. {writes}{removed}", spoken(time)).trim_end());
}

/// Gathers the known facts about the machine and the request.
fn gather(request: &CompareRequest) -> Manifest {
    let mut manifest = Manifest::gather(&request.directory);
    build::report(&mut manifest);
    manifest.job_files.clone_from(&request.job_files);
    if !request.processors.is_empty() {
        manifest.machine.cpus = request.processors.len() as u32;
    }
    if let Some(repeated) = &request.repeated {
        // So that this one can be done again too.
        manifest.command_line.clone_from(&repeated.document.manifest.command_line);
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
    let directory = request.directory.display();
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
            target,
        };
        let plan = Plan::new(suite, part, &wish).map_err(|error| match error {
            PlanError::NoSpace { .. } => Failure::usage(format!("{directory}: {error}")),
            PlanError::Refused(_) => Failure::usage(error),
        })?;
        let form = request.form;
        let scale = request.scale.or(part.cut(form).map(|cut| cut.scale));
        planned.extend(plan.map(|plan| Planned { suite, part, plan, form, scale }));
    }
    if planned.is_empty() {
        let form = request.form.name();
        return Err(Failure::usage(format!(
            "no part of the suite has a {form} form with arms that can run it; add [part.{form}] \
             to the suite's file, or other arms"
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
    planned: Vec<Planned<'_>>,
    mut manifest: Manifest,
    (stop, record): (&Stop, Option<RefCell<Record>>),
) -> Result<Document, Failure> {
    let scratch = Scratch::new_in(&request.directory)
        .map_err(|error| not_writable(&request.directory, &error))?;
    // The record keeps the finished rounds.
    let left_behind = if record.is_some() {
        "the same command with --resume continues after the last finished round"
    } else {
        NOTHING_LEFT
    };
    let mut made_on = None;
    if let Some(spec) = &request.scratch {
        say(&format!("Making the file system {spec} ..."));
        let (storage, made) =
            scratch.make_file_system(spec, stop).map_err(|error| match error {
                FileSystemError::Refused(_) => Failure::usage(error),
                FileSystemError::Failed(_) => Failure::failed(error),
                FileSystemError::Interrupted => Failure::Interrupted(left_behind),
            })?;
        made_on = Some(PathBuf::from(&storage.device));
        manifest.storage = storage;
        manifest.file_system = Some(made);
        manifest.ground = format!("made for this comparison: {spec}");
    }
    // Without a right to write there, the first cell says so.
    let at = scratch
        .cell_directory("price")
        .map_err(|error| not_writable(&request.directory, &error))?;
    manifest.price = price::measure(&at).ok().map(Into::into);
    let plans: Vec<&Plan> = planned.iter().map(|planned| &planned.plan).collect();
    let claim = tunings::claim(request, &plans, made_on.as_deref(), scratch.path())?;
    let writes = Writes::up_to(request.max_writes);
    writes.add(request.scratch.as_ref().map_or(0, Spec::image_bytes) + price::MOST_BYTES);
    let names: Vec<&str> = request.suites.iter().map(|suite| suite.name.as_str()).collect();
    let mut document = Document::new(manifest, names.join("+"), Vec::new(), Vec::new());
    document.manifest.settings.clone_from(&request.settings);
    let parts = if planned.len() == 1 { Parts::One } else { Parts::Several };
    let all = planned.len();
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
            scratch: &scratch,
            target: match &request.target {
                TargetAsked::Write(device) => Some(device),
                TargetAsked::None | TargetAsked::Read(_) => None,
            },
            quiet_within: QUIET_WITHIN,
            stop,
            metric: planned.part.metric,
            claim: &claim,
            writes: &writes,
            record: record.as_ref().map(|record| PartOfRecord { record, part }),
        };
        let started = Instant::now();
        let mut progress = Progress::new(plan, (part + 1, all), request.verbosity);
        let mut runner = wiring::runner(stop, &request.processors, request.batching);
        let outcome = run_rounds(&setting, &mut runner, &mut progress);
        drop(progress);
        match outcome {
            Ok(outcome) => {
                add(&mut document, &planned, &outcome, parts);
                let seconds = started.elapsed().as_secs_f64();
                document.parts.last_mut().expect("it was added").seconds = Some(seconds);
            }
            Err(CompareError::Interrupted) => {
                return Err(Failure::Interrupted(left_behind));
            }
            Err(CompareError::Directory(error)) => {
                return Err(not_writable(&request.directory, &error));
            }
            Err(error @ CompareError::Record(_)) => return Err(Failure::failed(error)),
            // The other parts may still have something to say.
            Err(error) => {
                left_out::report_fruitless(&mut document.manifest, &planned.part.name, &error);
                fruitless = Some(error);
            }
        }
    }
    if began.elapsed() >= LONG_ENOUGH
        && let Some(before) = document.manifest.price
        && let Ok(at) = scratch.cell_directory("price")
        && let Ok(end) = price::measure(&at)
    {
        document.manifest.notes.extend(before.changed(&end.into()));
    }
    // The steps that aged the file system are known only after a cell used it.
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
    if plan.cell_bytes.is_some() {
        manifest.cell_bytes = plan.cell_bytes;
    }
    if let Some(bytes) = plan.budget_bytes() {
        manifest.budget_bytes.get_or_insert(bytes);
    }
    // The heading names the engine, so equal notes are dropped. A cell with another engine keeps
    // its note.
    let known = format!(": engine: {}", manifest.engine);
    let notes = outcome.notes.iter().filter(|note| !note.ends_with(&known));
    manifest.notes.extend(notes.map(|note| match parts {
        Parts::One => note.clone(),
        Parts::Several => format!("{}: {note}", part.name),
    }));
    left_out::report(manifest, &outcome.left_out);
    let base = |job: &Job| {
        let mut bases = judged.bases.iter();
        bases.find(|(name, _)| *name == job.name).map(|(_, base)| base.clone())
    };
    let job = |job: &Job| schema::PartJob {
        name: job.name.clone(),
        title: job.title.clone(),
        workload: job.workload.clone(),
        probe: job.probe.to_owned(),
        device: job.place.as_ref().map(|(device, _)| device.name().to_owned()),
        depth: job.place.as_ref().map(|(_, depth)| *depth),
        base: base(job),
    };
    let of_suite = |done: &schema::Part| suite.parts.iter().any(|part| part.name == done.name);
    let begins = !document.parts.iter().any(of_suite);
    let question = (begins && suite.title != part.title).then(|| suite.title.clone());
    document.parts.push(schema::Part {
        name: part.name.clone(),
        question,
        title: part.title.clone(),
        metric: part.metric.to_owned(),
        again: part.again.clone(),
        rounds,
        seconds: None,
        cell_bytes: plan.cell_bytes,
        form: Some(planned.form),
        scale: planned.scale,
        data_bytes: plan.data_bytes,
        orders: outcome.orders.clone(),
        jobs: plan.jobs.iter().map(job).collect(),
        published: if planned.form == Form::Published { part.figures.clone() } else { Vec::new() },
        cells: outcome.states.clone(),
    });
}

/// Removes what a killed run has left, and says so.
pub(crate) fn remove_leftovers(directory: &Path) {
    for leftover in leftovers(directory) {
        let path = leftover.path.display().to_string();
        let owner = leftover.owner.map(|owner| format!(" (process {owner})")).unwrap_or_default();
        if let Err(why) = tunings::put_back(&leftover.path) {
            // The error lists the steps that remain.
            say(&why);
            continue;
        }
        match leftover.remove() {
            Ok(()) => say(&format!("Removed {path}, left by a killed run{owner}.")),
            Err(error) => say(&format!(
                "cannot remove {path}, left by a killed run{owner}: {error}; remove it with rm -r"
            )),
        }
    }
}

pub(crate) fn not_writable(directory: &Path, error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::ResourceBusy {
        let directory = directory.display();
        return Failure::failed(format!(
            "{directory}: another comparison is running there and would disturb this one; wait until it ends"
        ));
    }
    let directory = directory.display();
    Failure::failed(format!(
        "cannot write in {directory}: {error}; use --dir with a writable directory"
    ))
}
