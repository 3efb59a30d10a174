//! The sockets of one thread, and the course of a poll.
//!
//! ```text
//! poll: returned buffers -> sends and receives started -> ONE enter
//!       -> arrivals numbered -> timers -> posted work -> pass
//! ```

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use forebay_block::Moment;
use forebay_lists::{Rest, fifo};
use forebay_uring::{SetupError, clock};

use crate::address::{Address, SocketError};
use crate::counters::NetCounters;
use crate::event::{Connection, EndReason, Listener, What};
use crate::limits::{EVENT_COST_BYTES, LINGER};
use crate::options::{Options, OptionsError};
use crate::outgoing::{Outgoing, Room};
use crate::pool::Pool;
use crate::poster::Poster;
use crate::ring::{Arrival, SocketRing};
use crate::table::{Key, Table};
use crate::work::{Gate, LOOSE, Source, Work};
use link::{Ear, Link, Receiving, Stage};

mod arriving;
mod link;
mod polling;
#[cfg(test)]
mod tests;

/// Error of setting up sockets.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketsError {
    /// An option is out of range.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// No ring can be set up, or the kernel is older than 6.0.
    #[error(transparent)]
    Ring(#[from] SetupError),
    /// The kernel has no memory or no descriptors.
    #[error(
        "could not set up sockets: {0} (raise the limit of open files, `ulimit -n`, or set fewer \
         buffers)"
    )]
    Other(#[from] io::Error),
}

/// Error of a send that took none of the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SendError {
    /// The connection is closed, or being closed.
    #[error("the connection is closed")]
    Closed,
    /// Twice [`Options::outgoing_bytes`] wait, because the peer does not read.
    #[error("the connection is full: wait until it is writable")]
    Full,
}

/// Way to close a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closing {
    /// After the kernel has all sent bytes. At the latest after a minute without a moved byte.
    AfterSending,
    /// At once. Bytes that the kernel does not have yet are dropped.
    Now,
}

/// Stream sockets of one thread.
///
/// They may be moved to another thread until the first poll, and then belong to the polling thread.
/// The drop cancels all requests and waits for them for up to a second.
pub struct Sockets<W> {
    ring: SocketRing,
    pool: Arc<Pool>,
    options: Options,
    listeners: Table<Ear>,
    connections: Table<Link>,
    /// Sockets that were accepted beyond the limit, before accepting had stopped.
    lobby: VecDeque<(Key, OwnedFd)>,
    work: Work<What<W>>,
    /// Connections whose sends or receives may have to be started or stopped.
    active: Vec<Key>,
    starved: VecDeque<Key>,
    /// Of the connections that close after sending, one each.
    timers: BTreeSet<(Moment, Key)>,
    poster: Poster<W>,
    posted: fifo::Receiver<W>,
    /// Result of the last drain of `posted`.
    all_posted: Rest,
    now: Moment,
    counters: NetCounters,
    arrivals: Vec<Arrival>,
}

impl<W> fmt::Debug for Sockets<W> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Sockets");
        shown.field("ring", &self.ring).field("counters", &self.counters).finish_non_exhaustive()
    }
}

impl<W> Sockets<W> {
    /// Creates sockets over a ring.
    ///
    /// # Errors
    /// [`SocketsError`], with the remedy.
    pub fn new(options: Options) -> Result<Self, SocketsError> {
        options.check()?;
        let pool = Pool::new(options.buffers, options.buffer_bytes)?;
        let ring = SocketRing::new(Arc::clone(&pool))?;
        let (poster, posted) = Poster::new(ring.waker());
        pool.set_waker(ring.waker());
        Ok(Self {
            ring,
            pool,
            options,
            listeners: Table::default(),
            connections: Table::default(),
            lobby: VecDeque::new(),
            work: Work::new(),
            active: Vec::new(),
            starved: VecDeque::new(),
            timers: BTreeSet::new(),
            poster,
            posted,
            all_posted: Rest::Empty,
            now: clock::now(),
            counters: NetCounters::default(),
            arrivals: Vec::new(),
        })
    }

    /// Returns one line: "io_uring: full", or the missing features.
    #[must_use]
    pub fn describe(&self) -> String {
        self.ring.describe()
    }

    /// Returns a handle for other threads, which post work.
    #[must_use]
    pub fn poster(&self) -> Poster<W> {
        self.poster.clone()
    }

    /// Returns the counters.
    #[must_use]
    pub fn counters(&self) -> NetCounters {
        let (posts, wakes) = self.poster.counts();
        let connections = u32::try_from(self.connections.len()).expect("bounded by the options");
        let (enters, buffers_out) = (self.ring.enters(), self.pool.out());
        NetCounters { posts, wakes, enters, buffers_out, connections, ..self.counters }
    }

    /// Listens at an address. Connections arrive as [`What::Accepted`]. Up to `backlog` of them
    /// wait in the kernel.
    ///
    /// # Errors
    /// The error of the kernel, such as an address in use.
    pub fn listen(&mut self, address: &Address, backlog: u32) -> Result<Listener, SocketError> {
        let socket = address.listen(backlog)?;
        let key =
            self.listeners.insert(Ear { accepting: false, stopping: false, rests_until: None });
        self.ring.listen(key, socket);
        Ok(Listener(key))
    }

    /// Returns the address of a listener.
    ///
    /// # Errors
    /// The listener is stale, or the error of the kernel.
    pub fn local(&self, listener: Listener) -> io::Result<Address> {
        Address::of(self.ring.listener_socket(listener.0).ok_or(io::ErrorKind::NotConnected)?)
    }

    /// Sends a copy of the bytes, after all earlier ones. The next poll submits it. Does not block.
    /// Takes all bytes, or none.
    ///
    /// # Errors
    /// The connection is closed, or full.
    pub fn send(&mut self, Connection(key): Connection, bytes: &[u8]) -> Result<Room, SendError> {
        let limit = self.options.outgoing_bytes;
        let link = self.connections.get_mut(key).ok_or(SendError::Closed)?;
        if link.stage != Stage::Open {
            return Err(SendError::Closed);
        }
        if link.outgoing.bytes() >= limit.saturating_mul(2) {
            return Err(SendError::Full);
        }
        link.outgoing.copy(bytes);
        let room = if link.outgoing.bytes() < limit { Room::Yes } else { Room::Stop };
        if room == Room::Stop {
            link.stopped = true;
            self.work.set_gate(source(key), Gate::Held);
        }
        self.activate(key);
        Ok(room)
    }

    /// Returns the number of outgoing bytes that the kernel has not sent; 0 for a stale number.
    #[must_use]
    pub fn outgoing(&self, connection: Connection) -> usize {
        self.connections.get(connection.0).map_or(0, |link| link.outgoing.bytes())
    }

    /// Closes a connection. Its events that were not returned are dropped, and [`What::Closed`]
    /// follows. Does nothing for a closed connection. One that closes after sending can still be
    /// closed at once.
    ///
    /// If bytes of the peer were not received, the kernel resets the connection, and the peer loses
    /// the bytes that it has not read. So close a connection that has [`Finished`](What::Finished),
    /// or whose peer waits by the rules of the protocol.
    pub fn close(&mut self, Connection(key): Connection, how: Closing) {
        let Some(link) = self.connections.get_mut(key) else { return };
        if matches!(link.stage, Stage::Closing(_) | Stage::Closed) {
            return;
        }
        self.work.clear(source(key));
        self.work.set_gate(source(key), Gate::Open);
        if how == Closing::Now || link.outgoing.bytes() == 0 {
            self.end(key, EndReason::Asked);
            return;
        }
        link.stage = Stage::Draining;
        link.moved = self.now;
        self.set_timer(key);
        self.activate(key);
    }

    /// Closes the socket, after its requests have ended.
    fn end(&mut self, key: Key, reason: EndReason) {
        let link = self.connections.get_mut(key).expect("found by the caller");
        if matches!(link.stage, Stage::Closing(_) | Stage::Closed) {
            return;
        }
        link.stage = Stage::Closing(reason);
        if let Some(due) = link.timer.take() {
            self.timers.remove(&(due, key));
        }
        self.work.set_gate(source(key), Gate::Open);
        self.ring.close(key);
    }

    /// Adds a socket as a connection.
    fn admit(&mut self, socket: OwnedFd) -> Key {
        let link = Link {
            stage: Stage::Open,
            receiving: Receiving::No,
            outgoing: Outgoing::default(),
            stopped: false,
            listed: false,
            moved: self.now,
            timer: None,
        };
        let key = self.connections.insert(link);
        self.ring.add(key, socket);
        key
    }

    /// Sets the timer of a connection that closes after sending and has none. A moved byte does not
    /// move it: when it is due, it is set again for the rest.
    fn set_timer(&mut self, key: Key) {
        let link = self.connections.get_mut(key).expect("found by the caller");
        let due = link.moved + LINGER;
        link.timer = Some(due);
        self.timers.insert((due, key));
    }

    /// Adds a connection to the list `active`.
    fn activate(&mut self, key: Key) {
        if let Some(link) = self.connections.get_mut(key)
            && !std::mem::replace(&mut link.listed, true)
        {
            self.active.push(key);
        }
    }

    /// Queues an event of a connection.
    fn report(&mut self, key: Key, bytes: usize, what: What<W>) {
        self.work.push(source(key), EVENT_COST_BYTES + bytes, what);
    }

    /// Queues an event of no connection.
    fn report_loose(&mut self, what: What<W>) {
        self.work.push(LOOSE, EVENT_COST_BYTES, what);
    }
}

/// Returns the source of a connection's events.
fn source(key: Key) -> Source {
    key.place + 1
}
