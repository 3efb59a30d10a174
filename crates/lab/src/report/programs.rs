//! The tables of programs: for each job the figures of its arms, and their ratios to the base.

use crate::plan::again;
use crate::schema::{Against, Document, Part};

use super::Block;
use super::figures::{size, three_digits, time};
use super::reader::Reader;
use super::table::{Cell, Column, Table, column, named_head};

const ARMS: &[Column] = &[
    column(15, "", "arm", Cell::Arm),
    column(7, "", "per s", Cell::Mean("operations_per_s", three_digits)),
    column(5, "", "p50", Cell::Mean("latency_p50_us", time)),
    column(5, "", "p99", Cell::Mean("latency_p99_us", time)),
    column(5, "", "p999", Cell::Mean("latency_p999_us", time)),
    column(6, "", "CPU", Cell::Mean("cpu_us_per_operation", time)),
    column(6, "", "calls", Cell::Mean("system_calls_per_operation", three_digits)),
    column(7, "", "RSS", Cell::Mean("resident_bytes", size)),
    column(7, "", "MB/s", Cell::Mean("write_bytes_per_s", megabytes)),
];

/// The metric of parts about many files that become durable together.
const FILES: &str = "files_per_s";

const FILES_ARMS: &[Column] = &[
    column(16, "", "arm", Cell::Arm),
    column(6, "files", "per s", Cell::Mean(FILES, three_digits)),
    column(5, "", "time", Cell::Mean("elapsed_s", |seconds| time(seconds * 1e6))),
    column(5, "", "CPU", Cell::Mean("cpu_us_per_operation", time)),
    column(5, "", "calls", Cell::Mean("system_calls_per_operation", three_digits)),
    column(6, "", "RSS", Cell::Mean("resident_bytes", size)),
    column(7, "", "commits", Cell::Mean("commits_per_1000_files", three_digits)),
    column(7, "", "flushes", Cell::Mean("flushes_per_1000_files", three_digits)),
    column(6, "beside", "MB/s", Cell::Mean("beside_bytes_per_s", megabytes)),
];

const FILES_LEGEND: &str = "Time: until all files are durable under their names; no-sync makes \
    none durable. CPU and calls: processor time and system calls of the process for each file. \
    Commits and flushes: for 1,000 files, of all processes on the file system and its disk. \
    Commits are ends of commits of the journal on ext4, and log writes with a commit record on \
    XFS. Beside: the bulk writer. Ratios with 95 %. ~ = not shown";

const LEGEND: &str = "CPU and calls: processor time and system calls of the process for each \
    operation; kernel threads are not included. RSS: its memory at the end, above that at the \
    start; the page cache is not included. Ratios with 95 %. ~ = not shown";

fn megabytes(bytes: f64) -> String {
    three_digits(bytes / 1e6)
}

/// Both tables of each job that ran.
pub(super) fn programs(document: &Document, part: &Part) -> Vec<Block> {
    let of_files = |part: &Part| part.metric == FILES;
    let (columns, legend) =
        if of_files(part) { (FILES_ARMS, FILES_LEGEND) } else { (ARMS, LEGEND) };
    let mut blocks = Vec::new();
    for reader in Reader::ran(document, part) {
        let [gap, title, table, noise] = reader.titled(columns);
        blocks.extend([gap, title, table]);
        blocks.extend(ratios(reader).filter(|table| !table.lines.is_empty()).map(Block::Table));
        blocks.push(noise);
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

/// Each arm to the base: in the metric of the part first. Of files, the arm that runs twice, if it
/// is not the base, to each other arm.
fn ratios(reader: Reader<'_>) -> Option<Table> {
    let base = reader.job.base.as_deref()?;
    let metrics = match reader.part.metric.as_str() {
        "latency_p99_us" => [("latency_p99_us", "p99"), ("latency_p999_us", "p999"), BULK],
        "write_bytes_per_s" => [BULK, ("elapsed_s", "time"), CPU],
        "resident_bytes" => [("resident_bytes", "RSS"), BULK, CPU],
        FILES => [(FILES, "files per s"), CPU, ("beside_bytes_per_s", "beside MB/s")],
        _ => [("operations_per_s", "per s"), ("latency_p99_us", "p99"), CPU],
    };
    let arm = reader.part.again.as_str();
    let others = reader.arms().into_iter();
    Some(if reader.part.metric == FILES && arm != base {
        let twin = again(arm);
        let others = others.filter(|base| *base != arm && *base != twin);
        let pairs = others.map(|base| (base, Against { arm, base }));
        Table::of_ratios(named_head(16, &format!("{arm} to")), &metrics, reader, pairs)
    } else {
        let others = others.filter(|arm| *arm != base);
        let pairs = others.map(|arm| (arm, Against { arm, base }));
        Table::of_ratios(named_head(16, &format!("to {base}")), &metrics, reader, pairs)
    })
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
