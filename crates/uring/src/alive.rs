//! Tells another process that the rings of this one are gone.
//!
//! A process that is killed is gone before its rings are: the kernel ends what is in flight some
//! time later, and one of its writes would overtake writes that others make meanwhile. So there is
//! a pipe that is never written to. Its one end, [`Alive`], is open in the process and a registered
//! file of each of its rings; the kernel closes that when the last request of the ring has ended.
//! Then the owner of the other end, [`Gone`], sees it closed.
//!
//! The thread pool does not need it for a process that has ended, because a process has not ended
//! while a system call of its threads has not. For one that lives on, and does nothing more, the
//! pool holds a duplicate until its last thread has ended.
//!
//! Limits: a forked child that lives on, without another program, keeps the end and the rings open,
//! so the end stays open while the child lives. It is also not seen if a ring refused the file
//! ([`Ring::set_alive`](crate::Ring::set_alive) says so): then the process's own end alone counts.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::pipe::PipeFlags;

use crate::passing::{self, Deadline};

/// End of a pipe that the rings of a process hold. The kernel closes it when the last ring is gone.
#[derive(Debug)]
pub struct Alive(OwnedFd);

/// End of a pipe for a process that waits until the rings of another process are gone.
#[derive(Debug)]
pub struct Gone(OwnedFd);

impl Alive {
    /// Creates both ends.
    ///
    /// # Errors
    /// The error of the system, such as too many open files.
    pub fn pair() -> io::Result<(Self, Gone)> {
        let (gone, alive) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        Ok((Self(alive), Gone(gone)))
    }
}

impl AsFd for Alive {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Gone {
    /// Takes over a descriptor from another process.
    #[must_use]
    pub fn of_descriptor(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }

    /// Waits until the process and all its rings are gone, or for `timeout`. Returns whether they
    /// are gone.
    ///
    /// # Errors
    /// The error of the system: out of memory.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<bool> {
        let mut polled = [PollFd::new(&self.0, PollFlags::IN)];
        passing::poll(&mut polled, Deadline::after(timeout))
    }
}

impl AsFd for Gone {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
