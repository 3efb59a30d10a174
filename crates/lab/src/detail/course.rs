//! Throughput over time. The time that a cell will run is not known beforehand, so the slots begin
//! short and are joined two by two when there are too many: memory is bounded, and no count is
//! lost.

use serde::{Deserialize, Serialize};

/// Slots at most; then two become one.
pub const MOST_SLOTS: usize = 512;

/// The first slots are so long.
const FIRST_NS: u64 = 10_000_000;

/// Bytes and operations that ended, by slot of time.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Course {
    /// Length of a slot in nanoseconds.
    pub interval_ns: u64,
    pub bytes: Vec<u64>,
    pub operations: Vec<u64>,
}

impl Course {
    /// With nothing in it, and room for all there can be.
    pub fn new() -> Self {
        let room = || Vec::with_capacity(MOST_SLOTS);
        Self { interval_ns: FIRST_NS, bytes: room(), operations: room() }
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// An operation ended, so long after the start.
    pub fn record(&mut self, after_ns: u64, bytes: u64) {
        self.record_all(after_ns, bytes, 1);
    }

    /// Adds another course that started `later_ns` later.
    pub fn add(&mut self, other: &Self, later_ns: u64) {
        for (slot, (bytes, operations)) in other.bytes.iter().zip(&other.operations).enumerate() {
            // By the middle of a slot: it may lie in two of ours.
            let after_ns = later_ns + slot as u64 * other.interval_ns + other.interval_ns / 2;
            self.record_all(after_ns, *bytes, *operations);
        }
    }

    /// Bytes in a second, slot by slot. The last is left out where there are others: it was not a
    /// whole one.
    pub fn bytes_per_s(&self) -> impl Iterator<Item = f64> + '_ {
        let slots = self.bytes.len();
        let whole = slots.saturating_sub(1).max(usize::from(slots > 0));
        self.bytes[..whole].iter().map(|bytes| *bytes as f64 * 1e9 / self.interval_ns as f64)
    }

    /// Counts operations that ended this long after the start, and their bytes.
    pub fn record_all(&mut self, after_ns: u64, bytes: u64, operations: u64) {
        let mut slot = (after_ns / self.interval_ns) as usize;
        while slot >= MOST_SLOTS {
            self.join();
            slot = (after_ns / self.interval_ns) as usize;
        }
        if slot >= self.bytes.len() {
            self.bytes.resize(slot + 1, 0);
            self.operations.resize(slot + 1, 0);
        }
        self.bytes[slot] += bytes;
        self.operations[slot] += operations;
    }

    /// Two slots become one.
    fn join(&mut self) {
        self.interval_ns *= 2;
        for counts in [&mut self.bytes, &mut self.operations] {
            for slot in 0..counts.len() {
                let count = std::mem::take(&mut counts[slot]);
                counts[slot / 2] += count;
            }
            counts.truncate(counts.len().div_ceil(2));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_however_long_it_takes() {
        let mut course = Course::new();
        for second in 0..3600_u64 {
            course.record(second * 1_000_000_000, 4096);
        }
        assert!(course.bytes.len() <= MOST_SLOTS && course.bytes.len() > MOST_SLOTS / 4);
        assert_eq!(course.bytes.iter().sum::<u64>(), 3600 * 4096);
        assert_eq!(course.operations.iter().sum::<u64>(), 3600);
        let speeds: Vec<f64> = course.bytes_per_s().collect();
        assert!(speeds.iter().all(|speed| (speed / 4096.0 - 1.0).abs() < 0.15), "{speeds:?}");
    }

    #[test]
    fn several_are_one_after_the_other_where_they_were() {
        let mut all = Course::new();
        let mut one = Course::new();
        one.record(0, 10);
        one.record(25_000_000, 30);
        all.add(&one, 0);
        all.add(&one, 20_000_000);
        assert_eq!(all.bytes, [10, 0, 40, 0, 30]);
        assert_eq!(all.operations, [1, 0, 2, 0, 1]);
    }

    #[test]
    fn a_part_of_a_slot_is_reported_only_where_there_is_no_other() {
        let mut course = Course::new();
        assert_eq!(course.bytes_per_s().count(), 0);
        course.record(1, 10);
        assert_eq!(course.bytes_per_s().collect::<Vec<_>>(), [1000.0]);
        course.record(10_000_001, 5);
        assert_eq!(course.bytes_per_s().collect::<Vec<_>>(), [1000.0]);
    }
}
