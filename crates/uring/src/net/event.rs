//! What happened, as it is told.

use forebay_block::Errno;

use super::pool::Received;
use super::table::Key;

/// A connection's number. Never names another connection of the same [`Sockets`](super::Sockets).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Connection(pub(super) Key);

/// A listening socket's number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Listener(pub(super) Key);

/// Something that happened, and when in the order of arrival.
#[derive(Debug)]
pub struct Event<W> {
    /// The how-manieth thing that arrived, counted from the start. Events that are handed out in
    /// order have rising numbers; how far they do not is how far work was reordered.
    pub arrival: u64,
    /// What it is.
    pub what: What<W>,
}

/// What happened.
#[derive(Debug)]
pub enum What<W> {
    /// Somebody connected.
    Accepted {
        /// To this listener.
        listener: Listener,
        /// As this connection.
        connection: Connection,
    },
    /// A connection that was asked for is there.
    Connected {
        /// Which.
        connection: Connection,
    },
    /// Bytes came.
    Received {
        /// From this connection.
        connection: Connection,
        /// They stay in the buffer they came in, which goes back when this is dropped.
        bytes: Received,
    },
    /// The peer sends nothing more. It may still read: close the connection when all is said.
    Finished {
        /// Which.
        connection: Connection,
    },
    /// There is room again, where the caller had been told to stop.
    Writable {
        /// In this connection.
        connection: Connection,
    },
    /// The connection is gone; the last that is told of it.
    Closed {
        /// Which.
        connection: Connection,
        /// Why.
        reason: Reason,
    },
    /// Nothing can be accepted for now, for want of descriptors or memory. It is tried again when a
    /// connection ends, and every tenth of a second.
    AcceptFailed {
        /// By this listener.
        listener: Listener,
        /// What the kernel said.
        error: Errno,
    },
    /// Another thread posted this.
    Posted(W),
}

/// Why a connection is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// It was asked for, and what was to be sent is with the kernel unless that was not wanted.
    Asked,
    /// Nothing moved for the time it may be idle.
    TimedOut,
    /// The kernel said so: it was reset, refused, unreachable.
    Failed(Errno),
}

impl<W> What<W> {
    /// The connection this is about, if it is about one.
    #[must_use]
    pub fn connection(&self) -> Option<Connection> {
        match self {
            What::Accepted { connection, .. }
            | What::Connected { connection }
            | What::Received { connection, .. }
            | What::Finished { connection }
            | What::Writable { connection }
            | What::Closed { connection, .. } => Some(*connection),
            What::AcceptFailed { .. } | What::Posted(_) => None,
        }
    }
}
