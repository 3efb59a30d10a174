//! What carries the bytes: the ring or epoll, with one surface.
//!
//! What is asked for here is staged, and done by [`Transport::enter`]; what comes of it is an
//! [`Arrival`], in the order the kernel told it. Of each socket at most one accept or receive, and
//! one send or connect, is under way; each ends with an arrival that says so. A connection is asked
//! to close once, and is gone when `Closed` has arrived.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use forebay_block::Errno;
use rustix::net::SocketAddrAny;

use super::address::Calls;
use super::epoll::Epoll;
use super::outgoing::Flight;
use super::pool::Received;
use super::ring::SocketRing;
use super::table::Key;
use crate::enter::Enters;
use crate::waker::Waker;

/// What came of what was asked for.
#[derive(Debug)]
pub(super) enum Arrival {
    /// One more was accepted; the accept goes on.
    Accepted { listener: Key, socket: OwnedFd },
    /// The accept has ended, and may be started again.
    AcceptEnded { listener: Key, error: Option<Errno> },
    /// The listening socket is closed, and nothing of it is under way.
    Forgotten { listener: Key },
    /// Bytes came; the receive goes on.
    Received { connection: Key, bytes: Received },
    /// The receive has ended, and may be started again unless it was the last.
    ReceiveEnded { connection: Key, end: End },
    /// A send has ended; the pieces come back.
    Sent { connection: Key, flight: Flight, moved: Result<usize, Errno> },
    /// A connect has ended.
    Connected { connection: Key, result: Result<(), Errno> },
    /// The socket is closed, and nothing of it is under way.
    Closed { connection: Key },
}

/// How a receive has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// It was stopped, or the kernel ended it for reasons of its own: start it again.
    Stopped,
    /// No buffer was free.
    NoBuffer,
    /// The peer sends nothing more.
    Finished,
    /// The connection failed.
    Failed(Errno),
}

/// The ring or epoll.
#[derive(Debug)]
pub(super) enum Transport {
    Ring(Box<SocketRing>),
    Epoll(Box<Epoll>),
}

/// Calls the same method of whichever it is.
macro_rules! either {
    ($self:expr, $transport:ident => $call:expr) => {
        match $self {
            Transport::Ring($transport) => $call,
            Transport::Epoll($transport) => $call,
        }
    };
}

impl Transport {
    /// Whether the calls of its sockets block.
    pub(super) fn calls(&self) -> Calls {
        match self {
            Transport::Ring(_) => Calls::Block,
            Transport::Epoll(_) => Calls::DoNotBlock,
        }
    }

    pub(super) fn describe(&self) -> String {
        either!(self, transport => transport.describe())
    }

    pub(super) fn waker(&self) -> Waker {
        either!(self, transport => transport.waker())
    }

    pub(super) fn enters(&self) -> Enters {
        either!(self, transport => transport.enters())
    }

    /// Takes a listening socket in, under a number whose place is free.
    pub(super) fn listen(&mut self, listener: Key, socket: OwnedFd) -> Result<(), Errno> {
        either!(self, transport => transport.listen(listener, socket))
    }

    /// Accepts until told to stop.
    pub(super) fn accept(&mut self, listener: Key) {
        either!(self, transport => transport.accept(listener));
    }

    pub(super) fn stop_accepting(&mut self, listener: Key) {
        either!(self, transport => transport.stop_accepting(listener));
    }

    /// Lets the listening socket go; it is gone when `Forgotten` has arrived.
    pub(super) fn forget_listener(&mut self, listener: Key) {
        either!(self, transport => transport.forget_listener(listener));
    }

    /// Takes a connection's socket in, under a number whose place is free.
    pub(super) fn add(&mut self, connection: Key, socket: OwnedFd) -> Result<(), Errno> {
        either!(self, transport => transport.add(connection, socket))
    }

    pub(super) fn connect(&mut self, connection: Key, address: SocketAddrAny) {
        either!(self, transport => transport.connect(connection, address));
    }

    /// Receives until told to stop.
    pub(super) fn receive(&mut self, connection: Key) {
        either!(self, transport => transport.receive(connection));
    }

    pub(super) fn stop_receiving(&mut self, connection: Key) {
        either!(self, transport => transport.stop_receiving(connection));
    }

    pub(super) fn send(&mut self, connection: Key, flight: Flight) {
        either!(self, transport => transport.send(connection, flight));
    }

    /// Cancels what is under way, and closes the socket when it has ended.
    pub(super) fn close(&mut self, connection: Key) {
        either!(self, transport => transport.close(connection));
    }

    /// Uses buffers that came back again; tells how many are free.
    pub(super) fn recycle(&mut self) -> u32 {
        either!(self, transport => transport.recycle())
    }

    /// Does what is staged; with a limit waits so long, without one as long as it takes, for
    /// something to arrive or a wake. May return early.
    pub(super) fn enter(&mut self, limit: Option<Duration>) -> Result<(), Errno> {
        either!(self, transport => transport.enter(limit))
    }

    /// Takes all that arrived.
    pub(super) fn reap(&mut self, arrivals: &mut Vec<Arrival>) {
        either!(self, transport => transport.reap(arrivals));
    }

    pub(super) fn listener_socket(&self, listener: Key) -> Option<BorrowedFd<'_>> {
        either!(self, transport => transport.listener_socket(listener))
    }

    pub(super) fn socket(&self, connection: Key) -> Option<BorrowedFd<'_>> {
        either!(self, transport => transport.socket(connection))
    }
}
