//! Bound of the flight to a device.

use std::time::Duration;

/// Part of the set time beside callers who sync (one in N).
const PART: u32 = 2;

/// Longest duration that counts: a flush that waits for the flight would make it longer, again and
/// again.
const LONGEST: Duration = Duration::from_millis(5);

/// Limit of the work in flight to a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bound {
    /// As much work as the device does in this time, as measured (100 us to 1 s).
    Time(Duration),
    /// This many requests of a class, of any size (1 to 112); kept for comparison.
    Depth(usize),
}

impl Bound {
    /// Returns the bound beside callers who sync, on a device that is to have this much more work
    /// for its flushes.
    pub(super) fn beside(self, flush: Duration) -> Self {
        match self {
            Self::Time(time) => Self::Time(time / PART + flush.min(LONGEST)),
            Self::Depth(depth) => Self::Depth(depth),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contract_15_a_flush_that_waits_for_the_flight_does_not_make_it_longer_for_ever() {
        let [mut flush, time] = [2, 4].map(Duration::from_millis);
        for _ in 0..100 {
            let Bound::Time(beside) = Bound::Time(time).beside(flush) else { unreachable!() };
            assert!(beside <= time + LONGEST);
            flush += beside;
        }
        assert_eq!(Bound::Depth(7).beside(flush), Bound::Depth(7));
    }
}
