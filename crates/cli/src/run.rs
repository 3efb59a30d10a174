//! `forebay run`: runs a job file through one engine and shows the result.

use std::fs;

use forebay_lab::load::{CellError, CellReport};
use forebay_lab::manifest::{JobFile, Manifest};
use forebay_lab::report;
use forebay_lab::run::{RunError, RunOptions, notes, rows, run as run_groups};
use forebay_lab::schema::Document;
use forebay_lab::scratch::Stop;

use crate::build;
use crate::failure::Failure;
use crate::meaning::RunRequest;
use crate::output::{Beside, print, write_json};
use crate::wiring;

/// Runs a job file.
pub(crate) fn run(request: &RunRequest) -> Result<(), Failure> {
    let options = &request.options;
    let stop = Stop::on_signals().map_err(|error| Failure::failed(format!("signals: {error}")))?;
    let mut manifest = Manifest::gather(&request.directory);
    build::report(&mut manifest);
    if options.arm.is_forebay() {
        manifest.engine =
            wiring::describe_engine(None, &options.settings, options.control.as_deref())?
                .map_err(Failure::failed)?;
    }
    let report =
        run_groups(options, &mut Beside, &mut wiring::group_runner(&stop, request.batching), &stop);
    if let (Err(_), Some(path)) = (&report, &options.control) {
        wiring::remove_control(path);
    }
    let report = report.map_err(failure)?;
    let document = document(manifest, options, &report);
    // The file before the table: a reader of the table may have gone.
    let written = request.json.as_deref().map_or(Ok(()), |path| write_json(&document, path));
    print(&report::run(&document))?;
    written
}

/// Everything that came out, as it goes to the file and to the table.
fn document(mut manifest: Manifest, options: &RunOptions, groups: &[CellReport]) -> Document {
    let arm = options.arm;
    let name = options.job_file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    manifest.title = format!("{name} on {}", arm.name());
    // The run read the file a moment ago. If it is gone since, that is not an error of the run.
    if let Ok(text) = fs::read_to_string(&options.job_file) {
        manifest.job_files = vec![JobFile { name: name.clone(), text }];
    }
    manifest.seed = format!("{:x}", options.seed);
    manifest.rounds = 1;
    manifest.orders = vec![vec![arm.name().to_owned()]];
    manifest.settings.clone_from(&options.settings);
    // The heading names the engine already.
    let known = format!("engine: {}", manifest.engine);
    manifest.notes = notes(groups).into_iter().filter(|note| *note != known).collect();
    Document::new(manifest, name, rows(groups, arm), Vec::new())
}

/// Separates errors in the command line or the job file from failures of the run.
fn failure(error: RunError) -> Failure {
    match error {
        RunError::Interrupted => {
            Failure::Interrupted("the job's files stay as they are, except those of unlink=1")
        }
        RunError::Read { .. }
        | RunError::Parse(_)
        | RunError::Cell(
            CellError::Invalid { .. }
            | CellError::Unavailable { .. }
            | CellError::ArmRefused { .. },
        ) => Failure::usage(error),
        RunError::Cell(_) | RunError::Report(_) => Failure::failed(error),
    }
}
