//! Did the kernel batch? A table of what was submitted together and one of what ended together, a
//! line for each arm, with what the arm counts of itself at the end of each line. Shown where it
//! was counted.

use crate::batching::PREFIX;
use crate::schema::{Document, Part, PartJob};

use super::Block;
use super::figures::{per_io, percent, size};
use super::table::{Column, Table, column, mean_of};

const SUBMISSION: &[Column] = &[
    column(24, "", "arm"),
    column(6, "reqs /", "unplug"),
    column(5, "", "asked"),
    column(7, "", "plugged"),
    column(6, "sched-", "uled"),
    column(5, "bios", "/ req"),
    column(6, "", "bytes"),
    column(5, "own /", "bell"),
];

/// In the order of the columns, but for the last.
const SUBMISSION_METRICS: &[(&str, Shown)] = &[
    ("requests_per_unplug", per_io),
    ("unplug_asked_share", percent),
    ("plugged_share", percent),
    ("insert_share", percent),
    ("bios_per_request", per_io),
    ("request_bytes", size),
];

const COMPLETION: &[Column] = &[
    column(24, "", "arm"),
    column(6, "reqs /", "run"),
    column(6, "bios /", "run"),
    column(6, "bios /", "worker"),
    column(6, "items", "/ task"),
    column(6, "CQEs /", "enter"),
    column(6, "pages/", "wback"),
    column(5, "own /", "run"),
];

const COMPLETION_METRICS: &[(&str, Shown)] = &[
    ("requests_per_run", per_io),
    ("bios_per_run", per_io),
    ("bios_per_worker_run", per_io),
    ("task_work_per_run", per_io),
    ("completions_per_enter", per_io),
    ("writeback_pages_per_run", per_io),
];

const LEGEND: &str = "Counted in the kernel on the disk of the files, other work on it included. asked = unplugs \
                      that were asked for (the others: before a sleep); plugged = of the \
                      requests made; scheduled = of those issued, some merged since; run = one interrupt; worker = one run of a completion worker, of any disk; \
                      task = one run of task work; wback = one call that writes pages back (but on ext4 of the background alone); own = what the arm counts itself: \
                      requests per doorbell, and bios (of the kernel's arms: CQEs) ended in one go";

type Shown = fn(f64) -> String;

/// A group of a job file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group<'a> {
    /// What it is called.
    pub(super) name: &'a str,
    /// By which name its rows go.
    pub(super) rows: &'a str,
}

/// Of which rows a line is.
#[derive(Debug)]
struct Line<'a> {
    label: String,
    job: &'a str,
    arm: &'a str,
}

/// Both tables for each job of a part; nothing where none of it was counted.
pub(super) fn batching(document: &Document, part: &Part) -> Vec<Block> {
    let jobs = part.jobs.iter().filter(|job| is_counted(document, &job.name));
    let mut blocks: Vec<Block> = jobs.flat_map(|job| of_job(document, job)).collect();
    if !blocks.is_empty() {
        blocks.push(Block::Text(LEGEND.to_owned()));
    }
    blocks
}

/// The same of the groups of `run`, a line for each of those that were counted, as they are
/// printed.
pub(super) fn of_run(document: &Document, groups: &[Group<'_>]) -> Vec<String> {
    let counted = groups.iter().filter(|group| is_counted(document, group.rows));
    let lines: Vec<Line<'_>> = counted
        .flat_map(|group| {
            let arms = document.arms_of(group.rows).into_iter();
            arms.map(|arm| Line { label: group.name.to_owned(), job: group.rows, arm })
        })
        .collect();
    if lines.is_empty() {
        return Vec::new();
    }
    let mut printed = vec![String::new(), "Did the kernel batch?".to_owned()];
    printed.extend(tables(document, &lines).iter().flat_map(Table::text));
    printed.extend(super::folded(LEGEND));
    printed
}

fn is_counted(document: &Document, job: &str) -> bool {
    document.rows.iter().any(|row| row.job == job && row.metric.starts_with(PREFIX))
}

fn of_job(document: &Document, job: &PartJob) -> Vec<Block> {
    let title = match job.title.as_str() {
        "" => "Did the kernel batch?".to_owned(),
        title => format!("Did the kernel batch? {title}:"),
    };
    let arms = document.arms_of(&job.name).into_iter();
    let lines: Vec<Line<'_>> =
        arms.map(|arm| Line { label: super::label(arm), job: &job.name, arm }).collect();
    let [submission, completion] = tables(document, &lines);
    vec![Block::Gap, Block::Text(title), Block::Table(submission), Block::Table(completion)]
}

fn tables(document: &Document, lines: &[Line<'_>]) -> [Table; 2] {
    [
        table(document, lines, SUBMISSION, (SUBMISSION_METRICS, "requests_per_doorbell")),
        table(document, lines, COMPLETION, (COMPLETION_METRICS, "bios_per_run")),
    ]
}

fn table(
    document: &Document,
    lines: &[Line<'_>],
    columns: &'static [Column],
    (metrics, own): (&[(&str, Shown)], &str),
) -> Table {
    let cells = |line: &Line<'_>| {
        let row = |metric: &str| document.row_of(line.job, line.arm, metric);
        let counted =
            metrics.iter().map(|(name, shown)| mean_of(row(&format!("{PREFIX}{name}")), *shown));
        let own = std::iter::once(mean_of(row(own), per_io));
        std::iter::once(line.label.clone()).chain(counted).chain(own).collect()
    };
    Table { columns: columns.into(), lines: lines.iter().map(cells).collect() }
}

#[cfg(test)]
mod tests {
    use super::super::table::assert_fits;
    use super::*;
    use crate::cell::CellResult;
    use crate::manifest::Manifest;
    use crate::schema;

    const GROUP: Group<'_> = Group { name: "reads", rows: "job" };

    fn document(metrics: &[(&str, f64)]) -> Document {
        let metrics = metrics.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let result = CellResult { metrics, ..CellResult::default() };
        Document::new(
            Manifest::default(),
            "suite",
            schema::rows("job", "kernel-direct", &[result]),
            Vec::new(),
        )
    }

    #[test]
    fn the_columns_fit() {
        for columns in [SUBMISSION, COMPLETION] {
            assert_fits(columns);
        }
        assert_eq!(SUBMISSION.len(), SUBMISSION_METRICS.len() + 2);
        assert_eq!(COMPLETION.len(), COMPLETION_METRICS.len() + 2);
    }

    #[test]
    fn what_was_counted_is_shown_and_what_was_not_is_a_dash() {
        let document = document(&[
            ("iops", 1.0),
            ("kernel_requests_per_unplug", 31.5),
            ("kernel_insert_share", 1.0),
            ("kernel_request_bytes", 4096.0),
            ("requests_per_doorbell", 32.0),
        ]);
        let lines = of_run(&document, &[GROUP]);
        let shown = lines.iter().find(|line| line.contains("reads")).unwrap();
        let words: Vec<_> = shown.split_whitespace().collect();
        assert_eq!(words, ["reads", "31.5", "-", "-", "100", "%", "-", "4KiB", "32.0"]);
        assert!(lines.iter().all(|line| line.len() <= 72), "{lines:#?}");
    }

    #[test]
    fn without_counting_there_is_no_table() {
        let document = document(&[("iops", 1.0)]);
        assert_eq!(of_run(&document, &[GROUP]), [""; 0]);
        let job = PartJob { name: "job".into(), ..PartJob::default() };
        assert!(batching(&document, &Part { jobs: vec![job], ..Part::default() }).is_empty());
    }

    #[test]
    fn every_metric_that_is_shown_is_one() {
        let shown = SUBMISSION_METRICS.iter().chain(COMPLETION_METRICS);
        for (name, _) in shown {
            assert!(crate::metric::find(&format!("{PREFIX}{name}")).is_some(), "{name}");
        }
    }
}
