//! The clock: the only place that reads one. What needs the time below is given it.
//!
//! `CLOCK_MONOTONIC`, as a number of nanoseconds, because the parts that must not read a clock still compare, store
//! and subtract moments, and the simulator makes them from nothing.

use std::ops::{Add, Sub};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A moment of the monotonic clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Moment {
    nanoseconds: u64,
}

/// The moment it is. One call into the kernel's shared page, a few tens of nanoseconds.
#[must_use]
pub fn now() -> Moment {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).expect("the monotonic clock starts at zero");
    let nanoseconds = u64::try_from(time.tv_nsec).expect("less than a second, and not negative");
    Moment { nanoseconds: seconds * 1_000_000_000 + nanoseconds }
}

impl Moment {
    /// A moment so many nanoseconds after the clock's start.
    #[must_use]
    pub const fn from_nanoseconds(nanoseconds: u64) -> Self {
        Self { nanoseconds }
    }

    /// Nanoseconds since the clock's start.
    #[must_use]
    pub const fn nanoseconds(self) -> u64 {
        self.nanoseconds
    }

    /// Since the clock's start.
    #[must_use]
    pub const fn since_start(self) -> Duration {
        Duration::from_nanos(self.nanoseconds)
    }

    /// How long after `earlier`; nothing where it was later.
    #[must_use]
    pub const fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.nanoseconds.saturating_sub(earlier.nanoseconds))
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, span: Duration) -> Moment {
        let span = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Moment { nanoseconds: self.nanoseconds.saturating_add(span) }
    }
}

impl Sub<Moment> for Moment {
    type Output = Duration;

    fn sub(self, earlier: Moment) -> Duration {
        self.since(earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_does_not_run_backwards_and_sums_are_bounded() {
        let first = now();
        let second = now();
        assert!(second >= first);
        assert_eq!(first - second, if first == second { second - first } else { Duration::ZERO });
        assert_eq!((first + Duration::from_millis(3)) - first, Duration::from_millis(3));
        assert_eq!((first + Duration::MAX).nanoseconds(), u64::MAX);
    }
}
