//! `forebay compare --check-against-fio` and `--check-against-itself`: checks of the lab. Exit code
//! 1 if a check fails.

use std::time::Duration;

use forebay_lab::batching::Batching;
use forebay_lab::check::{CheckError, Ground, Load, Mark, against_fio, against_itself, shapes};
use forebay_lab::fio_program;
use forebay_lab::manifest::Manifest;
use forebay_lab::plan::counted;
use forebay_lab::report::{Format, check as report};
use forebay_lab::request::Operation;
use forebay_lab::schema::{Comparison, Document, Row};
use forebay_lab::scratch::{Scratch, Stop};

use crate::compare::{QUIET_WITHIN, not_writable, remove_leftovers};
use crate::failure::Failure;
use crate::meaning::{Against, CheckRequest};
use crate::output::{print, say, write_json};
use crate::wiring;

/// What came out, whatever was checked.
struct Outcome {
    text: String,
    rows: Vec<Row>,
    comparisons: Vec<Comparison>,
    /// Why it may not be believed, where that is so.
    fails: Option<String>,
}

/// Does a check.
pub(crate) fn check(request: &CheckRequest) -> Result<(), Failure> {
    let version = match request.against {
        // Before anything is made.
        Against::Fio => Some(fio_program::version().map_err(Failure::usage)?),
        Against::Itself => None,
    };
    let stop = Stop::on_signals().map_err(|error| Failure::failed(format!("signals: {error}")))?;
    remove_leftovers(&request.directory);
    let mut manifest = Manifest::gather(&request.directory);
    let load = Load::scaled(request.scale);
    // What a file system needs besides the file.
    let needed = load.file_bytes * 2;
    if manifest.storage.free_bytes < needed {
        let (free, needed) = (manifest.storage.free_bytes >> 20, needed.div_ceil(1 << 20));
        let directory = request.directory.display();
        return Err(Failure::usage(format!(
            "{directory}: only {free} MiB free; use --dir with at least {needed} MiB free"
        )));
    }
    let scratch = Scratch::new_in(&request.directory)
        .map_err(|error| not_writable(&request.directory, &error))?;
    announce(request, version.as_deref(), &load);
    let ground = Ground {
        scratch: &scratch,
        stop: &stop,
        quiet_within: QUIET_WITHIN,
        rounds: request.rounds,
        scale: request.scale,
        seed: request.seed,
    };
    let outcome = run(request, &ground).map_err(|error| match error {
        CheckError::Interrupted => Failure::Interrupted("nothing was left behind"),
        error => Failure::failed(error),
    })?;

    manifest.seed = format!("{:x}", request.seed);
    manifest.rounds = request.rounds;
    let suite = match request.against {
        Against::Fio => "check-against-fio",
        Against::Itself => "check-against-itself",
    };
    let document = Document::new(manifest, suite, outcome.rows, outcome.comparisons);
    let written = request.json.as_deref().map_or(Ok(()), |path| write_json(&document, path));
    print(&outcome.text)?;
    written?;
    outcome.fails.map_or(Ok(()), |what| Err(Failure::failed(what)))
}

fn run(request: &CheckRequest, ground: &Ground<'_>) -> Result<Outcome, CheckError> {
    let mut runner = wiring::runner(ground.stop, &[], Batching::Off);
    let format = request.format;
    match request.against {
        Against::Fio => {
            against_fio(ground, &mut runner, &mut say).map(|found| of_fio(found, format))
        }
        Against::Itself => {
            against_itself(ground, &mut runner, &mut say).map(|found| of_itself(found, format))
        }
    }
}

fn of_fio(found: forebay_lab::check::Fio, format: Format) -> Outcome {
    let apart = found.marked(Mark::Apart);
    Outcome {
        text: report::fio(&found, format),
        fails: (apart > 0)
            .then(|| format!("{apart} of {} figures differ from fio", found.agreements.len())),
        rows: found.rows,
        comparisons: found.agreements.into_iter().map(|agreement| agreement.comparison).collect(),
    }
}

fn of_itself(found: forebay_lab::check::Itself, format: Format) -> Outcome {
    let fails = (!found.holds()).then(|| {
        let (shown, missed) = (found.false_verdicts(), found.planted.len() - found.found());
        format!(
            "{shown} of {} verdicts are false; {} missed",
            found.same.len(),
            counted(missed as u64, "difference")
        )
    });
    let said = found.same.iter().chain(&found.planted);
    Outcome {
        text: report::itself(&found, format),
        fails,
        comparisons: said.map(|said| said.comparison.clone()).collect(),
        rows: found.rows,
    }
}

/// Says what will be done, and how much of it.
fn announce(request: &CheckRequest, version: Option<&str>, load: &Load) {
    let rounds = request.rounds;
    let file = load.file_bytes >> 20;
    let seed = format!("seed {:x}", request.seed);
    let Some(version) = version else {
        say(&format!(
            "20 comparisons of an arm with itself, {} each, on a file of {file} MiB; {seed}",
            counted(rounds.into(), "round")
        ));
        return;
    };
    let all = shapes();
    let writes = || all.iter().filter(|shape| shape.operation == Operation::Write);
    let cells = u64::from(rounds) * 4;
    let buffered = writes().filter(|shape| !shape.is_direct()).count() as u64 * cells;
    let direct = writes().filter(|shape| shape.is_direct()).count() as u64 * cells;
    say(&format!(
        "{} loads through the lab and through {version}, each twice a round, {}, on a file of {file} MiB; {seed}",
        all.len(),
        counted(rounds.into(), "round")
    ));
    let direct = Duration::from_secs_f64(direct as f64 * load.seconds).as_secs();
    say(&format!("Writes {} MiB, and as much as the disk accepts in {direct} s.", buffered * file));
}
