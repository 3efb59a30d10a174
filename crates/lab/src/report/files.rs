//! The tables of work on new files: speed, memory, time of a sync beside it, layout; then the cost
//! of an I/O.

use crate::arm::Arm;
use crate::compare::judge::THROUGHPUT;
use crate::schema::{Document, Part};

use super::Block;
use super::column::{Cell, Column, RATIO, column};
use super::figures::{count, per_io, size, time};
use super::reader::Reader;
use super::table::Table;

/// Below the second table.
const COSTS_LEGEND: &str = "cs: context switches of the arm's process and of the whole system; \
    bells: system calls that submit requests; written / asked: bytes of the device per byte of the caller";

/// Columns that other tables of work on files have too.
pub(super) const RATE: Column = column(9, "", "MB/s", Cell::Spread(THROUGHPUT, 1e6));
pub(super) const MEMORY: Column = column(6, "", "memory", Cell::Mean("peak_memory_bytes", size));
pub(super) const SYNC: Column = column(5, "sync", "p99", Cell::Mean("sync_probe_p99_us", time));
pub(super) const PIECES: Column =
    column(6, "pieces", "a file", Cell::Mean("extents_per_file", count));
pub(super) const OWN: Column =
    column(6, "own", "cs/I/O", Cell::Mean("context_switches_per_io", per_io));
pub(super) const SYSTEM: Column =
    column(6, "system", "cs/I/O", Cell::Mean("system_context_switches_per_io", per_io));
pub(super) const CPU: Column = column(6, "CPU us", "/ I/O", Cell::Mean("cpu_us_per_io", per_io));
pub(super) const WRITTEN: Column =
    column(7, "written", "/ asked", Cell::Mean("written_per_asked", per_io));
pub(super) const DIRTY: Column = column(6, "peak", "dirty", Cell::Mean("peak_dirty_bytes", size));

const MAIN: &[Column] = &[column(24, "", "arm", Cell::Label), RATE, RATIO, MEMORY, SYNC, PIECES];

const COSTS: &[Column] = &[
    column(24, "", "arm", Cell::Label),
    OWN,
    SYSTEM,
    CPU,
    column(5, "bells", "/ I/O", Cell::Mean("doorbells_per_io", per_io)),
    WRITTEN,
    DIRTY,
];

/// Both tables of each job.
pub(super) fn blocks(document: &Document, part: &Part) -> Vec<Block> {
    let of_job = |reader: Reader<'_>| {
        let arms = reader.arms();
        [
            Block::Table(Table::of_arms(MAIN, reader, &arms)),
            Block::Text(reader.noise()),
            Block::Gap,
            Block::Table(Table::of_arms(COSTS, reader, &arms)),
            Block::Text(COSTS_LEGEND.to_owned()),
        ]
    };
    Reader::all(document, part).flat_map(of_job).collect()
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
