//! Time as a number. Nothing here reads a clock; the device does.

use core::ops::{Add, Sub};
use core::time::Duration;

/// Point in time of the device's clock, in nanoseconds since its start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Moment {
    nanoseconds: u64,
}

impl Moment {
    /// Returns the moment this many nanoseconds after the start of the clock.
    #[must_use]
    pub const fn from_nanoseconds(nanoseconds: u64) -> Self {
        Self { nanoseconds }
    }

    /// Returns the nanoseconds since the start of the clock.
    #[must_use]
    pub const fn nanoseconds(self) -> u64 {
        self.nanoseconds
    }

    /// Returns the time since `earlier`, or zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.nanoseconds.saturating_sub(earlier.nanoseconds))
    }

    /// Returns the nanoseconds since `earlier`, or 0 if `earlier` is later.
    #[must_use]
    #[inline]
    pub const fn nanoseconds_since(self, earlier: Moment) -> u64 {
        self.nanoseconds.saturating_sub(earlier.nanoseconds)
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
    fn sums_and_differences_are_bounded() {
        let first = Moment::from_nanoseconds(7);
        assert_eq!((first + Duration::from_millis(3)) - first, Duration::from_millis(3));
        assert_eq!(first - (first + Duration::from_nanos(1)), Duration::ZERO);
        assert_eq!((first + Duration::MAX).nanoseconds(), u64::MAX);
    }
}
