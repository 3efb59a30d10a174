//! The lead of a file: the right to serve its tickets.

use std::task::Waker;

use forebay_cache::TicketId;

use crate::platform::thread;

/// The thread that serves the tickets of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lead {
    /// Its context.
    Context,
    /// The caller that waits for this ticket.
    Caller(TicketId),
    /// Nobody until the caller that waits for this ticket, which was woken for it, takes the lead.
    Offered(TicketId),
}

/// Whether a caller may make requests on its own thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Leads {
    /// It blocks until its request has ended.
    May,
    /// It is a task of an executor.
    Never,
}

impl Leads {
    /// Returns whether the caller of a poll is a blocking call of this library, and not on a thread
    /// of an engine, in a callback: a context must not wait for a device.
    pub(crate) fn of(waker: &Waker) -> Self {
        if thread::is_own_waker(waker) { Self::of_blocking_call() } else { Self::Never }
    }

    /// As [`Leads::of`] for the caller of a blocking call.
    pub(crate) fn of_blocking_call() -> Self {
        if thread::is_ours() { Self::Never } else { Self::May }
    }
}

/// Caller that waits for a ticket.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) id: TicketId,
    pub(crate) leads: Leads,
    pub(crate) waker: Waker,
}
