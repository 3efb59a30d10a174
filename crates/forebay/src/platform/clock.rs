//! The clocks.

use std::time::Instant;

pub(crate) use forebay_uring::clock::{coarse, now};

/// Returns the time, to compare with deadlines.
#[inline]
pub(crate) fn instant() -> Instant {
    Instant::now()
}
