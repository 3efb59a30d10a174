//! `forebay compare --check-against-itself`: the check of the lab. Exit code 1 if it fails.

use forebay_lab::batching::Batching;
use forebay_lab::check::{Ground, Itself, against_itself, file_bytes};
use forebay_lab::compare::RunError;
use forebay_lab::manifest::Manifest;
use forebay_lab::report::check as report;
use forebay_lab::schema::Document;
use forebay_lab::scratch::{Scratch, Stop};
use forebay_lab::text::counted;

use crate::compare::{QUIET_WITHIN, not_writable, remove_leftovers};
use crate::failure::Failure;
use crate::meaning::CheckRequest;
use crate::output::{print, say, write_json};
use crate::wiring;

/// Runs the check and prints its result.
pub(crate) fn check(request: &CheckRequest) -> Result<(), Failure> {
    let stop = Stop::on_signals().map_err(|error| Failure::failed(format!("signals: {error}")))?;
    remove_leftovers(&request.directory);
    let mut manifest = Manifest::gather(&request.directory);
    let file_bytes = file_bytes(request.scale);
    // The file system itself needs space besides the file.
    let needed = file_bytes * 2;
    if manifest.storage.free_bytes < needed {
        let (free, needed) = (manifest.storage.free_bytes >> 20, needed.div_ceil(1 << 20));
        let directory = request.directory.display();
        return Err(Failure::usage(format!(
            "{directory}: only {free} MiB free; use --dir with at least {needed} MiB free"
        )));
    }
    let scratch = Scratch::new_in(&request.directory)
        .map_err(|error| not_writable(&request.directory, &error))?;
    say(&format!(
        "20 comparisons of an arm with itself, {} each, on a file of {} MiB; seed {:x}",
        counted(request.rounds.into(), "round"),
        file_bytes >> 20,
        request.seed
    ));
    let ground = Ground {
        scratch: &scratch,
        stop: &stop,
        quiet_within: QUIET_WITHIN,
        rounds: request.rounds,
        scale: request.scale,
        seed: request.seed,
    };
    let mut runner = wiring::runner(&stop, &[], Batching::Off);
    let found = against_itself(&ground, &mut runner, &mut say).map_err(|error| match error {
        RunError::Interrupted => Failure::Interrupted("nothing was left behind"),
        error => Failure::failed(error),
    })?;
    let (text, fails) = (report::itself(&found), failure(&found));
    manifest.seed = format!("{:x}", request.seed);
    manifest.rounds = request.rounds;
    let said = found.same.iter().chain(&found.planted);
    let comparisons = said.map(|said| said.comparison.clone()).collect();
    let document = Document::new(manifest, "check-against-itself", found.rows, comparisons);
    let written = request.json.as_deref().map_or(Ok(()), |path| write_json(&document, path));
    print(&text)?;
    written?;
    fails.map_or(Ok(()), |what| Err(Failure::failed(what)))
}

/// Returns why the verdicts may not be believed, if so.
fn failure(found: &Itself) -> Option<String> {
    let (shown, missed) = (found.false_verdicts(), found.planted.len() - found.found());
    (!found.holds()).then(|| {
        format!(
            "{shown} of {} verdicts are false; {} missed",
            found.same.len(),
            counted(missed as u64, "difference")
        )
    })
}
