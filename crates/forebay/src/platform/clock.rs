//! The clocks.

use std::time::Instant;

pub(crate) use forebay_uring::clock::now;

/// Returns the time, to compare with deadlines.
#[inline]
pub(crate) fn instant() -> Instant {
    Instant::now()
}
