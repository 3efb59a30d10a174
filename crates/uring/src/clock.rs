//! The clock: the only place that reads one. The layers below get the time as an argument.
//!
//! `CLOCK_MONOTONIC`, as a number of nanoseconds, because the parts that must not read a clock
//! still compare, store and subtract moments, and the simulator makes them from nothing.

use forebay_block::Moment;
use rustix::time::{ClockId, clock_gettime};

/// Returns the current time of the monotonic clock, in some tens of nanoseconds and without a
/// system call.
#[must_use]
pub fn now() -> Moment {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).expect("the monotonic clock starts at zero");
    let nanoseconds = u64::try_from(time.tv_nsec).expect("less than a second, and not negative");
    Moment::from_nanoseconds(seconds * 1_000_000_000 + nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_does_not_run_backwards() {
        let first = now();
        assert!(now() >= first);
    }
}
