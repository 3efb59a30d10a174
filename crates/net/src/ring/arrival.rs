//! Results of the requests of a ring, in the order of their completions.
//!
//! Each socket has at most one accept or receive, and one send, in flight. Each ends with an
//! arrival that says so. A connection is closed once, and gone after `Closed`.

use std::os::fd::OwnedFd;

use forebay_block::Errno;

use crate::outgoing::Flight;
use crate::pool::Received;
use crate::table::Key;

/// Result of a request.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// A connection was accepted. The accept goes on.
    Accepted { listener: Key, socket: OwnedFd },
    /// The accept has ended, and may be started again.
    AcceptEnded { listener: Key, error: Option<Errno> },
    /// Bytes were received. The receive goes on.
    Received { connection: Key, bytes: Received },
    /// The receive has ended, and may be started again unless it was the last.
    ReceiveEnded { connection: Key, end: End },
    /// A send has ended, and returns its pieces.
    Sent { connection: Key, flight: Flight, moved: Result<usize, Errno> },
    /// The socket is closed, and has no more requests.
    Closed { connection: Key },
}

/// Reason why a receive has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// It was stopped, or the kernel ended it for reasons of its own: start it again.
    Stopped,
    /// No buffer was free.
    NoBuffer,
    /// The peer sends nothing more.
    Finished,
    /// The connection failed.
    Failed(Errno),
}
