//! Unplug: whether the plug is held longer when the caller does not wait.
//!
//! `Always` holds until the plug is full or its time is over, as the kernel's plug does. A caller
//! that goes to sleep unplugs under either policy. `AboveTwo` holds in the same way, but only more
//! than two.
//!
//! `Adaptive` sends the bios that came while the last doorbell call ran. The batch grows by itself
//! when the device is the bottleneck, and an idle device never waits. It holds only if a doorbell
//! call, as measured, costs more time than waiting for the next look adds to all held bios. A look
//! is one dispatch that may hold.

use crate::device::Wait;
use crate::knobs::Plugging;
use crate::limits::PLUG_HOLD;
use crate::time::Moment;

/// One in this many doorbells of a single request is timed.
const MEASURED_ONE_IN: u32 = 64;

/// Measured costs of a doorbell and of a wait, and the start of the present hold.
#[derive(Debug, Default)]
pub(crate) struct Unplug {
    /// Start of the present hold: the first decision to hold this plug.
    since: Option<Moment>,
    /// Nanoseconds that a doorbell call with one request takes, as a moving average; 0 until
    /// measured.
    doorbell: u64,
    seen: u32,
    /// Nanoseconds between two looks, as a moving average.
    look: u64,
    last_look: Option<Moment>,
}

impl Unplug {
    /// Returns whether `plugged` bios are held while `in_flight` requests are at the device. Reads
    /// the clock only if the decision depends on it.
    #[inline]
    pub(crate) fn keeps(
        &mut self,
        plugging: Plugging,
        plugged: usize,
        in_flight: usize,
        now: impl FnOnce() -> Moment,
    ) -> bool {
        match plugging {
            Plugging::Never => false,
            Plugging::Adaptive if in_flight == 0 || self.doorbell == 0 => false,
            Plugging::AboveTwo if plugged <= 2 => false,
            Plugging::Always | Plugging::AboveTwo => !self.is_over(now()),
            Plugging::Adaptive => {
                let now = now();
                self.look_at(now);
                // Decided anew at each look: the plug grows, and with it the cost of waiting.
                self.doorbell > self.look.saturating_mul(plugged as u64) && !self.is_over(now)
            }
        }
    }

    fn look_at(&mut self, now: Moment) {
        if let Some(last) = self.last_look.replace(now) {
            let look = now.nanoseconds_since(last).min(PLUG_HOLD.as_nanos() as u64);
            self.look = self.look - self.look / 8 + look / 8;
        }
    }

    /// Returns whether the hold has lasted its maximum. The hold starts with the first call.
    fn is_over(&mut self, now: Moment) -> bool {
        now - *self.since.get_or_insert(now) >= PLUG_HOLD
    }

    /// Ends the hold, because the plug is dispatched.
    #[inline]
    pub(crate) fn goes(&mut self) {
        self.since = None;
    }

    /// Returns the start of the present hold, if any.
    pub(crate) fn since(&self) -> Option<Moment> {
        self.since
    }

    /// Returns whether to time the next doorbell. Only doorbells with one request and no wait are
    /// timed, because requests and waits have costs of their own.
    #[inline]
    pub(crate) fn measures(&mut self, requests: usize, wait: Wait) -> bool {
        if requests != 1 || wait != Wait::Not {
            return false;
        }
        self.seen = self.seen.wrapping_add(1);
        self.seen % MEASURED_ONE_IN == 1
    }

    /// Adds the measured time of a doorbell with one request.
    pub(crate) fn measured(&mut self, nanoseconds: u64) {
        let nanoseconds = nanoseconds.clamp(1, PLUG_HOLD.as_nanos() as u64);
        self.doorbell = if self.doorbell == 0 {
            nanoseconds
        } else {
            self.doorbell - self.doorbell / 4 + nanoseconds / 4
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanoseconds: u64) -> Moment {
        Moment::from_nanoseconds(nanoseconds)
    }

    #[test]
    fn contract_16_always_holds_until_its_time_is_over() {
        let mut unplug = Unplug::default();
        let end = PLUG_HOLD.as_nanos() as u64;
        assert!(unplug.keeps(Plugging::Always, 1, 0, || at(0)));
        assert!(unplug.keeps(Plugging::Always, 2, 0, || at(end - 1)));
        assert!(!unplug.keeps(Plugging::Always, 3, 0, || at(end)));
        unplug.goes();
        assert!(unplug.keeps(Plugging::Always, 1, 0, || at(end)));
    }

    #[test]
    fn more_than_two_are_held_and_fewer_are_not() {
        let mut unplug = Unplug::default();
        let end = PLUG_HOLD.as_nanos() as u64;
        let mut keeps = |plugged, now| unplug.keeps(Plugging::AboveTwo, plugged, 9, || at(now));
        assert_eq!([1, 2, 3].map(|plugged| keeps(plugged, 0)), [false, false, true]);
        assert!(keeps(4, end - 1));
        assert!(!keeps(5, end));
    }

    #[test]
    fn an_idle_device_is_never_kept_waiting() {
        let mut unplug = Unplug::default();
        unplug.measured(40_000);
        for look in 0..100 {
            assert!(!unplug.keeps(Plugging::Adaptive, 1, 0, || at(look)));
        }
    }

    #[test]
    fn adaptive_holds_where_a_doorbell_costs_more_than_the_wait() {
        let mut unplug = Unplug::default();
        let mut now = 0;
        let mut look = |unplug: &mut Unplug, plugged, pace| {
            now += pace;
            unplug.keeps(Plugging::Adaptive, plugged, 9, || at(now))
        };
        assert!(!look(&mut unplug, 1, 100), "no doorbell is measured yet");
        unplug.measured(1000);
        for _ in 0..50 {
            look(&mut unplug, 1, 100);
        }
        unplug.goes();
        assert!(look(&mut unplug, 1, 100));
        assert!(!look(&mut unplug, 20, 100), "many bios would wait");
        for _ in 0..50 {
            look(&mut unplug, 1, 5000);
        }
        assert!(!look(&mut unplug, 1, 5000), "the next look is far away");
    }
}
