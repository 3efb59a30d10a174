//! Whether others use a file.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

use crate::lease::{F_SETSIG, check, set_lease};

/// Returns whether something besides this open file has the file open: another descriptor, or a map
/// that is left of one. False on a file system without leases.
///
/// An open by another program at the same moment waits for the end of this call.
pub fn is_open_elsewhere(file: &impl AsFd) -> bool {
    let descriptor = file.as_fd().as_raw_fd();
    // A program that opens the file now has the kernel send a signal that nobody notices.
    // SAFETY: the command takes a number.
    let quiet = check(unsafe { libc::fcntl(descriptor, F_SETSIG, libc::SIGURG) });
    match quiet.and_then(|_| set_lease(descriptor, libc::F_WRLCK)) {
        Ok(()) => set_lease(descriptor, libc::F_UNLCK).is_err(),
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}
