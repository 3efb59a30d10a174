//! Another process, which cannot be taken for one that got its number later.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};

use super::{Deadline, poll};

/// Another process.
#[derive(Debug)]
pub struct Process {
    number: u32,
    descriptor: OwnedFd,
}

impl Process {
    /// The process that has this number now. Whoever must know that it is the one he means asks
    /// something of it afterwards.
    ///
    /// # Errors
    /// `NotFound` where there is none; the system's.
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

    /// Its number.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Waits for its end, so long or without end; whether it has ended: its last thread, its memory
    /// and its descriptors are gone then, but for what the kernel still works off for it. Whoever
    /// started it need not have been told.
    ///
    /// # Errors
    /// The system's: out of memory.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<bool> {
        let mut polled = [PollFd::new(&self.descriptor, PollFlags::IN)];
        poll(&mut polled, Deadline::after(timeout))
    }

    /// Ends it at once.
    ///
    /// # Errors
    /// `PermissionDenied` where it is another user's. One that has ended is none.
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
