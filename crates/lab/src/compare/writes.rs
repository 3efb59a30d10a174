//! The limit of all writes, and the bytes written so far: flash wears out, and a shared device
//! belongs to others too.

use std::cell::Cell;

use crate::cell::{CellResult, Work};

use super::outcome::CompareError;

/// Bytes that may be written and were, over all parts.
#[derive(Clone, Debug, Default)]
pub struct Writes {
    most: Option<u64>,
    done: Cell<u64>,
    /// The most that a cell wrote whose work is not a number of bytes.
    largest: Cell<u64>,
}

impl Writes {
    /// Returns a limit; none allows any number of bytes.
    pub fn up_to(most: Option<u64>) -> Self {
        Self { most, ..Self::default() }
    }

    pub fn most(&self) -> Option<u64> {
        self.most
    }

    /// Returns the bytes written so far, as far as cells report them.
    pub fn done(&self) -> u64 {
        self.done.get()
    }

    /// Returns whether a cell may still do its work: it writes what it says, or, for a time, as
    /// much as the largest so far.
    pub(super) fn allow(&self, work: &Work) -> bool {
        let largest = if work.writes_for_a_time { self.largest.get() } else { 0 };
        self.has_room(work.fixed_bytes().max(largest))
    }

    pub(super) fn has_room(&self, bytes: u64) -> bool {
        self.most.is_none_or(|most| self.done.get().saturating_add(bytes) <= most)
    }

    /// Adds the bytes of a cell, including its files from before the clock.
    pub(super) fn count(&self, work: &Work, result: &CellResult) {
        if !work.writes_for_a_time {
            return self.add(work.fixed_bytes());
        }
        let of = |metric: &str| result.metrics.get(metric).copied().unwrap_or(0.0);
        let rate = of("write_bytes_per_s") + of("beside_bytes_per_s");
        let written = rate * of("elapsed_s");
        debug_assert!(written.is_finite() && written >= 0.0, "{written} bytes were written");
        let bytes = (written as u64).max(work.written_bytes).saturating_add(work.laid_out_bytes);
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
