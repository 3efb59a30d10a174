//! The tables of the suite `completion`: for each job a block of metrics in the shape in which the kernel's own delay of
//! completions was argued about, a column for each policy; then the job's arms, the kernel's with them, against the best
//! bounded one of those.

use crate::schema::{Against, Document, Part, PartJob, Row};
use crate::statistics::Verdict;

use super::Block;
use super::figures::{bytes, delta, mean_and_deviation, microseconds, plain, with_deviation};
use super::requests::to_base;
use super::table::{Column, Table, absent, column, mean_of};

/// What the columns are of; a delta is to the first.
const POLICIES: [&str; 3] = ["forebay-delay", "forebay-immediate", "forebay-adaptive"];

const BLOCK: &[Column] = &[
    column(15, "", ""),
    column(14, "", "delay"),
    column(14, "", "immediate"),
    column(8, "", "delta"),
    column(14, "", "adaptive"),
    column(8, "", "delta"),
];

const ARMS: &[Column] = &[
    column(24, "", "arm"),
    column(10, "", "MB/s"),
    column(17, "", "ratio [95 %]"),
    column(8, "", "memory"),
    column(6, "", "p99"),
    column(8, "system", "cs/GiB"),
];

const BESIDE: &[Column] = &[
    column(24, "", "arm"),
    column(10, "bulk", "MB/s"),
    column(7, "sync", "p50"),
    column(7, "sync", "p99"),
    column(17, "sync p99", "ratio [95 %]"),
    column(8, "", "memory"),
];

const COPIES: &[Column] = &[
    column(24, "", "arm"),
    column(12, "", "ns per call"),
    column(17, "", "ratio [95 %]"),
    column(8, "", "MB/s"),
];

const LEGEND: &str = "cs = context switches, of the whole system unless own; io = one of the caller's. bios/run: of \
    Forebay's writeback; run = bytes of one of its bios; hold = how long completions waited for each other; written, \
    durable: from a write's acceptance until it was that. Mean +- sd; delta: of means, to delay. ~ = not shown. kernel-direct-1m: \
    the same in pieces of 1 MiB, front to back, so no base";

/// A line of a block: its name, the metric, and by how much that is divided.
type Line = (&'static str, &'static str, f64);

/// Those of a job that writes alone.
const WRITES: [Line; 3] = [
    ("BW (MB/s)", "write_bytes_per_s", 1e6),
    ("p99 (us)", "write_latency_p99_us", 1.0),
    ("p999 (us)", "write_latency_p999_us", 1.0),
];

/// Those of one that reads too.
const MIXED: [Line; 6] = [
    ("write BW (MB/s)", "write_bytes_per_s", 1e6),
    ("write p99 (us)", "write_latency_p99_us", 1.0),
    ("write p999 (us)", "write_latency_p999_us", 1.0),
    ("read BW (MB/s)", "read_bytes_per_s", 1e6),
    ("read p99 (us)", "read_latency_p99_us", 1.0),
    ("read p999 (us)", "read_latency_p999_us", 1.0),
];

/// Those of every job.
const REST: [Line; 10] = [
    ("ctx-switches", "system_context_switches", 1.0),
    ("cs / io", "system_context_switches_per_io", 1.0),
    ("avg bios/run", "bios_per_run", 1.0),
    ("own switches", "context_switches", 1.0),
    ("own cs / io", "context_switches_per_io", 1.0),
    ("run (KiB)", "run_bytes", 1024.0),
    ("hold p99 (us)", "hold_p99_us", 1.0),
    ("written p99(us)", "written_latency_p99_us", 1.0),
    ("durable p99(us)", "writeback_latency_p99_us", 1.0),
    ("memory (MiB)", "peak_memory_bytes", (1u64 << 20) as f64),
];

/// Both tables of each job that ran.
pub(super) fn completion(document: &Document, part: &Part) -> Vec<Block> {
    let mut blocks = Vec::new();
    for job in part.jobs.iter().filter(|job| ran(document, job)) {
        let reads = POLICIES.iter().any(|arm| document.row_of(&job.name, arm, "read_bytes_per_s").is_some());
        let own: &[Line] = if reads { &MIXED } else { &WRITES };
        let lines = own.iter().chain(&REST).filter_map(|line| block_line(document, job, line));
        let arms = document.arms_of(&job.name).into_iter().map(|arm| {
            let row = |metric: &str| document.row_of(&job.name, arm, metric);
            vec![
                arm.to_owned(),
                row("write_bytes_per_s").map_or_else(absent, mega),
                to_base(document, part, job, arm),
                mean_of(row("peak_memory_bytes"), bytes),
                mean_of(row("write_latency_p99_us"), microseconds),
                mean_of(row("system_context_switches_per_gib"), plain),
            ]
        });
        blocks.extend([
            Block::Gap,
            Block::Text(job.title.clone()),
            Block::Table(Table { columns: BLOCK.into(), lines: lines.collect() }),
            Block::Gap,
            Block::Table(Table { columns: ARMS.into(), lines: arms.collect() }),
            Block::Text(super::noise(document, part, &job.name)),
        ]);
    }
    blocks.push(Block::Gap);
    blocks.push(Block::Text(LEGEND.to_owned()));
    blocks
}

/// A line for each arm of a bulk writer beside one that syncs.
pub(super) fn beside(document: &Document, part: &Part) -> Vec<Block> {
    let mut blocks = Vec::new();
    for job in part.jobs.iter().filter(|job| ran(document, job)) {
        let lines = document.arms_of(&job.name).into_iter().map(|arm| {
            let row = |metric: &str| document.row_of(&job.name, arm, metric);
            vec![
                arm.to_owned(),
                row("write_bytes_per_s").map_or_else(absent, mega),
                mean_of(row("sync_probe_p50_us"), microseconds),
                mean_of(row("sync_probe_p99_us"), microseconds),
                to_base(document, part, job, arm),
                mean_of(row("peak_memory_bytes"), bytes),
            ]
        });
        blocks.extend([
            Block::Table(Table { columns: BESIDE.into(), lines: lines.collect() }),
            Block::Text(super::noise(document, part, &job.name)),
        ]);
    }
    blocks
}

/// A line for each arm, a table for each size of a copy.
pub(super) fn copies(document: &Document, part: &Part) -> Vec<Block> {
    let mut blocks = Vec::new();
    for job in part.jobs.iter().filter(|job| ran(document, job)) {
        let lines = document.arms_of(&job.name).into_iter().map(|arm| {
            let row = |metric: &str| document.row_of(&job.name, arm, metric);
            vec![
                arm.to_owned(),
                row("ns_per_io").map_or_else(absent, |row| mean_and_deviation(row.mean, row.stddev)),
                to_base(document, part, job, arm),
                row("write_bytes_per_s").map_or_else(absent, |row| plain(row.mean / 1e6)),
            ]
        });
        blocks.extend([
            Block::Gap,
            Block::Text(format!("{}:", job.title)),
            Block::Table(Table { columns: COPIES.into(), lines: lines.collect() }),
            Block::Text(super::noise(document, part, &job.name)),
        ]);
    }
    blocks
}

fn ran(document: &Document, job: &PartJob) -> bool {
    document.rows.iter().any(|row| row.job == job.name)
}

/// None where nobody has the metric.
fn block_line(document: &Document, job: &PartJob, (name, metric, unit): &Line) -> Option<Vec<String>> {
    let rows = POLICIES.map(|arm| document.row_of(&job.name, arm, metric));
    rows.iter().any(Option::is_some).then_some(())?;
    let value = |row: Option<&Row>| {
        row.map_or_else(absent, |row| with_deviation(row.mean / unit, row.stddev.map(|sd| sd / unit)))
    };
    let to_first = |place: usize| {
        let change = rows[place].zip(rows[0]).map(|(row, first)| delta(row.mean, first.mean));
        let pair = Against { arm: POLICIES[place], base: POLICIES[0] };
        let compared = document.compared(&job.name, metric, pair);
        let shown = compared.is_some_and(|found| found.verdict != Verdict::NotShown);
        change.map_or_else(absent, |change| if shown { change } else { format!("~{change}") })
    };
    let [delay, immediate, adaptive] = rows;
    Some(vec![(*name).to_owned(), value(delay), value(immediate), to_first(1), value(adaptive), to_first(2)])
}

fn mega(row: &Row) -> String {
    mean_and_deviation(row.mean / 1e6, row.stddev.map(|sd| sd / 1e6))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::table::assert_fits;

    #[test]
    fn the_columns_fit_the_width() {
        for columns in [BLOCK, ARMS, BESIDE, COPIES] {
            assert_fits(columns);
        }
        let lines = WRITES.iter().chain(&MIXED).chain(&REST);
        for (name, metric, unit) in lines {
            assert!(name.len() <= 15 && *unit >= 1.0, "{name}");
            assert!(crate::metric::find(metric).is_some(), "{metric}");
        }
    }
}
