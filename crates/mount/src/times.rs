//! Times of the source, of requests, and for `utimensat(2)`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::TimeOrNow;
use rustix::fs::{Stat, Timespec, UTIME_OMIT};

#[allow(clippy::unnecessary_cast, reason = "the type differs between processors")]
pub(crate) fn changed_at(status: &Stat) -> SystemTime {
    time(status.st_ctime as i64, status.st_ctime_nsec as u64)
}

pub(crate) fn time(seconds: i64, nanoseconds: u64) -> SystemTime {
    let part = Duration::from_nanos(nanoseconds);
    match u64::try_from(seconds) {
        Ok(seconds) => UNIX_EPOCH + Duration::from_secs(seconds) + part,
        Err(_) => UNIX_EPOCH - Duration::from_secs(seconds.unsigned_abs()) + part,
    }
}

/// Returns the time that a request means.
///
/// The kernel sends seconds and the nanoseconds after them. For a time before 1970, fuser 0.18.0
/// subtracts the nanoseconds, so -1.5 s arrives as -2.5 s. Later versions add them
/// (<https://github.com/cberner/fuser/pull/705>): then this function has to go. Until then the
/// workspace asks for that one version.
pub(crate) fn requested(time: TimeOrNow) -> TimeOrNow {
    let TimeOrNow::SpecificTime(decoded) = time else { return time };
    let Err(before) = decoded.duration_since(UNIX_EPOCH) else { return time };
    let part = Duration::from_nanos(before.duration().subsec_nanos().into());
    TimeOrNow::SpecificTime(decoded + part + part)
}

/// A time for `utimensat(2)`; `None` leaves it.
pub(crate) fn timespec(time: Option<SystemTime>) -> Timespec {
    let Some(time) = time else { return Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT } };
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => {
            Timespec { tv_sec: since.as_secs().cast_signed(), tv_nsec: since.subsec_nanos().into() }
        }
        Err(before) => {
            let before = before.duration();
            let (seconds, nanoseconds) = match before.subsec_nanos() {
                0 => (before.as_secs(), 0),
                part => (before.as_secs() + 1, 1_000_000_000 - part),
            };
            // The oldest time of the system has no positive counterpart.
            let tv_sec = seconds.cast_signed().wrapping_neg();
            Timespec { tv_sec, tv_nsec: nanoseconds.into() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_and_after_1970_are_passed_on_to_the_nanosecond() {
        for (seconds, nanoseconds) in [(0, 0), (1, 5), (-1, 0), (-1, 999_999_999), (-7, 1)] {
            let there = timespec(Some(time(seconds, nanoseconds)));
            assert_eq!((there.tv_sec, there.tv_nsec.cast_unsigned()), (seconds, nanoseconds));
        }
        let oldest = timespec(Some(time(i64::MIN, 0)));
        assert_eq!((oldest.tv_sec, oldest.tv_nsec), (i64::MIN, 0));
    }

    #[test]
    fn a_time_before_1970_is_read_as_the_kernel_sends_it() {
        for (seconds, nanoseconds) in [(-1_i64, 0), (-1, 500_000_000), (-2, 999_999_999), (-9, 1)] {
            // As fuser decodes it.
            let decoded = UNIX_EPOCH - Duration::new(seconds.unsigned_abs(), nanoseconds);
            let TimeOrNow::SpecificTime(meant) = requested(TimeOrNow::SpecificTime(decoded)) else {
                panic!("it is a time")
            };
            assert_eq!(meant, time(seconds, nanoseconds.into()));
        }
        let later = TimeOrNow::SpecificTime(UNIX_EPOCH + Duration::new(1, 5));
        assert_eq!(requested(later), later);
    }
}
