//! The lock that keeps two engines off one file: an open-file-description lock over the whole of
//! it.
//!
//! Why not the classic POSIX lock: that one belongs to the process, so two engines in one process
//! would both get it, and closing any descriptor of the file would drop it. It is advisory:
//! programs that do not lock are noticed by the lease instead.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::open::Access;

/// Result of an attempt to lock a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Lock {
    /// Locked, until it is released or the descriptor is closed.
    Taken,
    /// Another open file holds a conflicting lock.
    HeldElsewhere,
}

/// Takes the lock if nobody holds it; shared among readers.
pub(crate) fn try_take(descriptor: BorrowedFd<'_>, access: Access) -> io::Result<Lock> {
    let kind = match access {
        Access::Read => libc::F_RDLCK,
        Access::ReadWrite => libc::F_WRLCK,
    };
    match set(descriptor, kind) {
        Ok(()) => Ok(Lock::Taken),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
            Ok(Lock::HeldElsewhere)
        }
        Err(error) => Err(error),
    }
}

/// Gives the lock up.
pub(crate) fn release(descriptor: BorrowedFd<'_>) -> io::Result<()> {
    set(descriptor, libc::F_UNLCK)
}

fn set(descriptor: BorrowedFd<'_>, kind: i32) -> io::Result<()> {
    let short =
        |value: i32| libc::c_short::try_from(value).expect("the kernel's constants fit its field");
    // From the start on, without end. The process number must be zero for this family of locks.
    let lock = libc::flock {
        l_type: short(kind),
        l_whence: short(libc::SEEK_SET),
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open for the length of the call, and the command takes a pointer to
    // a `flock`, which it reads during the call.
    let result = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
