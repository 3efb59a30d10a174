//! Pages of a file in the kernel's page cache: written to the device, and dropped.
//!
//! Nothing is durable after this: the device may hold what was written in its own cache, and the
//! file system its journal.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd as _};

use rustix::fs::Advice;

/// The whole file.
pub const WHOLE: Range<u64> = 0..0;

/// Starts to write the dirty pages of a range. Does not wait for the device.
///
/// # Errors
/// The error of the kernel.
pub fn start_writing(file: &impl AsFd, bytes: Range<u64>) -> io::Result<()> {
    sync_range(file, bytes, libc::SYNC_FILE_RANGE_WRITE)
}

/// Waits until the dirty pages of a range are written.
///
/// # Errors
/// The error of the device. The kernel reports it once: a later sync may succeed although the range
/// is lost.
pub fn write_out(file: &impl AsFd, bytes: Range<u64>) -> io::Result<()> {
    let all = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    sync_range(file, bytes, all)
}

/// Drops the clean pages of a file.
pub fn drop_pages(file: &impl AsFd) {
    // Only advice.
    let _ = rustix::fs::fadvise(file, 0, None, Advice::DontNeed);
}

fn sync_range(file: &impl AsFd, bytes: Range<u64>, how: libc::c_uint) -> io::Result<()> {
    let invalid = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let offset = libc::off64_t::try_from(bytes.start).map_err(invalid)?;
    let length = libc::off64_t::try_from(bytes.end - bytes.start).map_err(invalid)?;
    let descriptor = file.as_fd();
    // SAFETY: the descriptor is open for the length of the call, which takes only numbers.
    let call = || unsafe { libc::sync_file_range(descriptor.as_raw_fd(), offset, length, how) };
    loop {
        if call() == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::Interrupted => {}
            // A file system without it: the next flush writes the pages.
            io::ErrorKind::Unsupported => return Ok(()),
            _ => return Err(error),
        }
    }
}
