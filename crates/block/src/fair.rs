//! Fair: sources share the device by bytes.
//!
//! Start-time fair queueing (P. Goyal, H. M. Vin, H. Cheng, SIGCOMM 1996) with sources hashed to a
//! fixed number of flows, as in stochastic fairness queueing (P. E. McKenney, INFOCOM 1990): each
//! request begins, in virtual time, where its flow's last one ended, or now if that is later; the
//! queue serves what begins first. A flow of few and small requests is thus served at once beside
//! one with a long backlog, and nothing is counted for time spent idle. With one source this is the
//! order of arrival.
//!
//! The price: two sources that fall on one flow share what one would get.

use crate::bio::Source;
use crate::limits::{FLOWS, REQUEST_COST_BYTES};

/// What each flow has used.
#[derive(Debug)]
pub(crate) struct Fair {
    /// Virtual bytes: where the last request that was served began.
    now: u64,
    /// Where each flow's last request ends.
    ends: [u64; FLOWS],
}

impl Fair {
    pub(crate) fn new() -> Self {
        Self { now: 0, ends: [0; FLOWS] }
    }

    /// Where a request of so many bytes begins.
    #[inline]
    pub(crate) fn start(&mut self, source: Source, bytes: u64) -> u64 {
        let end = &mut self.ends[source.0 as usize % FLOWS];
        let start = self.now.max(*end);
        *end = start + bytes + REQUEST_COST_BYTES;
        start
    }

    /// The request that began there is served.
    #[inline]
    pub(crate) fn served(&mut self, start: u64) {
        self.now = self.now.max(start);
    }
}

impl Default for Fair {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contract_15_one_source_is_served_in_order() {
        let mut fair = Fair::new();
        let starts = [4096, 0, 1 << 20, 512].map(|bytes| fair.start(Source(9), bytes));
        assert!(starts.is_sorted_by(|one, next| one < next));
    }

    #[test]
    fn contract_15_a_small_source_is_not_behind_a_long_backlog() {
        let mut fair = Fair::new();
        let backlog = [1 << 20; 4].map(|bytes| fair.start(Source(1), bytes));
        fair.served(backlog[0]);
        let small = fair.start(Source(2), 4096);
        assert!(small < backlog[1]);
        fair.served(backlog[3]);
        assert!(fair.start(Source(3), 1) >= backlog[3], "idle time is not saved up");
    }
}
