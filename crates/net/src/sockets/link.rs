//! State of a connection, and of a listener.

use forebay_block::Moment;

use crate::event::EndReason;
use crate::outgoing::Outgoing;

/// Stage in the life of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    Open,
    /// To be closed when everything is sent.
    Draining,
    /// To be closed when its requests have ended.
    Closing(EndReason),
    /// Closed, and not reported yet.
    Closed,
}

/// State of the receive of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Receiving {
    No,
    Yes,
    Stopping,
    /// No buffer was free: in the queue of starved connections.
    Starved,
    /// The peer sends nothing more.
    Finished,
}

/// A connection. The ring has its socket.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) stage: Stage,
    pub(super) receiving: Receiving,
    pub(super) outgoing: Outgoing,
    /// Whether a send returned [`Stop`](crate::Room::Stop), so that a
    /// [`Writable`](crate::What::Writable) must follow.
    pub(super) stopped: bool,
    /// Whether it is in the list `active`.
    pub(super) listed: bool,
    /// When a byte moved last.
    pub(super) moved: Moment,
    /// Its timer, while it closes after sending.
    pub(super) timer: Option<Moment>,
}

/// A listener. The ring has its socket.
#[derive(Debug)]
pub(super) struct Ear {
    pub(super) accepting: bool,
    pub(super) stopping: bool,
    pub(super) rests_until: Option<Moment>,
}
