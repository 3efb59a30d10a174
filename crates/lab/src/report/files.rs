//! The tables of work on new files: how fast, with how much memory, how long a sync takes beside
//! it, what it leaves behind; then what an I/O costs.

use crate::arm::Arm;
use crate::compare::judge::THROUGHPUT;
use crate::schema::{Document, Part};

use super::figures::{count, per_io, size, time};
use super::table::{Column, Table, column, label, mean_of, spread_of};
use super::{Block, of_arms, to_base};

/// Below the second table.
const COSTS_LEGEND: &str = "cs: context switches of the arm's process and of the whole system; \
    bells: system calls that submit requests; written / asked: bytes of the device per byte of the caller";

/// The widths, with the spaces between and the two before, make the width of a text.
const MAIN: &[Column] = &[
    column(24, "", "arm"),
    column(9, "", "MB/s"),
    column(17, "", "ratio [95 %]"),
    column(6, "", "memory"),
    column(5, "sync", "p99"),
    column(6, "pieces", "a file"),
];

const COSTS: &[Column] = &[
    column(24, "", "arm"),
    column(6, "own", "cs/I/O"),
    column(6, "system", "cs/I/O"),
    column(6, "CPU us", "/ I/O"),
    column(5, "bells", "/ I/O"),
    column(7, "written", "/ asked"),
    column(6, "peak", "dirty"),
];

/// Both tables of each job.
pub(super) fn blocks(document: &Document, part: &Part) -> Vec<Block> {
    let mut blocks = Vec::new();
    for job in &part.jobs {
        let row = |arm: &str, metric: &str| document.row_of(&job.name, arm, metric);
        let main = |arm: &str| {
            vec![
                label(arm),
                spread_of(row(arm, THROUGHPUT), 1e6),
                to_base(document, part, job, arm),
                mean_of(row(arm, "peak_memory_bytes"), size),
                mean_of(row(arm, "sync_probe_p99_us"), time),
                mean_of(row(arm, "extents_per_file"), count),
            ]
        };
        let costs = document.arms_of(&job.name).into_iter().map(|arm| {
            vec![
                label(arm),
                mean_of(row(arm, "context_switches_per_io"), per_io),
                mean_of(row(arm, "system_context_switches_per_io"), per_io),
                mean_of(row(arm, "cpu_us_per_io"), per_io),
                mean_of(row(arm, "doorbells_per_io"), per_io),
                mean_of(row(arm, "written_per_asked"), per_io),
                mean_of(row(arm, "peak_dirty_bytes"), size),
            ]
        });
        blocks.extend(of_arms(document, part, job, MAIN, main));
        blocks.extend([
            Block::Gap,
            Block::Table(Table { columns: COSTS.into(), lines: costs.collect() }),
            Block::Text(COSTS_LEGEND.to_owned()),
        ]);
    }
    blocks
}

/// The arm the others were compared with, in a document that does not say: the base of every
/// throughput pair but the A/A pair and the one with plain buffering.
pub(super) fn base_of(document: &Document) -> Option<String> {
    let extra = [Arm::Forebay.name(), Arm::KernelBuffered.name()];
    let mut comparisons = document.comparisons.iter().filter(|one| one.metric == THROUGHPUT);
    comparisons.find(|one| !extra.contains(&one.base.as_str())).map(|one| one.base.clone())
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
