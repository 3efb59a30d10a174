//! Counters of a queue, and a histogram of latencies.

use core::time::Duration;

use crate::bio::{Bio, Errno, Operation};

/// Counters of a queue since it was created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Bios submitted.
    pub bios: u64,
    /// Requests made of bios.
    pub requests: u64,
    /// Bios merged into the request of another bio.
    pub merged_bios: u64,
    /// Doorbell calls to the device.
    pub doorbells: u64,
    /// Requests submitted with doorbell calls.
    pub dispatched: u64,
    /// Dispatches delayed because more bios were expected.
    pub plug_holds: u64,
    /// Completion runs that ended at least one bio.
    pub completion_runs: u64,
    /// Bios ended in these runs.
    pub completions: u64,
    /// Completion runs that ended held bios.
    pub completion_holds: u64,
    /// Sum of the times that the first bio of each was held, in nanoseconds.
    pub completion_held_nanoseconds: u64,
    /// Bios that the device is done with, successfully or not.
    pub completed_bios: u64,
    /// Requests submitted again because they were short, interrupted, would have blocked, or failed
    /// after a merge.
    pub resubmitted: u64,
    /// Bytes of successful writes, including zeroes.
    pub written_bytes: u64,
    /// Zero bytes among the bytes written.
    pub zero_bytes: u64,
    /// Bytes of successful reads.
    pub read_bytes: u64,
}

impl core::ops::AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        // Each field is named, so that a new one cannot be forgotten.
        let Self {
            bios,
            requests,
            merged_bios,
            doorbells,
            dispatched,
            plug_holds,
            completion_runs,
            completions,
            completion_holds,
            completion_held_nanoseconds,
            completed_bios,
            resubmitted,
            written_bytes,
            zero_bytes,
            read_bytes,
        } = other;
        self.bios += bios;
        self.requests += requests;
        self.merged_bios += merged_bios;
        self.doorbells += doorbells;
        self.dispatched += dispatched;
        self.plug_holds += plug_holds;
        self.completion_runs += completion_runs;
        self.completions += completions;
        self.completion_holds += completion_holds;
        self.completion_held_nanoseconds += completion_held_nanoseconds;
        self.completed_bios += completed_bios;
        self.resubmitted += resubmitted;
        self.written_bytes += written_bytes;
        self.zero_bytes += zero_bytes;
        self.read_bytes += read_bytes;
    }
}

impl Counters {
    #[inline]
    pub(crate) fn add(&mut self, bio: &Bio, result: Result<u64, Errno>) {
        self.completed_bios += 1;
        let Ok(bytes) = result else { return };
        match bio.operation {
            Operation::Read => self.read_bytes += bytes,
            Operation::Write | Operation::WriteFua | Operation::WriteBuffered => {
                self.written_bytes += bytes;
                self.zero_bytes += bio.zero_bytes();
            }
            _ => {}
        }
    }
}

/// Buckets per doubling.
const FINE: u32 = 4;

/// Histogram of durations with four buckets per doubling, so that a percentile is exact to a
/// quarter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Latency {
    buckets: [u64; 64 * FINE as usize],
    count: u64,
}

impl Default for Latency {
    fn default() -> Self {
        Self { buckets: [0; 64 * FINE as usize], count: 0 }
    }
}

impl core::ops::AddAssign<&Latency> for Latency {
    fn add_assign(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(bucket, more)| *bucket += more);
        self.count += other.count;
    }
}

impl Latency {
    /// Adds `count` durations of `nanoseconds` each.
    #[inline]
    pub fn add(&mut self, nanoseconds: u64, count: u64) {
        self.buckets[bucket(nanoseconds.max(1))] += count;
        self.count += count;
    }

    /// Returns the number of durations added.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns a percentile in per mille, such as 990 for the 99th, as the upper edge of its
    /// bucket. Returns zero if the histogram is empty.
    #[must_use]
    pub fn per_mille(&self, share: u64) -> Duration {
        let wanted = (self.count * share.min(1000)).div_ceil(1000).max(1);
        let mut seen = 0;
        for (index, &count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Duration::from_nanos(upper_edge(index));
            }
        }
        Duration::ZERO
    }

    /// Returns the lower edge and the count of each bucket that is not empty, shortest first.
    pub fn reported(&self) -> impl Iterator<Item = (Duration, u64)> {
        let buckets = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        buckets.map(|(index, &count)| (Duration::from_nanos(lower_edge(index)), count))
    }
}

#[inline]
fn bucket(nanoseconds: u64) -> usize {
    let power = nanoseconds.ilog2();
    let fine = if power < 2 { 0 } else { (nanoseconds >> (power - 2)) & 3 };
    (power * FINE) as usize + fine as usize
}

fn lower_edge(index: usize) -> u64 {
    if index == 0 { 0 } else { upper_edge(index - 1) + 1 }
}

fn upper_edge(index: usize) -> u64 {
    let (power, fine) = (index as u32 / FINE, index as u64 % u64::from(FINE));
    if power < 2 {
        return (2 << power) - 1;
    }
    let step = 1u64 << (power - 2);
    ((1u64 << power) - 1).saturating_add(step * (fine + 1))
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    #[test]
    fn percentiles_are_within_a_quarter() {
        let mut latency = Latency::default();
        assert_eq!(latency.per_mille(500), Duration::ZERO);
        for microseconds in 1..=1000 {
            latency.add(microseconds * 1000, 1);
        }
        assert_eq!(latency.count(), 1000);
        for share in [1, 10, 500, 990, 999, 1000] {
            let reported = latency.per_mille(share).as_nanos() as f64 / 1000.0;
            assert!((share as f64..share as f64 * 1.26).contains(&reported), "{share}: {reported}");
        }
    }

    #[test]
    fn every_time_has_a_bucket() {
        let mut latency = Latency::default();
        for power in 0..64 {
            for nanoseconds in [1u64 << power, (1 << power) + 1, u64::MAX >> power] {
                let edge = upper_edge(bucket(nanoseconds));
                assert!(edge >= nanoseconds, "{nanoseconds} {edge}");
            }
        }
        latency.add(u64::MAX, 1);
        latency.add(0, 1);
        assert_eq!(latency.count(), 2);
    }

    #[test]
    fn counts_are_returned_with_the_lower_edge_of_each_bucket() {
        let mut latency = Latency::default();
        assert_eq!(latency.reported().count(), 0);
        [(0, 3), (2, 1), (1_000_000, 7), (1_048_575, 1), (1_048_576, 2), (u64::MAX, 1)]
            .iter()
            .for_each(|&(nanoseconds, count)| latency.add(nanoseconds, count));
        let reported: Vec<_> =
            latency.reported().map(|(least, count)| (least.as_nanos() as u64, count)).collect();
        assert_eq!(reported, [(0, 3), (2, 1), (917_504, 8), (1_048_576, 2), (7 << 61, 1)]);
        for nanoseconds in
            (1..4096).chain((12..64).flat_map(|power| [(1 << power) - 1, 1 << power]))
        {
            let bucket = bucket(nanoseconds);
            assert!(
                lower_edge(bucket) <= nanoseconds && nanoseconds <= upper_edge(bucket),
                "{nanoseconds}"
            );
        }
    }
}
