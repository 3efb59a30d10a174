//! Whether the arms that hold completed writes did so, job by job, and what the hold is compared
//! with. A hold that ends early is no experiment on holds.
//!
//! To remove the hold (`completion=delay`), remove this file and its use.

use crate::figures::{microseconds, three_digits};
use crate::reader::Reader;
use crate::schema::Document;

/// The arm of the kernel that ends writes in task context without a delay, since Linux 6.18.
const KERNEL: &str = "kernel-uncached";

/// A hold counts if it lasts at least this share of the time asked for.
const COUNTS: f64 = 0.5;

/// Returns a paragraph with the mean hold of each job, and one with the counts that a hold changes,
/// beside those of the kernel. Returns nothing if no arm was to hold writes.
pub(super) fn lines(document: &Document) -> Vec<String> {
    let all = document.parts.iter().flat_map(|part| Reader::ran(document, part));
    let jobs: Vec<(Reader<'_>, &str)> = all
        .filter_map(|reader| {
            let mut arms = reader.arms().into_iter();
            Some((reader, arms.find(|arm| reader.mean(arm, "hold_asked_us").is_some())?))
        })
        .collect();
    if jobs.is_empty() {
        return Vec::new();
    }
    let held = jobs.iter().map(|(reader, arm)| held(*reader, arm));
    let counts = jobs.iter().map(|(reader, arm)| counts(*reader, arm));
    vec![
        format!("mean hold: {}.", held.collect::<Vec<_>>().join("; ")),
        format!(
            "own and system's context switches per I/O, bios per run (of {KERNEL}: of a worker, \
             with --batching): {}.",
            counts.collect::<Vec<_>>().join("; ")
        ),
    ]
}

/// Returns `A 870us of 1.0 ms: an experiment`.
fn held(reader: Reader<'_>, arm: &str) -> String {
    let mean = |metric: &str| reader.mean(arm, metric).unwrap_or(0.0);
    let (asked, held) = (mean("hold_asked_us"), mean("hold_mean_us"));
    let verdict = if held >= COUNTS * asked { "an experiment" } else { "not an experiment" };
    let job = &reader.job.name;
    format!("{job} {} of {}: {verdict}", microseconds(held), microseconds(asked))
}

/// Returns `A forebay-delay 0.16 0.55 5.9, ...` for the arm, its twin without a hold, and the
/// kernel's.
fn counts(reader: Reader<'_>, arm: &str) -> String {
    let arms = reader.arms().into_iter();
    let shown = arms.filter(|other| *other == arm || *other == KERNEL || *other == immediate(arm));
    let figures = |arm: &str| {
        let own = reader.mean(arm, "context_switches_per_io");
        let system = reader.mean(arm, "system_context_switches_per_io");
        let runs = match arm {
            KERNEL => reader.mean(arm, "kernel_bios_per_worker_run"),
            _ => reader.mean(arm, "bios_per_run"),
        };
        [own, system, runs].map(|mean| mean.map_or_else(super::table::absent, three_digits))
    };
    let arms = shown.map(|arm| format!("{arm} {}", figures(arm).join(" ")));
    format!("{} {}", reader.job.name, arms.collect::<Vec<_>>().join(", "))
}

/// Returns the name of the arm that does the same without a hold.
fn immediate(arm: &str) -> String {
    arm.replace("delay", "immediate")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Manifest;
    use crate::metric::Better;
    use crate::schema::{Part, PartJob, Row};

    fn row(arm: &str, metric: &str, mean: f64) -> Row {
        let [job, arm, metric, unit] = ["A", arm, metric, "us"].map(str::to_owned);
        let (better, stddev, rounds) = (Better::Lower, None, vec![Some(mean)]);
        Row { job, arm, metric, unit, better, mean, stddev, rounds }
    }

    fn document(hold: f64) -> Document {
        let job = PartJob { name: "A".to_owned(), ..PartJob::default() };
        Document {
            parts: vec![Part { jobs: vec![job], ..Part::default() }],
            rows: vec![
                row("forebay-delay", "hold_asked_us", 1000.0),
                row("forebay-delay", "hold_mean_us", hold),
                row("forebay-delay", "bios_per_run", 23.0),
                row("forebay-immediate", "system_context_switches_per_io", 0.37),
                row("kernel-uncached", "kernel_bios_per_worker_run", 0.94),
                row("kernel-buffered", "system_context_switches_per_io", 1.0),
            ],
            schema: 0,
            manifest: Manifest::default(),
            suite: "completion".to_owned(),
            comparisons: Vec::new(),
            differences: Vec::new(),
            cells: Vec::new(),
        }
    }

    #[test]
    fn a_short_hold_is_not_an_experiment() {
        let first = |hold| lines(&document(hold)).remove(0);
        assert!(first(870.0).ends_with("of 1.0 ms: an experiment."), "{}", first(870.0));
        assert!(first(14.0).ends_with("of 1.0 ms: not an experiment."), "{}", first(14.0));
        assert_eq!(lines(&Document { rows: Vec::new(), ..document(0.0) }), [""; 0]);
    }

    #[test]
    fn the_kernel_stands_beside_both() {
        let counts = lines(&document(870.0)).remove(1);
        let arms =
            "A forebay-delay - - 23.0, forebay-immediate - 0.37 -, kernel-uncached - - 0.94.";
        assert!(counts.ends_with(arms), "{counts}");
    }
}
