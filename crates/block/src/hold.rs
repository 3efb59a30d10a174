//! Hold: whether reaped completions are ended now, or held for a fixed time and ended together in
//! one run. No hold outlasts the requests in flight: once all are here, they end.

use core::time::Duration;

use crate::knobs::Holding;
use crate::time::Moment;

/// Arrival time of the first held completion.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    since: Option<Moment>,
}

impl Hold {
    /// Records that completions have arrived.
    #[inline]
    pub(crate) fn came(&mut self, now: Moment) {
        self.since.get_or_insert(now);
    }

    /// Ends the hold. Returns how long the first completion was held.
    #[inline]
    pub(crate) fn end(&mut self, now: Moment) -> Duration {
        self.since.take().map_or(Duration::ZERO, |since| now - since)
    }

    /// Returns the deadline of the hold, or `None` if no completion is held.
    #[inline]
    pub(crate) fn due(&self, holding: Holding) -> Option<Moment> {
        let delay = match holding {
            Holding::Immediate => Duration::ZERO,
            Holding::Delay(delay) => delay,
        };
        Some(self.since? + delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contract_16_a_hold_has_an_end_and_is_not_begun_anew() {
        let at = |microseconds: u64| Moment::from_nanoseconds(microseconds * 1000);
        let delay = Holding::Delay(Duration::from_millis(1));
        let mut hold = Hold::default();
        assert_eq!(hold.due(delay), None);
        hold.came(at(7));
        hold.came(at(907));
        assert_eq!(hold.due(delay), Some(at(1007)));
        assert_eq!(hold.due(Holding::Immediate), Some(at(7)));
        assert_eq!(hold.end(at(1010)), Duration::from_micros(1003));
        assert_eq!((hold.due(delay), hold.end(at(1011))), (None, Duration::ZERO));
    }
}
