//! The tables of programs: for each job the figures of its arms, and their ratios to the base.

use crate::plan::again;
use crate::schema::{Against, Document, Part, PartJob};

use super::Block;
use super::figures::{size, three_digits, time};
use super::table::{Column, Table, absent, column, marked, mean_of, named_column};

const ARMS: &[Column] = &[
    column(15, "", "arm"),
    column(7, "", "per s"),
    column(5, "", "p50"),
    column(5, "", "p99"),
    column(5, "", "p999"),
    column(6, "", "CPU"),
    column(6, "", "calls"),
    column(7, "", "RSS"),
    column(7, "", "MB/s"),
];

/// The metric of parts about many files that become durable together.
const FILES: &str = "files_per_s";

const FILES_ARMS: &[Column] = &[
    column(16, "", "arm"),
    column(6, "files", "per s"),
    column(5, "", "time"),
    column(5, "", "CPU"),
    column(5, "", "calls"),
    column(6, "", "RSS"),
    column(7, "", "commits"),
    column(7, "", "flushes"),
    column(6, "beside", "MB/s"),
];

const FILES_LEGEND: &str = "Time: until all files are durable under their names; no-sync makes \
    none durable. CPU and calls: processor time and system calls of the process for each file. \
    Commits and flushes: for 1,000 files, of all processes on the file system and its disk. \
    Commits are ends of commits of the journal on ext4, and log writes with a commit record on \
    XFS. Beside: the bulk writer. Ratios with 95 %. ~ = not shown";

const LEGEND: &str = "CPU and calls: processor time and system calls of the process for each \
    operation; kernel threads are not included. RSS: its memory at the end, above that at the \
    start; the page cache is not included. Ratios with 95 %. ~ = not shown";

/// Both tables of each job that ran.
pub(super) fn programs(document: &Document, part: &Part) -> Vec<Block> {
    let of_files = |part: &Part| part.metric == FILES;
    let (columns, legend) =
        if of_files(part) { (FILES_ARMS, FILES_LEGEND) } else { (ARMS, LEGEND) };
    let mut blocks = Vec::new();
    for job in part.jobs.iter().filter(|job| !document.arms_of(&job.name).is_empty()) {
        blocks.extend([
            Block::Gap,
            Block::Text(format!("{}:", job.title)),
            Block::Table(Table { columns: columns.into(), lines: lines(document, part, job) }),
        ]);
        blocks.extend(ratios(document, part, job).map(Block::Table));
        blocks.push(Block::Text(super::noise(document, part, &job.name)));
    }
    // Several parts have one legend.
    let last = document
        .parts
        .iter()
        .rfind(|other| other.table == part.table && of_files(other) == of_files(part));
    if last.is_none_or(|last| last.name == part.name) {
        blocks.extend([Block::Gap, Block::Text(legend.to_owned())]);
    }
    blocks
}

fn lines(document: &Document, part: &Part, job: &PartJob) -> Vec<Vec<String>> {
    let lines = document.arms_of(&job.name).into_iter().map(|arm| {
        let row = |metric: &str| document.row_of(&job.name, arm, metric);
        let megabytes = |rate| three_digits(rate / 1e6);
        if part.metric == FILES {
            return vec![
                arm.to_owned(),
                mean_of(row(FILES), three_digits),
                mean_of(row("elapsed_s"), |seconds| time(seconds * 1e6)),
                mean_of(row("cpu_us_per_operation"), time),
                mean_of(row("system_calls_per_operation"), three_digits),
                mean_of(row("resident_bytes"), size),
                mean_of(row("commits_per_1000_files"), three_digits),
                mean_of(row("flushes_per_1000_files"), three_digits),
                mean_of(row("beside_bytes_per_s"), megabytes),
            ];
        }
        vec![
            arm.to_owned(),
            mean_of(row("operations_per_s"), three_digits),
            mean_of(row("latency_p50_us"), time),
            mean_of(row("latency_p99_us"), time),
            mean_of(row("latency_p999_us"), time),
            mean_of(row("cpu_us_per_operation"), time),
            mean_of(row("system_calls_per_operation"), three_digits),
            mean_of(row("resident_bytes"), size),
            mean_of(row("write_bytes_per_s"), megabytes),
        ]
    });
    lines.collect()
}

/// Each arm to the base: in the metric of the part first. Of files, the arm that runs twice, if it
/// is not the base, to each other arm.
fn ratios(document: &Document, part: &Part, job: &PartJob) -> Option<Table> {
    let base = job.base.as_deref()?;
    let metrics = match part.metric.as_str() {
        "latency_p99_us" => [("latency_p99_us", "p99"), ("latency_p999_us", "p999"), BULK],
        "write_bytes_per_s" => [BULK, ("elapsed_s", "time"), CPU],
        "resident_bytes" => [("resident_bytes", "RSS"), BULK, CPU],
        FILES => [(FILES, "files per s"), CPU, ("beside_bytes_per_s", "beside MB/s")],
        _ => [("operations_per_s", "per s"), ("latency_p99_us", "p99"), CPU],
    };
    let arms = document.arms_of(&job.name);
    let (head, pairs): (String, Vec<_>) = if part.metric == FILES && part.again != base {
        let (arm, twin) = (part.again.as_str(), again(&part.again));
        let bases = arms.into_iter().filter(|base| *base != arm && *base != twin);
        (format!("{arm} to"), bases.map(|base| (base, Against { arm, base })).collect())
    } else {
        let others = arms.into_iter().filter(|arm| *arm != base);
        (format!("to {base}"), others.map(|arm| (arm, Against { arm, base })).collect())
    };
    let line = |(name, against): (&str, Against<'_>)| {
        let compared = metrics.map(|(metric, _)| document.compared(&job.name, metric, against));
        let ratios = compared.into_iter().map(|found| found.map_or_else(absent, |_| marked(found)));
        std::iter::once(name.to_owned()).chain(ratios).collect()
    };
    let lines: Vec<Vec<String>> = pairs.into_iter().map(line).collect();
    let mut columns = vec![named_column(16, &head)];
    columns.extend(metrics.map(|(_, head)| column(17, "", head)));
    (!lines.is_empty()).then(|| Table { columns: columns.into(), lines })
}

const BULK: (&str, &str) = ("write_bytes_per_s", "MB/s");
const CPU: (&str, &str) = ("cpu_us_per_operation", "CPU");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::table::assert_fits;

    #[test]
    fn the_columns_fit() {
        assert_fits(ARMS);
        assert_fits(FILES_ARMS);
    }
}
