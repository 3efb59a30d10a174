//! Unplug: whether what is plugged is held on when the caller has nothing to wait for.
//!
//! `Always` holds until the plug is full or its time is over, as the kernel's does; a caller that
//! goes to sleep unplugs in either. `Adaptive` sends what came while the last doorbell was rung:
//! the batch grows by itself when the device is the bottleneck, and an idle device is never kept
//! waiting. It holds on only where a doorbell, as measured, costs more than waiting for the next
//! look adds to all that is held.

use crate::device::Wait;
use crate::knobs::Plugging;
use crate::limits::PLUG_HOLD;
use crate::time::Moment;

/// One of so many doorbells of a single request is timed.
const MEASURED_ONE_IN: u32 = 64;

/// What is known of doorbells and looks.
#[derive(Debug, Default)]
pub(crate) struct Unplug {
    /// When it was first decided to hold what is plugged.
    since: Option<Moment>,
    /// Nanoseconds a doorbell of one request costs, as a moving average.
    doorbell: u64,
    seen: u32,
    /// Nanoseconds between two looks, as a moving average.
    look: u64,
    last_look: Option<Moment>,
}

impl Unplug {
    /// Whether so many bios are held on while so much is in flight. The clock is read only where it
    /// matters.
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
            Plugging::Always => !self.is_over(now()),
            Plugging::Adaptive => {
                let now = now();
                self.look_at(now);
                // Held once it is worth it, each look is a decision of its own: what is held grows,
                // and with it what waiting costs.
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

    /// Whether the time of what is held is over; it begins with the first time this is asked.
    fn is_over(&mut self, now: Moment) -> bool {
        now - *self.since.get_or_insert(now) >= PLUG_HOLD
    }

    /// What was held goes.
    #[inline]
    pub(crate) fn goes(&mut self) {
        self.since = None;
    }

    /// Since when something is held on.
    pub(crate) fn since(&self) -> Option<Moment> {
        self.since
    }

    /// Whether the doorbell that is about to be rung is to be timed: only one of those that carry
    /// one request and wait for nothing, for what requests cost is not the doorbell's.
    #[inline]
    pub(crate) fn measures(&mut self, requests: usize, wait: Wait) -> bool {
        if requests != 1 || wait != Wait::Not {
            return false;
        }
        self.seen = self.seen.wrapping_add(1);
        self.seen % MEASURED_ONE_IN == 1
    }

    /// A doorbell of one request took so long.
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
        assert!(!look(&mut unplug, 1, 100), "nothing is known yet");
        unplug.measured(1000);
        for _ in 0..50 {
            look(&mut unplug, 1, 100);
        }
        unplug.goes();
        assert!(look(&mut unplug, 1, 100));
        assert!(!look(&mut unplug, 20, 100), "many would wait");
        for _ in 0..50 {
            look(&mut unplug, 1, 5000);
        }
        assert!(!look(&mut unplug, 1, 5000), "looks are rare");
    }
}
