//! The tables of programs: for each job the figures of its arms, and their ratios to the base.

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

const LEGEND: &str = "CPU and calls: processor time and system calls of the process for each \
    operation; kernel threads are not included. RSS: its memory at the end, above that at the \
    start; the page cache is not included. Ratios with 95 %. ~ = not shown";

/// Both tables of each job that ran.
pub(super) fn programs(document: &Document, part: &Part) -> Vec<Block> {
    let mut blocks = Vec::new();
    for job in part.jobs.iter().filter(|job| !document.arms_of(&job.name).is_empty()) {
        blocks.extend([
            Block::Gap,
            Block::Text(format!("{}:", job.title)),
            Block::Table(Table { columns: ARMS.into(), lines: lines(document, job) }),
        ]);
        blocks.extend(ratios(document, part, job).map(Block::Table));
        blocks.push(Block::Text(super::noise(document, part, &job.name)));
    }
    // Several parts have one legend.
    let last = document.parts.iter().rfind(|other| other.table == part.table);
    if last.is_none_or(|last| last.name == part.name) {
        blocks.extend([Block::Gap, Block::Text(LEGEND.to_owned())]);
    }
    blocks
}

fn lines(document: &Document, job: &PartJob) -> Vec<Vec<String>> {
    let lines = document.arms_of(&job.name).into_iter().map(|arm| {
        let row = |metric: &str| document.row_of(&job.name, arm, metric);
        vec![
            arm.to_owned(),
            mean_of(row("operations_per_s"), three_digits),
            mean_of(row("latency_p50_us"), time),
            mean_of(row("latency_p99_us"), time),
            mean_of(row("latency_p999_us"), time),
            mean_of(row("cpu_us_per_operation"), time),
            mean_of(row("system_calls_per_operation"), three_digits),
            mean_of(row("resident_bytes"), size),
            mean_of(row("write_bytes_per_s"), |rate| three_digits(rate / 1e6)),
        ]
    });
    lines.collect()
}

/// Each arm to the base: in the metric of the part first.
fn ratios(document: &Document, part: &Part, job: &PartJob) -> Option<Table> {
    let base = job.base.as_deref()?;
    let metrics = match part.metric.as_str() {
        "latency_p99_us" => [("latency_p99_us", "p99"), ("latency_p999_us", "p999"), BULK],
        "write_bytes_per_s" => [BULK, ("elapsed_s", "time"), CPU],
        "resident_bytes" => [("resident_bytes", "RSS"), BULK, CPU],
        _ => [("operations_per_s", "per s"), ("latency_p99_us", "p99"), CPU],
    };
    let others = document.arms_of(&job.name).into_iter().filter(|arm| *arm != base);
    let line = |arm: &str| {
        let against = Against { arm, base };
        let compared = metrics.map(|(metric, _)| document.compared(&job.name, metric, against));
        let ratios = compared.into_iter().map(|found| found.map_or_else(absent, |_| marked(found)));
        std::iter::once(arm.to_owned()).chain(ratios).collect()
    };
    let lines: Vec<Vec<String>> = others.map(line).collect();
    let mut columns = vec![named_column(15, &format!("to {base}"))];
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
    }
}
