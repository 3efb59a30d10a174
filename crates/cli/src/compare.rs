//! `forebay compare`: tell what will be done, do it, show what came out. Leaves nothing but the result.

use std::io;
use std::path::Path;
use std::time::Duration;

use forebay_lab::compare::judge::judge;
use forebay_lab::compare::{CompareError, Outcome, Question, Setting, arms, compare as run_rounds};
use forebay_lab::manifest::{ArmLeftOut, Manifest};
use forebay_lab::plan::{Plan, PlanError, Wish};
use forebay_lab::progress::Progress;
use forebay_lab::report;
use forebay_lab::schema::Document;
use forebay_lab::scratch::{Scratch, Stop, leftovers};

use crate::failure::Failure;
use crate::meaning::CompareRequest;
use crate::output::{print, say, write_json};
use crate::wiring;

/// The longest wait for quiet between two cells.
const QUIET_WITHIN: Duration = Duration::from_secs(10);

/// Does a comparison.
pub(crate) fn compare(request: &CompareRequest) -> Result<(), Failure> {
    let stop = Stop::on_signals().map_err(|error| Failure::failed(format!("signals: {error}")))?;
    remove_leftovers(&request.directory);
    let mut manifest = Manifest::gather(&request.directory);
    let plan = plan(request, manifest.storage.free_bytes)?;
    // Its arms are left out where it has none; the kernel's can still be compared.
    manifest.engine = wiring::describe_engine(Some(plan.size.budget_bytes), &request.settings)?
        .unwrap_or_else(|error| format!("no engine: {error}"));
    plan.announcement().iter().for_each(|line| say(line));

    let question = Question::layout(wiring::workload);
    let outcome = measure(request, question, &plan, &stop)?;
    let document = document(manifest, question, &plan, &request.settings, &outcome);
    // The file before the table: a reader of the table may have gone.
    let written = request.json.as_deref().map_or(Ok(()), |path| write_json(&document, path));
    print(&report::comparison(&document, request.format))?;
    written?;
    match outcome.left_out.iter().find(|left_out| left_out.failed) {
        Some(failed) => Err(Failure::failed(format!("{} failed: {}", failed.arm.name(), failed.reason))),
        None => Ok(()),
    }
}

fn plan(request: &CompareRequest, free_bytes: u64) -> Result<Plan, Failure> {
    let wish = Wish {
        form: request.form,
        scale: request.scale,
        rounds: request.rounds,
        time_limit: request.time_limit,
        seed: request.seed,
        free_bytes,
    };
    Plan::new(&wish, arms(request.form)).map_err(|error| match error {
        PlanError::NoSpace { .. } => Failure::failed(error),
        PlanError::TooManyRounds { .. } | PlanError::Rounds { .. } => Failure::usage(error),
    })
}

fn measure(
    request: &CompareRequest,
    question: Question,
    plan: &Plan,
    stop: &Stop,
) -> Result<Outcome, Failure> {
    let scratch =
        Scratch::new_in(&request.directory).map_err(|error| not_writable(&request.directory, &error))?;
    let setting = Setting {
        question,
        plan,
        settings: &request.settings,
        scratch: &scratch,
        quiet_within: QUIET_WITHIN,
        stop,
    };
    let mut progress = Progress::new(plan);
    let outcome = run_rounds(&setting, &mut wiring::runner(stop), &mut progress);
    progress.finish();
    outcome.map_err(|error| match error {
        CompareError::Interrupted => Failure::Interrupted("nothing was left behind"),
        other => Failure::failed(other),
    })
}

/// Everything that came out, as it goes to the file and to the table.
fn document(
    mut manifest: Manifest,
    question: Question,
    plan: &Plan,
    settings: &[(String, String)],
    outcome: &Outcome,
) -> Document {
    manifest.title = question.title.to_owned();
    manifest.seed = format!("{:x}", plan.seed);
    manifest.rounds = u32::try_from(outcome.orders.len()).unwrap_or(u32::MAX);
    let names = |order: &Vec<forebay_lab::arm::Arm>| order.iter().map(|arm| arm.name().to_owned()).collect();
    manifest.orders = outcome.orders.iter().map(names).collect();
    manifest.cell_bytes = Some(plan.size.data_bytes());
    manifest.budget_bytes = Some(plan.size.budget_bytes);
    manifest.settings = settings.to_vec();
    // Which engine ran stands in the heading; a cell in which another one did keeps its note.
    let known = format!(": engine: {}", manifest.engine);
    manifest.notes = outcome.notes.iter().filter(|note| !note.ends_with(&known)).cloned().collect();
    let left_out = outcome.left_out.iter();
    manifest.left_out = left_out
        .map(|left_out| ArmLeftOut {
            arm: left_out.arm.name().to_owned(),
            reason: left_out.reason.clone(),
            failed: left_out.failed,
        })
        .collect();
    let judged = judge(question.job, &outcome.measured, plan.seed);
    Document::new(manifest, question.suite, judged.rows, judged.comparisons)
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
