//! The tables of programs: for each job the figures of its arms, and their ratios to the base.

use crate::plan::again;
use crate::programs::spec::{CPU, Pairs, Probe, Shown};
use crate::schema::{Against, Document, Part};

use super::Block;
use super::column::{Cell, Column, column};
use super::figures::{megabytes, size, three_digits, time};
use super::reader::Reader;
use super::table::{Table, named_head};

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

const LEGEND: &str = "CPU and calls: processor time and system calls of the process for each \
    operation; kernel threads are not included. RSS: its memory at the end, above that at the \
    start; the page cache is not included. Ratios with 95 %. ~ = not shown";

/// How a part is shown: as its probe says, or as most are.
fn shown(part: &Part) -> Shown {
    let own = Probe::tables().find(|shown| shown.metric == part.metric);
    own.copied().unwrap_or(Shown {
        metric: "",
        columns: ARMS,
        ratios: match part.metric.as_str() {
            "latency_p99_us" => [("latency_p99_us", "p99"), ("latency_p999_us", "p999"), BULK],
            "write_bytes_per_s" => [BULK, ("elapsed_s", "time"), CPU],
            "resident_bytes" => [("resident_bytes", "RSS"), BULK, CPU],
            _ => [("operations_per_s", "per s"), ("latency_p99_us", "p99"), CPU],
        },
        pairs: Pairs::ToBase,
        legend: LEGEND,
    })
}

pub(super) fn programs(document: &Document, part: &Part) -> Vec<Block> {
    let shown_here = shown(part);
    let mut blocks = Vec::new();
    for reader in Reader::ran(document, part) {
        let [gap, title, table, noise] = reader.titled(shown_here.columns);
        blocks.extend([gap, title, table]);
        let ratios = ratios(reader, &shown_here).filter(|table| !table.lines.is_empty());
        blocks.extend(ratios.map(Block::Table));
        blocks.push(noise);
    }
    // Several parts have one legend.
    let alike =
        |other: &&Part| other.table == part.table && shown(other).metric == shown_here.metric;
    let last = document.parts.iter().rfind(alike);
    if last.is_none_or(|last| last.name == part.name) {
        blocks.extend([Block::Gap, Block::Text(shown_here.legend.to_owned())]);
    }
    blocks
}

fn ratios(reader: Reader<'_>, shown: &Shown) -> Option<Table> {
    let base = reader.job.base.as_deref()?;
    let arm = reader.part.again.as_str();
    let others = reader.arms().into_iter();
    Some(if shown.pairs == Pairs::OfTheTwin && arm != base {
        let twin = again(arm);
        let others = others.filter(|base| *base != arm && *base != twin);
        let pairs = others.map(|base| (base, Against { arm, base }));
        Table::of_ratios(named_head(16, &format!("{arm} to")), &shown.ratios, reader, pairs)
    } else {
        let others = others.filter(|arm| *arm != base);
        let pairs = others.map(|arm| (arm, Against { arm, base }));
        Table::of_ratios(named_head(16, &format!("to {base}")), &shown.ratios, reader, pairs)
    })
}

const BULK: (&str, &str) = ("write_bytes_per_s", "MB/s");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::table::assert_fits;

    #[test]
    fn the_columns_fit() {
        assert_fits(ARMS);
        Probe::tables().for_each(|shown| assert_fits(shown.columns));
    }
}
