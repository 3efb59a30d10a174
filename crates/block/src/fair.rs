//! Fair: sources share the device by bytes.
//!
//! Start-time fair queueing (P. Goyal, H. M. Vin, H. Cheng, SIGCOMM 1996) with sources hashed to a
//! fixed number of flows, as in stochastic fairness queueing (P. E. McKenney, INFOCOM 1990). Each
//! request begins, in virtual time, at the end of its flow's last request, or now if that is later.
//! The queue serves the request that begins first.
//!
//! So a flow of few small requests is served at once beside one with a long backlog, and a flow
//! saves up nothing while it is idle. With one source this is the order of arrival.
//!
//! The price: two sources that hash to one flow share the bandwidth of one.

use crate::bio::Source;
use crate::limits::{FLOWS, REQUEST_COST_BYTES};

/// Virtual time of the queue and of each flow, in bytes.
#[derive(Debug)]
pub(crate) struct Fair {
    /// Beginning of the request that was served last, or of a later one served before it.
    now: u64,
    /// End of each flow's last request.
    ends: [u64; FLOWS],
}

impl Fair {
    pub(crate) fn new() -> Self {
        Self { now: 0, ends: [0; FLOWS] }
    }

    /// Returns the beginning of a request of `bytes` bytes, and charges the flow for it.
    #[inline]
    pub(crate) fn start(&mut self, source: Source, bytes: u64) -> u64 {
        let end = &mut self.ends[source.0 as usize % FLOWS];
        let start = self.now.max(*end);
        *end = start + bytes + REQUEST_COST_BYTES;
        start
    }

    /// Advances virtual time to `start`, the beginning of a request that is served now.
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
