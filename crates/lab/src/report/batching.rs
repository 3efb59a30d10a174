//! Did the kernel batch? A table of what was submitted together and one of what ended together, a
//! line for each arm, with what the arm counts of itself at the end of each line. Shown where it
//! was counted.

use crate::batching::PREFIX;
use crate::schema::{Document, Part, PartJob};

use super::Block;
use super::column::{Cell, Column, column};
use super::figures::{count, per_io, percent, size};
use super::reader::Reader;
use super::table::Table;

const SUBMISSION: &[Column] = &[
    column(24, "", "arm", Cell::Label),
    column(6, "reqs /", "unplug", Cell::Mean("kernel_requests_per_unplug", per_io)),
    column(5, "", "asked", Cell::Mean("kernel_unplug_asked_share", percent)),
    column(7, "", "plugged", Cell::Mean("kernel_plugged_share", percent)),
    column(6, "sched-", "uled", Cell::Mean("kernel_insert_share", percent)),
    column(5, "bios", "/ req", Cell::Mean("kernel_bios_per_request", per_io)),
    column(6, "", "bytes", Cell::Mean("kernel_request_bytes", size)),
    column(5, "own /", "bell", Cell::Mean("requests_per_doorbell", per_io)),
];

const COMPLETION: &[Column] = &[
    column(24, "", "arm", Cell::Label),
    column(6, "reqs /", "run", Cell::Mean("kernel_requests_per_run", per_io)),
    column(6, "bios /", "run", Cell::Mean("kernel_bios_per_run", per_io)),
    column(6, "bios /", "worker", Cell::Mean("kernel_bios_per_worker_run", per_io)),
    column(6, "items", "/ task", Cell::Mean("kernel_task_work_per_run", per_io)),
    column(6, "CQEs /", "enter", Cell::Mean("kernel_completions_per_enter", per_io)),
    column(6, "pages/", "wback", Cell::Mean("kernel_writeback_pages_per_run", per_io)),
    column(5, "own /", "run", Cell::Mean("bios_per_run", per_io)),
];

const ALLOCATIONS: &str = "kernel_allocations_per_s";

/// Shown where XFS allocated.
const GROUPS: &[Column] = &[
    column(24, "", "arm", Cell::Label),
    column(9, "allocs", "/ s", Cell::Mean(ALLOCATIONS, count)),
    column(9, "waits", "/ s", Cell::Mean("kernel_group_waits_per_s", count)),
    column(8, "busiest", "group", Cell::Mean("kernel_busiest_group_share", percent)),
];

const GROUPS_LEGEND: &str = "allocs = allocations of space by XFS; waits = for the lock of \
     an allocation group, counted as a task is about to wait; busiest group = its share of \
     them, of 16 with a counter each; - = none";

const LEGEND: &str = "Counted in the kernel on the disk of the files, other work on it included. asked = unplugs \
                      that were asked for (the others: before a sleep); plugged = of the \
                      requests made; scheduled = of those issued, some merged since; run = one interrupt; worker = one run of a completion worker, of any disk; \
                      task = one run of task work; wback = one call that writes pages back (but on ext4 of the background alone); own = what the arm counts itself: \
                      requests per doorbell, and bios (of the kernel's arms: CQEs) ended in one go";

/// A group of a job file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group<'a> {
    pub(super) name: &'a str,
    /// By which name its rows go.
    pub(super) rows: &'a str,
}

/// Both tables for each job of a part; nothing where none of it was counted.
pub(super) fn batching(document: &Document, part: &Part) -> Vec<Block> {
    let jobs = Reader::all(document, part).filter(|reader| has(*reader, PREFIX));
    let mut blocks: Vec<Block> = jobs.flat_map(of_job).collect();
    if !blocks.is_empty() {
        blocks.push(Block::Text(LEGEND.to_owned()));
    }
    blocks
}

/// The same of the groups of `run`, a line for each of those that were counted, as they are
/// printed.
pub(super) fn of_run(document: &Document, groups: &[Group<'_>]) -> Vec<String> {
    let job = |group: &Group<'_>| PartJob {
        name: group.rows.to_owned(),
        title: group.name.to_owned(),
        ..PartJob::default()
    };
    let part = &Part { jobs: groups.iter().map(job).collect(), ..Part::default() };
    let counted: Vec<_> =
        Reader::all(document, part).filter(|reader| has(*reader, PREFIX)).collect();
    if counted.is_empty() {
        return Vec::new();
    }
    let mut printed = vec![String::new(), "Did the kernel batch?".to_owned()];
    for columns in [SUBMISSION, COMPLETION] {
        let mut all = Table::of_arms(columns, counted[0], &[]);
        for reader in &counted {
            let mut lines = Table::of_arms(columns, *reader, &reader.arms()).lines;
            lines.iter_mut().for_each(|line| line[0].clone_from(&reader.job.title));
            all.lines.extend(lines);
        }
        printed.extend(all.text());
    }
    printed.extend(super::folded(LEGEND));
    printed
}

/// Whether any arm of the job has a metric that begins so.
fn has(reader: Reader<'_>, metric: &str) -> bool {
    let rows = &reader.document.rows;
    rows.iter().any(|row| row.job == reader.job.name && row.metric.starts_with(metric))
}

fn of_job(reader: Reader<'_>) -> Vec<Block> {
    let title = match reader.job.title.as_str() {
        "" => "Did the kernel batch?".to_owned(),
        title => format!("Did the kernel batch? {title}:"),
    };
    let table = |columns| Block::Table(Table::of_arms(columns, reader, &reader.arms()));
    let mut blocks = vec![Block::Gap, Block::Text(title), table(SUBMISSION), table(COMPLETION)];
    if has(reader, ALLOCATIONS) {
        blocks.extend([table(GROUPS), Block::Text(GROUPS_LEGEND.to_owned())]);
    }
    blocks
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
        for columns in [SUBMISSION, COMPLETION, GROUPS] {
            assert_fits(columns);
        }
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
}
