//! The clock: the only place that reads one. The layers below get the time as an argument.
//!
//! `CLOCK_MONOTONIC`, as a number of nanoseconds, because the parts that must not read a clock
//! still compare, store and subtract moments, and the simulator makes them from nothing.

use std::time::Duration;

use forebay_block::Moment;
use rustix::time::{ClockId, clock_gettime};

/// Returns the current time of the monotonic clock, in some tens of nanoseconds and without a
/// system call.
#[must_use]
pub fn now() -> Moment {
    read(ClockId::Monotonic)
}

/// Returns the time of the monotonic clock at the last tick of the kernel, which is up to 10 ms
/// ago, in some nanoseconds.
#[must_use]
pub fn coarse() -> Moment {
    read(ClockId::MonotonicCoarse)
}

/// Returns the processor time of the calling thread. A system call of some hundred nanoseconds.
#[must_use]
pub fn spent() -> Duration {
    Duration::from_nanos(read(ClockId::ThreadCPUTime).nanoseconds())
}

/// Returns the wall clock in nanoseconds since 1970, to compare with the times of files alone: it
/// may be set at any moment.
#[must_use]
pub fn wall() -> i64 {
    let time = clock_gettime(ClockId::Realtime);
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}

fn read(clock: ClockId) -> Moment {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).expect("these clocks start at zero");
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

    #[test]
    fn the_coarse_clock_is_a_little_late() {
        let (before, coarse, after) = (now(), coarse(), now());
        assert!(coarse <= after);
        let late = before.nanoseconds().saturating_sub(coarse.nanoseconds());
        assert!(late < 50_000_000, "{late} ns late");
    }
}
