//! When a request of a disk ends that sells a number of requests and bytes a second.
//!
//! Each of the two is a budget with a moment up to which it is spent. A request moves that moment
//! by its cost, and ends when both budgets have come to it. An idle budget falls behind the clock
//! by [`CREDIT`] at most, so what it does not sell is lost, as on a real disk. Nothing here reads a
//! clock.

use super::{Charges, REQUEST_BYTES};

/// Credit that an idle disk gathers, in nanoseconds. It covers the time that the one thread of
/// a loop device waits for a flush.
pub(super) const CREDIT: u64 = 10_000_000;

/// The budgets of a disk. Moments are nanoseconds of any clock.
#[derive(Debug)]
pub(super) struct Meter {
    requests: Option<Budget>,
    bytes: Option<Budget>,
}

#[derive(Debug)]
struct Budget {
    per_second: u64,
    spent_to: u64,
}

impl Budget {
    /// Takes units at a moment. Returns when they are paid.
    fn take(&mut self, now: u64, units: u64) -> u64 {
        let cost = u128::from(units) * 1_000_000_000 / u128::from(self.per_second);
        let cost = u64::try_from(cost).unwrap_or(u64::MAX);
        self.spent_to = self.spent_to.max(now.saturating_sub(CREDIT)).saturating_add(cost);
        self.spent_to
    }
}

impl Meter {
    pub(super) fn new(charges: Charges) -> Self {
        let budget = |per_second: Option<u64>| {
            per_second.map(|per_second| Budget { per_second, spent_to: 0 })
        };
        Self {
            requests: budget(charges.requests_per_second),
            bytes: budget(charges.bytes_per_second),
        }
    }

    /// Counts a request at a moment. Returns the moment when it may end.
    pub(super) fn take(&mut self, now: u64, bytes: u64) -> u64 {
        let requests = bytes.div_ceil(REQUEST_BYTES).max(1);
        let by_requests = self.requests.as_mut().map(|budget| budget.take(now, requests));
        let by_bytes = self.bytes.as_mut().map(|budget| budget.take(now, bytes));
        by_requests.max(by_bytes).map_or(now, |end| end.max(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn meter(requests: Option<u64>, bytes: Option<u64>) -> Meter {
        let charges =
            Charges { requests_per_second: requests, bytes_per_second: bytes, flush_us: None };
        Meter::new(charges)
    }

    #[test]
    fn small_requests_are_limited_by_their_number_and_large_ones_by_their_bytes() {
        let end_of = |bytes: u64, count: u64| {
            let mut meter = meter(Some(3000), Some(125_000_000));
            (0..count).map(|_| meter.take(10 * SECOND, bytes)).last().unwrap() - 10 * SECOND
        };
        let seconds = |nanoseconds: u64| (nanoseconds + CREDIT) as f64 / 1e9;
        assert!((seconds(end_of(4096, 3000)) - 1.0).abs() < 0.001);
        assert!((seconds(end_of(1 << 20, 250)) - 250.0 * 1_048_576.0 / 125e6).abs() < 0.001);
        // A request of 1 MiB counts as four.
        let mut few = meter(Some(100), None);
        let last = (0..100).map(|_| few.take(10 * SECOND, 1 << 20)).last().unwrap();
        assert!((seconds(last - 10 * SECOND) - 4.0).abs() < 0.001);
    }

    #[test]
    fn an_idle_disk_gathers_little() {
        let mut meter = meter(Some(1000), None);
        assert_eq!(meter.take(10 * SECOND, 512), 10 * SECOND, "paid by the credit");
        let ends: Vec<u64> = (0..20).map(|_| meter.take(10 * SECOND, 512)).collect();
        let at_once = ends.iter().filter(|end| **end == 10 * SECOND).count() as u64;
        assert_eq!(at_once, CREDIT / 1_000_000 - 1);
        assert_eq!(ends[19] - 10 * SECOND, 21_000_000 - CREDIT);
    }

    #[test]
    fn a_disk_that_charges_nothing_ends_at_once() {
        assert_eq!(meter(None, None).take(7, 1 << 20), 7);
    }
}
