//! Another process, which cannot be taken for one that got its number later.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};

use super::{Deadline, poll};

/// Reference to another process.
#[derive(Debug)]
pub struct Process {
    number: u32,
    descriptor: OwnedFd,
}

impl Process {
    /// Returns the process that has this id now. A caller that must be sure which process it is has
    /// to verify that afterwards.
    ///
    /// # Errors
    /// `NotFound` if there is no such process; the error of the system.
    pub fn of(number: u32) -> io::Result<Self> {
        let none =
            || io::Error::new(io::ErrorKind::NotFound, format!("there is no process {number}"));
        let named = i32::try_from(number).ok().and_then(Pid::from_raw).ok_or_else(none)?;
        match rustix::process::pidfd_open(named, PidfdFlags::empty()) {
            Ok(descriptor) => Ok(Self { number, descriptor }),
            Err(Errno::SRCH) => Err(none()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Returns the process id.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Waits for the end of the process up to `timeout`, or forever without one. Returns whether it
    /// has ended. The kernel may still work on its requests then.
    ///
    /// # Errors
    /// The error of the system: out of memory.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<bool> {
        let mut polled = [PollFd::new(&self.descriptor, PollFlags::IN)];
        poll(&mut polled, Deadline::after(timeout))
    }

    /// Kills the process. Succeeds if it has already ended.
    ///
    /// # Errors
    /// `PermissionDenied` if it belongs to another user.
    pub fn kill(&self) -> io::Result<()> {
        match rustix::process::pidfd_send_signal(&self.descriptor, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
