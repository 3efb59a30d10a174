//! The limit of all writes, and the bytes written so far: flash wears out, and a shared device
//! belongs to others too.

use std::cell::Cell;

use crate::cell::{Cell as Run, CellResult};

use super::CompareError;

/// Bytes that may be written and were, over all parts.
#[derive(Clone, Debug, Default)]
pub struct Writes {
    most: Option<u64>,
    done: Cell<u64>,
    /// The most that a cell wrote whose work is not a number of bytes.
    largest: Cell<u64>,
}

impl Writes {
    /// No more than this, or as much as it takes.
    pub fn up_to(most: Option<u64>) -> Self {
        Self { most, ..Self::default() }
    }

    pub fn most(&self) -> Option<u64> {
        self.most
    }

    /// Bytes written so far, as far as cells report them.
    pub fn done(&self) -> u64 {
        self.done.get()
    }

    /// Whether a cell may still do its work: it writes what it says, or, for a time, as much as the
    /// largest so far.
    pub(super) fn allow(&self, cell: &Run) -> bool {
        let largest = if cell.writes_for_a_time() { self.largest.get() } else { 0 };
        self.has_room(cell.fixed_bytes().max(largest))
    }

    pub(super) fn has_room(&self, bytes: u64) -> bool {
        self.most.is_none_or(|most| self.done.get().saturating_add(bytes) <= most)
    }

    /// Adds the bytes of a cell, including its files from before the clock.
    pub(super) fn count(&self, cell: &Run, result: &CellResult) {
        if !cell.writes_for_a_time() {
            return self.add(cell.fixed_bytes());
        }
        let of = |metric: &str| result.metrics.get(metric).copied().unwrap_or(0.0);
        let rate = of("write_bytes_per_s") + of("beside_bytes_per_s");
        let written = rate * of("elapsed_s");
        let bytes =
            (written as u64).max(cell.written_bytes()).saturating_add(cell.laid_out_bytes());
        self.largest.set(self.largest.get().max(bytes));
        self.add(bytes);
    }

    /// Adds bytes written outside of cells.
    pub fn add(&self, bytes: u64) {
        self.done.set(self.done.get().saturating_add(bytes));
    }

    pub(super) fn no_round(&self) -> CompareError {
        let [most, done] =
            [self.most.unwrap_or_default(), self.done.get()].map(|bytes| bytes >> 20);
        CompareError::NoRound(format!(
            "the {most} MiB of --max-writes ({done} MiB were written); raise --max-writes or use a \
             smaller --scale"
        ))
    }
}
