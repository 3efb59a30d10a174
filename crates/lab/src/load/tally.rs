//! Counts of operations that have ended: how many, how many bytes, how long, and when.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::detail::Course;

/// The longest latency that is recorded as it is, in nanoseconds: an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;

#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub(crate) operations: u64,
    pub(crate) bytes: u64,
    /// In nanoseconds.
    pub(crate) latencies: Histogram<u64>,
    /// Throughput since counting began, if it is kept.
    pub(crate) course: Option<Course>,
}

/// Returns an empty histogram of latencies in nanoseconds. All have the same bounds.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("these bounds make a histogram")
}

impl Tally {
    /// Returns an empty tally without a course.
    pub(crate) fn new() -> Self {
        Self { operations: 0, bytes: 0, latencies: histogram(), course: None }
    }

    /// Returns a tally that stays empty, with nearly no memory.
    pub(crate) fn unused() -> Self {
        let latencies = Histogram::new_with_bounds(1, 2, 1).expect("these bounds make a histogram");
        Self { operations: 0, bytes: 0, latencies, course: None }
    }

    /// Returns an empty tally that keeps its course.
    pub(crate) fn with_course() -> Self {
        Self { course: Some(Course::new()), ..Self::new() }
    }

    /// Adds the tally of another job that began counting `later`.
    pub(crate) fn add(&mut self, other: &Self, later: Duration) {
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.latencies.add(&other.latencies).expect("histograms of the same bounds add");
        if let Some((own, other)) = self.course.as_mut().zip(other.course.as_ref()) {
            own.add(other, later.as_nanos() as u64);
        }
    }

    /// Counts `count` operations of `bytes` bytes each that took equally long and ended `after` the
    /// start of counting.
    #[inline]
    pub(crate) fn record(&mut self, bytes: u32, count: u64, took: Duration, after: Duration) {
        debug_assert!(count > 0, "nothing ended");
        self.operations += count;
        self.bytes += u64::from(bytes) * count;
        self.latencies.saturating_record_n((took.as_nanos() as u64).max(1), count);
        if let Some(course) = &mut self.course {
            course.record_all(after.as_nanos() as u64, u64::from(bytes) * count, count);
        }
    }

    /// Returns what was counted and begins anew. The memory of a new histogram is not touched yet,
    /// so that it is in no figure.
    pub(crate) fn take(&mut self) -> Self {
        let empty = if self.course.is_some() { Self::with_course() } else { Self::new() };
        std::mem::replace(self, empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_that_are_alike_count_one_by_one() {
        let (mut together, mut alone) = (Tally::with_course(), Tally::with_course());
        let (took, after) = (Duration::from_micros(5), Duration::from_millis(25));
        together.record(4096, 3, took, after);
        (0..3).for_each(|_| alone.record(4096, 1, took, after));
        assert_eq!((together.operations, together.bytes), (3, 3 * 4096));
        assert_eq!((together.latencies.len(), &together.course), (3, &alone.course));
        assert_eq!(together.take().operations, 3);
        assert_eq!((together.operations, together.latencies.len()), (0, 0));
        assert!(together.course.is_some_and(|course| course.is_empty()));
    }
}
