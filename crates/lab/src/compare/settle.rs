//! Between two cells: what the last one left must not be the next one's burden.
//!
//! `syncfs` writes out the data and the removal of the files; but a file system goes on after it (a
//! journal, a discard of the freed blocks), and so may others on the machine. So the device is
//! watched until it has nothing in flight and the kernel nothing under writeback, seen three times
//! in a row. The wait is bounded: on a machine that is never quiet the comparison goes on, and says
//! so.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use procfs::{Current, Meminfo};
use rustix::fs::{major, minor, syncfs};

use crate::manifest::mount;
use crate::scratch::Stop;

/// How often quiet must be seen in a row.
const LOOKS: u32 = 3;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Writeback below this is nobody's burden.
const WRITEBACK_AT_REST_BYTES: u64 = 256 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Settled {
    Quiet,
    StillBusy,
    Stopped,
}

/// Syncs the file system that `directory` is on, and waits until it is quiet.
pub fn settle(directory: &File, within: Duration, stop: &Stop) -> io::Result<Settled> {
    syncfs(directory)?;
    // A descriptor has a path there; the number in its status is no device's on btrfs.
    let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
    let in_flight = in_flight_file(path.as_ref());
    let until = Instant::now() + within;
    let mut looks = 0;
    loop {
        looks = if is_quiet(in_flight.as_deref()) { looks + 1 } else { 0 };
        if looks == LOOKS {
            return Ok(Settled::Quiet);
        }
        if stop.is_set() {
            return Ok(Settled::Stopped);
        }
        if Instant::now() >= until {
            return Ok(Settled::StillBusy);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Returns the file of the kernel with the requests that the device has in flight; none for a file
/// system without a device of its own.
pub(super) fn in_flight_file(directory: &Path) -> Option<PathBuf> {
    let device = mount::device_of(directory)?;
    let path = format!("/sys/dev/block/{}:{}/inflight", major(device), minor(device));
    Path::new(&path).exists().then(|| path.into())
}

fn is_quiet(in_flight: Option<&Path>) -> bool {
    let nothing_in_flight = in_flight
        .and_then(|path| fs::read_to_string(path).ok())
        .is_none_or(|text| text.split_whitespace().all(|count| count == "0"));
    let at_rest =
        Meminfo::current().map_or(true, |memory| memory.writeback < WRITEBACK_AT_REST_BYTES);
    nothing_in_flight && at_rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_wait_ends_and_so_does_a_bounded_one() {
        let directory = tempfile::tempdir().unwrap();
        let opened = File::open(directory.path()).unwrap();
        let stop = Stop::default();
        stop.set();
        assert_eq!(settle(&opened, Duration::from_secs(60), &stop).unwrap(), Settled::Stopped);
        let began = Instant::now();
        settle(&opened, Duration::from_millis(60), &Stop::default()).unwrap();
        assert!(began.elapsed() < Duration::from_secs(30));
    }
}
