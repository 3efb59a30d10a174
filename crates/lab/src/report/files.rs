//! The tables of work on new files: how fast, with how much memory, how long a sync takes beside it, what it leaves
//! behind; then what an I/O costs.

use crate::arm::Arm;
use crate::compare::judge::THROUGHPUT;
use crate::schema::{Comparison, Document, Part, Row};

use super::Block;
use super::figures::{bytes, count, mean_and_deviation, microseconds, per_io};
use super::table::{Column, Table, absent, column, label, marked, mean_of};

/// Below the second table.
const COSTS_LEGEND: &str = "cs = context switches, of the arm's process and of the whole system";

/// The widths, with the spaces between and the two before, make the width of a text.
const MAIN: &[Column] = &[
    column(24, "", "arm"),
    column(10, "", "MB/s"),
    column(17, "", "ratio [95 %]"),
    column(8, "", "memory"),
    column(6, "sync", "p99"),
    column(8, "extents", "per file"),
];

const COSTS: &[Column] = &[
    column(24, "", "arm"),
    column(7, "own", "cs/I/O"),
    column(7, "system", "cs/I/O"),
    column(7, "CPU us", "per I/O"),
    column(9, "doorbells", "per I/O"),
    column(9, "written", "per asked"),
    column(8, "peak", "dirty"),
];

/// Both tables of each job.
pub(super) fn blocks(document: &Document, part: &Part) -> Vec<Block> {
    let mut blocks = Vec::new();
    for job in &part.jobs {
        let base = job.base.as_deref();
        let shown = Shown { document, job: &job.name };
        blocks.extend([
            Block::Table(shown.main(base)),
            Block::Text(super::noise(document, part, &job.name)),
            Block::Gap,
            Block::Table(shown.costs()),
            Block::Text(COSTS_LEGEND.to_owned()),
        ]);
    }
    blocks
}

/// The arm the others were compared with, in a document that does not say: the base of every throughput pair but the
/// A/A pair and the one with plain buffering.
pub(super) fn base_of(document: &Document) -> Option<String> {
    let extra = [Arm::Forebay.name(), Arm::KernelBuffered.name()];
    let mut comparisons = document.comparisons.iter().filter(|one| one.metric == THROUGHPUT);
    comparisons.find(|one| !extra.contains(&one.base.as_str())).map(|one| one.base.clone())
}

/// The comparison of an arm with another, by throughput.
pub(super) fn compared<'a>(document: &'a Document, base: &str, arm: &str) -> Option<&'a Comparison> {
    let mut comparisons = document.comparisons.iter();
    comparisons.find(|one| one.metric == THROUGHPUT && one.base == base && one.arm == arm)
}

struct Shown<'a> {
    document: &'a Document,
    job: &'a str,
}

impl<'a> Shown<'a> {
    fn row(&self, arm: &str, metric: &str) -> Option<&'a Row> {
        self.document.row_of(self.job, arm, metric)
    }

    fn main(&self, base: Option<&str>) -> Table {
        let lines = self.document.arms_of(self.job).into_iter().map(|arm| {
            let speed = self.row(arm, THROUGHPUT);
            let speed = speed.map(|row| mean_and_deviation(row.mean / 1e6, row.stddev.map(|sd| sd / 1e6)));
            let ratio = match base {
                Some(base) if base == arm => "1 (base)".to_owned(),
                Some(base) => marked(compared(self.document, base, arm)),
                None => absent(),
            };
            vec![
                label(arm),
                speed.unwrap_or_else(absent),
                ratio,
                mean_of(self.row(arm, "peak_memory_bytes"), bytes),
                mean_of(self.row(arm, "sync_probe_p99_us"), microseconds),
                mean_of(self.row(arm, "extents_per_file"), count),
            ]
        });
        Table { columns: MAIN.into(), lines: lines.collect() }
    }

    fn costs(&self) -> Table {
        let lines = self.document.arms_of(self.job).into_iter().map(|arm| {
            vec![
                label(arm),
                mean_of(self.row(arm, "context_switches_per_io"), per_io),
                mean_of(self.row(arm, "system_context_switches_per_io"), per_io),
                mean_of(self.row(arm, "cpu_us_per_io"), per_io),
                mean_of(self.row(arm, "doorbells_per_io"), per_io),
                mean_of(self.row(arm, "written_per_asked"), per_io),
                mean_of(self.row(arm, "peak_dirty_bytes"), bytes),
            ]
        });
        Table { columns: COSTS.into(), lines: lines.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::table::assert_fits;

    #[test]
    fn the_columns_fit_the_width() {
        assert_fits(MAIN);
        assert_fits(COSTS);
    }
}
