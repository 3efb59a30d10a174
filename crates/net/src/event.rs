//! Events that a poll returns.

use forebay_block::Errno;

use crate::pool::Received;
use crate::table::Key;

/// Number of a connection. It is never reused within the same [`Sockets`](super::Sockets).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Connection(pub(crate) Key);

/// Number of a listening socket.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Listener(pub(crate) Key);

/// Event, with its position in the order of arrival.
#[derive(Debug)]
pub struct Event<W> {
    /// Number in the order of arrival, counted from the start. Falling numbers show reordered work.
    pub arrival: u64,
    /// Kind of the event.
    pub what: What<W>,
}

/// Kind of an event.
#[derive(Debug)]
pub enum What<W> {
    /// A peer connected.
    Accepted {
        /// Listener that accepted it.
        listener: Listener,
        /// The new connection.
        connection: Connection,
    },
    /// Bytes were received.
    Received {
        /// Connection that received them.
        connection: Connection,
        /// The bytes, in their receive buffer, which is returned when this is dropped.
        bytes: Received,
    },
    /// The peer sends nothing more, but may still read. Close the connection when everything is
    /// sent.
    Finished {
        /// The connection.
        connection: Connection,
    },
    /// A connection that had returned [`Room::Stop`](super::Room::Stop) has room again.
    Writable {
        /// The connection.
        connection: Connection,
    },
    /// The connection is closed. This is its last event.
    Closed {
        /// The connection.
        connection: Connection,
        /// Reason of the close.
        reason: EndReason,
    },
    /// No connection can be accepted for lack of descriptors or memory. Accepting is tried again
    /// when a connection ends, and every 100 ms.
    AcceptFailed {
        /// The listener.
        listener: Listener,
        /// Error of the kernel.
        error: Errno,
    },
    /// Work posted by another thread.
    Posted(W),
}

/// Reason why a connection was closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndReason {
    /// The caller closed it. Outgoing data was handed to the kernel, unless the caller dropped it.
    Asked,
    /// It closed after sending, and moved no byte for a minute.
    TimedOut,
    /// It failed, for example because the peer reset it.
    Failed(Errno),
}

impl<W> What<W> {
    /// Returns the connection of the event, if it has one.
    #[must_use]
    pub fn connection(&self) -> Option<Connection> {
        match self {
            What::Accepted { connection, .. }
            | What::Received { connection, .. }
            | What::Finished { connection }
            | What::Writable { connection }
            | What::Closed { connection, .. } => Some(*connection),
            What::AcceptFailed { .. } | What::Posted(_) => None,
        }
    }
}
