//! Bound of the flight to a device.

use std::time::Duration;

/// Flushes that the set time is longer by.
const FLUSHES: u32 = 2;

/// Limit of the work in flight to a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bound {
    /// As much work as the device does in this time, as measured (100 us to 1 s).
    Time(Duration),
    /// This many requests of a class, of any size (1 to 112); kept for comparison.
    Depth(usize),
}

impl Bound {
    /// Returns the bound beside callers who sync, on a device that takes this long for a flush.
    pub(super) fn beside(self, flush: Duration) -> Self {
        match self {
            Self::Time(time) => Self::Time(time + FLUSHES * flush),
            Self::Depth(depth) => Self::Depth(depth),
        }
    }
}
