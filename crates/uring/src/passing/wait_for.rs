//! Waiting for several things at once.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use super::{Channel, Listener, Process};
use crate::alive::Gone;
use crate::local::Bell;

/// Event to wait for.
#[derive(Clone, Copy, Debug)]
pub enum WaitFor<'a> {
    /// A message on a channel, or its end.
    Message(&'a Channel),
    /// A connection to a listener.
    Connection(&'a Listener),
    /// The end of a process.
    Death(&'a Process),
    /// The end of another process's rings.
    Gone(&'a Gone),
    /// A ring of a bell.
    Rung(&'a Bell),
}

/// Blocks until one of the events happens, up to `timeout`, or forever without one. Returns for
/// each event whether it happened.
///
/// # Errors
/// The error of the system: out of memory.
pub fn wait(awaited: &[WaitFor<'_>], timeout: Option<Duration>) -> io::Result<Vec<bool>> {
    let mut polled: Vec<_> = awaited
        .iter()
        .map(|awaited| PollFd::from_borrowed_fd(awaited.as_fd(), PollFlags::IN))
        .collect();
    poll(&mut polled, Deadline::after(timeout))?;
    Ok(polled.iter().map(|polled| !polled.revents().is_empty()).collect())
}

impl AsFd for WaitFor<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Message(channel) => channel.as_fd(),
            Self::Connection(listener) => listener.as_fd(),
            Self::Death(process) => process.as_fd(),
            Self::Gone(gone) => gone.as_fd(),
            Self::Rung(bell) => bell.as_fd(),
        }
    }
}

/// When waiting ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// A deadline after `timeout`, or never; a time beyond the clock's end is never, too.
    pub(crate) fn after(timeout: Option<Duration>) -> Self {
        Self(timeout.and_then(|timeout| Instant::now().checked_add(timeout)))
    }

    fn left(self) -> Option<Timespec> {
        let left = self.0.map(|end| end.saturating_duration_since(Instant::now()));
        left.and_then(|left| Timespec::try_from(left).ok())
    }
}

/// Whether any of it was there before the deadline. Gone on with when interrupted.
pub(crate) fn poll(polled: &mut [PollFd<'_>], deadline: Deadline) -> io::Result<bool> {
    loop {
        match rustix::event::poll(polled, deadline.left().as_ref()) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}
