//! Counts of operations that have ended: how many, how many bytes, and how long.

use std::time::Duration;

use hdrhistogram::Histogram;

/// The longest latency that is recorded as it is, in nanoseconds: an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;

#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub(crate) operations: u64,
    pub(crate) bytes: u64,
    /// In nanoseconds.
    pub(crate) latencies: Histogram<u64>,
}

/// Returns an empty histogram of latencies in nanoseconds. All have the same bounds.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("these bounds make a histogram")
}

impl Tally {
    /// Returns an empty tally.
    pub(crate) fn new() -> Self {
        Self { operations: 0, bytes: 0, latencies: histogram() }
    }

    /// Returns a tally that stays empty, with nearly no memory.
    pub(crate) fn unused() -> Self {
        let latencies = Histogram::new_with_bounds(1, 2, 1).expect("these bounds make a histogram");
        Self { operations: 0, bytes: 0, latencies }
    }

    /// Adds the tally of another job.
    pub(crate) fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.latencies.add(&other.latencies).expect("histograms of the same bounds add");
    }

    /// Counts `count` operations of `bytes` bytes each that took equally long.
    #[inline]
    pub(crate) fn record(&mut self, bytes: u32, count: u64, took: Duration) {
        debug_assert!(count > 0, "nothing ended");
        self.operations += count;
        self.bytes += u64::from(bytes) * count;
        self.latencies.saturating_record_n((took.as_nanos() as u64).max(1), count);
    }

    /// Returns what was counted and begins anew. The memory of a new histogram is not touched yet,
    /// so that it is in no figure.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_that_are_alike_count_one_by_one() {
        let (mut together, mut alone) = (Tally::new(), Tally::new());
        let took = Duration::from_micros(5);
        together.record(4096, 3, took);
        (0..3).for_each(|_| alone.record(4096, 1, took));
        assert_eq!((together.operations, together.bytes), (3, 3 * 4096));
        assert_eq!((together.latencies.len(), &together.latencies), (3, &alone.latencies));
        assert_eq!(together.take().operations, 3);
        assert_eq!((together.operations, together.latencies.len()), (0, 0));
    }
}
