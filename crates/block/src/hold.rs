//! Hold: whether reaped completions are ended now, or held to be ended together in one run.
//!
//! `Adaptive` holds completions only if that forms a batch: at the present arrival rate, enough
//! further completions must be expected before the deadline. It never holds
//!
//! - while a caller waits for a request in flight,
//! - when all requests in flight have completed,
//! - when a full batch or a quarter of the requests in flight has completed: a closed loop would
//!   stall, waiting for the completions that are held.

use core::time::Duration;

use crate::device::Wait;
use crate::knobs::Holding;
use crate::limits::{BATCH_REQUESTS, DEVICE_HOLD};
use crate::time::Moment;

/// Completions that must be expected within the time of a hold.
const WORTH: u64 = 4;

/// Arrival times of completions.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    /// When the first held completion arrived.
    since: Option<Moment>,
    /// When the latest completions arrived.
    last: Option<Moment>,
    /// Nanoseconds between two completions, as a moving average over about eight looks.
    gap: u64,
}

/// Number of requests in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlight {
    /// All requests, including those whose completions are held.
    pub(crate) requests: usize,
    /// Requests that a caller waits for, and staged bios that a caller waits for.
    pub(crate) waited: usize,
}

impl Hold {
    /// Records the arrival of `new` completions.
    #[inline]
    pub(crate) fn came(&mut self, new: usize, now: Moment) {
        if new == 0 {
            return;
        }
        if let Some(last) = self.last {
            let gap = now.nanoseconds_since(last).min(1 << 40) / new as u64;
            self.gap = self.gap - self.gap / 8 + gap / 8;
        }
        self.last = Some(now);
        self.since.get_or_insert(now);
    }

    /// Returns whether the `here` completions that have arrived are held.
    #[inline]
    pub(crate) fn keeps(
        &self,
        holding: Holding,
        here: usize,
        flight: InFlight,
        now: Moment,
    ) -> bool {
        debug_assert!(here <= flight.requests, "completions of requests that are not in flight");
        let Some(since) = self.since else { return false };
        match holding {
            Holding::Immediate => false,
            Holding::Delay(delay) => now - since < delay,
            Holding::Adaptive => {
                here < most(flight) && DEVICE_HOLD.saturating_sub(now - since) > self.worth()
            }
        }
    }

    /// Ends the hold. Returns how long the first completion was held.
    #[inline]
    pub(crate) fn end(&mut self, now: Moment) -> Duration {
        self.since.take().map_or(Duration::ZERO, |since| now - since)
    }

    /// Returns the deadline of the hold, or `None` if no completion is held.
    pub(crate) fn due(&self, holding: Holding) -> Option<Moment> {
        let since = self.since?;
        match holding {
            Holding::Immediate => Some(since),
            Holding::Delay(delay) => Some(since + delay),
            Holding::Adaptive => Some(since + DEVICE_HOLD),
        }
    }

    /// Returns a wait that lets the device gather a batch, if the policy wants one, and a plain
    /// wait otherwise.
    pub(crate) fn gathering(
        &self,
        holding: Holding,
        flight: InFlight,
        limit: Option<Duration>,
    ) -> Wait {
        let want = most(flight);
        if holding != Holding::Adaptive
            || self.since.is_some()
            || want < 2
            || DEVICE_HOLD <= self.worth()
        {
            return Wait::Something(limit);
        }
        Wait::Batch { want: want as u32, within: DEVICE_HOLD, limit }
    }

    /// Returns how long it takes until enough completions arrive to make a hold worth it.
    fn worth(&self) -> Duration {
        Duration::from_nanos(self.gap.saturating_mul(WORTH))
    }
}

/// Returns the number of completions that form a batch.
#[inline]
fn most(flight: InFlight) -> usize {
    if flight.waited > 0 { 0 } else { (flight.requests / 4).min(BATCH_REQUESTS) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY: InFlight = InFlight { requests: 128, waited: 0 };

    fn at(microseconds: u64) -> Moment {
        Moment::from_nanoseconds(microseconds * 1000)
    }

    /// A hold that has seen completions arrive one at a time, `gap` microseconds apart, and the
    /// time of the last.
    fn coming(gap: u64) -> (Hold, u64) {
        let mut hold = Hold::default();
        let mut now = 0;
        for _ in 0..100 {
            hold.came(1, at(now));
            hold.end(at(now));
            now += gap;
        }
        hold.came(1, at(now));
        (hold, now)
    }

    #[test]
    fn contract_16_a_hold_has_an_end() {
        let (hold, now) = coming(1);
        assert!(hold.keeps(Holding::Adaptive, 1, BUSY, at(now)));
        assert!(!hold.keeps(Holding::Adaptive, 1, BUSY, at(now) + DEVICE_HOLD));
        assert_eq!(hold.due(Holding::Adaptive), Some(at(now) + DEVICE_HOLD));
        let delay = Holding::Delay(Duration::from_millis(1));
        assert!(hold.keeps(delay, 1, BUSY, at(now + 999)));
        assert!(!hold.keeps(delay, 1, BUSY, at(now + 1000)));
        assert!(!hold.keeps(Holding::Immediate, 1, BUSY, at(now)));
    }

    #[test]
    fn a_delay_is_not_begun_anew() {
        let (mut hold, now) = coming(1);
        hold.came(5, at(now + 900));
        assert_eq!(hold.due(Holding::Delay(Duration::from_millis(1))), Some(at(now + 1000)));
    }

    #[test]
    fn nothing_is_held_without_a_batch_or_while_a_caller_waits() {
        let (hold, now) = coming(1);
        let waited = InFlight { requests: 128, waited: 1 };
        assert!(!hold.keeps(Holding::Adaptive, 1, waited, at(now)));
        assert!(!hold.keeps(Holding::Adaptive, 32, BUSY, at(now)), "a batch is here");
        assert!(!hold.keeps(Holding::Adaptive, 2, InFlight { requests: 8, waited: 0 }, at(now)));
        assert!(!hold.keeps(Holding::Adaptive, 1, InFlight { requests: 1, waited: 0 }, at(now)));
        let (slow, now) = coming(20);
        assert!(!slow.keeps(Holding::Adaptive, 1, BUSY, at(now)));
    }

    #[test]
    fn the_device_gathers_only_if_no_caller_waits() {
        let (mut hold, _) = coming(1);
        hold.end(at(0));
        let waited = InFlight { requests: 128, waited: 1 };
        assert_eq!(hold.gathering(Holding::Adaptive, waited, None), Wait::Something(None));
        assert_eq!(hold.gathering(Holding::Immediate, BUSY, None), Wait::Something(None));
        let batch = Wait::Batch { want: 32, within: DEVICE_HOLD, limit: None };
        assert_eq!(hold.gathering(Holding::Adaptive, BUSY, None), batch);
    }
}
