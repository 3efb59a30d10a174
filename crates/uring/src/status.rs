//! Attributes of a file, and setting its times.

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{Stat, Timespec, Timestamps, UTIME_OMIT};

use crate::file::OpenFile;

/// Attributes of a file, as its file system reports them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// Type and permission bits (`st_mode`).
    pub mode: u32,
    /// User that owns the file.
    pub user: u32,
    /// Group that owns the file.
    pub group: u32,
    /// Number of names.
    pub links: u64,
    /// Bytes of allocated space, including reserved space.
    pub allocated_bytes: u64,
    /// Time of the last read that the file system has recorded.
    pub accessed: SystemTime,
    /// Time of the last write.
    pub modified: SystemTime,
    /// Time of the last change of an attribute.
    pub changed: SystemTime,
}

impl Status {
    #[allow(
        clippy::unnecessary_cast,
        clippy::cast_lossless,
        reason = "the types depend on the processor"
    )]
    fn of(status: &Stat) -> Self {
        Self {
            mode: status.st_mode as u32,
            user: status.st_uid as u32,
            group: status.st_gid as u32,
            links: status.st_nlink as u64,
            allocated_bytes: status.st_blocks as u64 * 512,
            accessed: time(status.st_atime as i64, status.st_atime_nsec as u32),
            modified: time(status.st_mtime as i64, status.st_mtime_nsec as u32),
            changed: time(status.st_ctime as i64, status.st_ctime_nsec as u32),
        }
    }
}

/// Times of a file to set. `None` leaves a time as it is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Times {
    /// Time of the last read.
    pub accessed: Option<SystemTime>,
    /// Time of the last write.
    pub modified: Option<SystemTime>,
}

impl OpenFile {
    /// Returns the attributes of the file.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn status(&self) -> io::Result<Status> {
        Ok(Status::of(&rustix::fs::fstat(self)?))
    }

    /// Sets times of the file. A later write sets the time of the last write again.
    ///
    /// # Errors
    /// The error of the kernel: `PermissionDenied` for a file of another user.
    pub fn set_times(&self, times: Times) -> io::Result<()> {
        let last_access = timespec(times.accessed)?;
        let last_modification = timespec(times.modified)?;
        Ok(rustix::fs::futimens(self, &Timestamps { last_access, last_modification })?)
    }
}

/// Returns the time some seconds after the epoch (before it, if negative) and some nanoseconds.
fn time(seconds: i64, nanoseconds: u32) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let start =
        if seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    start.map_or(UNIX_EPOCH, |start| start + Duration::from_nanos(nanoseconds.into()))
}

fn timespec(time: Option<SystemTime>) -> io::Result<Timespec> {
    let Some(time) = time else { return Ok(Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }) };
    let (seconds, nanoseconds) = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (i64::try_from(after.as_secs()), after.subsec_nanos()),
        Err(error) => {
            let before = error.duration();
            let borrowed = u64::from(before.subsec_nanos() > 0);
            let whole = i64::try_from(before.as_secs() + borrowed).map(|seconds| -seconds);
            (whole, (1_000_000_000 - before.subsec_nanos()) % 1_000_000_000)
        }
    };
    let seconds = seconds.map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    Ok(Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_time_is_as_it_was_set(
            seconds in -1_i64 << 40..1 << 40, nanoseconds in 0..1_000_000_000_u32
        ) {
            let set = timespec(Some(time(seconds, nanoseconds))).unwrap();
            prop_assert_eq!((set.tv_sec, set.tv_nsec), (seconds, i64::from(nanoseconds)));
        }
    }
}
