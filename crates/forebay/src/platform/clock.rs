//! The clocks.

use std::time::{Duration, Instant};

pub(crate) use forebay_uring::clock::{coarse, now};

/// Returns the length of a window that measures the rate of a number of contexts: long against a
/// handover, short against a load. The simulation has a shorter one.
#[inline]
pub(crate) const fn contexts_window() -> Duration {
    Duration::from_millis(50)
}

/// Returns the time, to compare with deadlines.
#[inline]
pub(crate) fn instant() -> Instant {
    Instant::now()
}
