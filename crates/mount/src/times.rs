//! Times of the source, of requests, and for `utimensat(2)`.

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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

/// A time that a request sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wish {
    Now,
    At(SystemTime),
}

/// Returns the time of a request: seconds, and the nanoseconds after them.
pub(crate) fn requested(seconds: u64, nanoseconds: u32) -> io::Result<SystemTime> {
    match nanoseconds {
        0..1_000_000_000 => Ok(time(seconds.cast_signed(), nanoseconds.into())),
        _ => Err(io::Error::from_raw_os_error(libc::EINVAL)),
    }
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
    fn a_time_of_a_request_is_seconds_and_the_nanoseconds_after_them() {
        let before = requested((-2_i64).cast_unsigned(), 500_000_000).unwrap();
        assert_eq!(before, UNIX_EPOCH - Duration::from_millis(1500));
        assert_eq!(requested(1, 5).unwrap(), UNIX_EPOCH + Duration::new(1, 5));
        requested(i64::MAX.cast_unsigned(), 999_999_999).unwrap();
        requested(i64::MAX.cast_unsigned(), u32::MAX).unwrap_err();
    }
}
