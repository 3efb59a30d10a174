//! The sockets of one thread: what the caller has, and how a poll goes.
//!
//! ```text
//! poll: buffers back -> sends and receives started -> ONE enter -> arrivals numbered -> timers -> posted -> pass
//! ```

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use forebay_block::{Errno, Moment};
use forebay_lists::{Rest, fifo};

use super::address::{self, Address, SocketError};
use super::counters::NetCounters;
use super::epoll::Epoll;
use super::event::{Connection, EndReason, Listener, What};
use super::limits::{EVENT_COST_BYTES, LINGER, STALE_TIMERS};
use super::options::{Choice, Options, OptionsError};
use super::outgoing::{Outgoing, Room};
use super::pool::Pool;
use super::poster::Poster;
use super::ring::SocketRing;
use super::table::{Key, Table};
use super::timers::Timers;
use super::transport::Transport;
use super::work::{Gate, LOOSE, Source, Work};
use crate::backend::is_absent;
use crate::clock;
use crate::setup::SetupError;

mod arriving;
mod polling;
#[cfg(test)]
mod tests;

/// Why there are no sockets.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketsError {
    /// An option is out of its range.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// There is no ring, and epoll was not to stand in for it.
    #[error(transparent)]
    Ring(#[from] SetupError),
    /// The kernel gave no memory or no descriptors.
    #[error(
        "could not set up sockets: {0} (raise the limit of open files, `ulimit -n`, or make fewer buffers)"
    )]
    Other(#[from] io::Error),
}

/// Why bytes were not taken. Nothing of them was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SendError {
    /// The connection is gone, or is being closed.
    #[error("the connection is closed")]
    Closed,
    /// Twice what may wait is waiting, for the peer does not read.
    #[error("the connection is full: wait until it is told writable")]
    Full,
}

/// How a connection is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closing {
    /// When what was sent is with the kernel; at the latest when nothing moved for its idle time,
    /// or a minute.
    AfterSending,
    /// At once; what was sent and is not with the kernel is dropped.
    Now,
}

/// Where a connection is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Connecting,
    Open,
    /// To be closed when all is sent.
    Draining,
    /// Asked to close; told when nothing of it is under way.
    Closing(EndReason),
    /// Closed; to be told.
    Closed,
}

/// Whether a receive is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Receiving {
    No,
    Yes,
    Stopping,
    /// No buffer was free: in the line of those.
    Starved,
    /// The peer sends nothing more.
    Finished,
}

#[derive(Debug)]
struct Link {
    stage: Stage,
    receiving: Receiving,
    outgoing: Outgoing,
    /// Whether the caller was told to stop, and is to be told when it need not.
    stopped: bool,
    /// Whether it is in the list of those whose sends or receives are to be looked at.
    listed: bool,
    moved: Moment,
    idle: Option<Duration>,
    /// The timer that counts, if one is set.
    timer: Option<Moment>,
}

#[derive(Debug)]
struct Ear {
    accepting: bool,
    stopping: bool,
    /// Nobody listens any more.
    forgotten: bool,
    rests_until: Option<Moment>,
}

/// Stream sockets of one thread.
///
/// May be made on one thread and moved to another, but belongs to the thread that polls it first.
/// Dropped, it cancels what is under way and waits for it, a second at most.
pub struct Sockets<W> {
    transport: Transport,
    pool: Arc<Pool>,
    options: Options,
    listeners: Table<Ear>,
    connections: Table<Link>,
    /// Accepted beyond the limit, before accepting had stopped: they wait here for a place.
    lobby: VecDeque<(Key, OwnedFd)>,
    work: Work<What<W>>,
    /// Connections whose sends or receives are to be looked at.
    active: Vec<Key>,
    starved: VecDeque<Key>,
    timers: Timers,
    poster: Poster<W>,
    posted: fifo::Receiver<W>,
    /// Whether the list of what was posted has been seen empty since.
    all_posted: Rest,
    now: Moment,
    counters: NetCounters,
    arrivals: Vec<super::transport::Arrival>,
}

impl<W> fmt::Debug for Sockets<W> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Sockets");
        shown
            .field("transport", &self.transport)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

impl<W> Sockets<W> {
    /// Sockets by the means that were chosen.
    ///
    /// # Errors
    /// Why there are none, and what to do about it.
    pub fn new(options: Options) -> Result<Self, SocketsError> {
        options.check()?;
        let pool = Pool::new(options.buffers, options.buffer_bytes)?;
        let transport = match options.choice {
            Choice::Epoll => Transport::Epoll(Box::new(Epoll::new(Arc::clone(&pool), None)?)),
            choice => match SocketRing::new(Arc::clone(&pool)) {
                Ok(ring) => Transport::Ring(Box::new(ring)),
                Err(refused) if choice == Choice::Auto && is_absent(&refused) => {
                    tracing::warn!(%refused, "epoll stands in for the ring");
                    let instead = Some(refused.to_string());
                    Transport::Epoll(Box::new(Epoll::new(Arc::clone(&pool), instead)?))
                }
                Err(refused) => return Err(refused.into()),
            },
        };
        let (poster, posted) = Poster::new(transport.waker());
        pool.set_waker(transport.waker());
        Ok(Self {
            transport,
            pool,
            options,
            listeners: Table::default(),
            connections: Table::default(),
            lobby: VecDeque::new(),
            work: Work::new(),
            active: Vec::new(),
            starved: VecDeque::new(),
            timers: Timers::default(),
            poster,
            posted,
            all_posted: Rest::Empty,
            now: clock::now(),
            counters: NetCounters::default(),
            arrivals: Vec::new(),
        })
    }

    /// One line: "io_uring: full", or what is lost; or epoll, and why.
    #[must_use]
    pub fn describe(&self) -> String {
        self.transport.describe()
    }

    /// Whether it is the ring.
    #[must_use]
    pub fn is_ring(&self) -> bool {
        matches!(self.transport, Transport::Ring(_))
    }

    /// What other threads reach the polling one by.
    #[must_use]
    pub fn poster(&self) -> Poster<W> {
        self.poster.clone()
    }

    /// What was done so far.
    #[must_use]
    pub fn counters(&self) -> NetCounters {
        let (posts, wakes) = self.poster.counts();
        let connections = u32::try_from(self.connections.len()).expect("bounded by the options");
        let (enters, buffers_out) = (self.transport.enters(), self.pool.out());
        NetCounters { posts, wakes, enters, buffers_out, connections, ..self.counters }
    }

    /// Changes the order of the passes from the next one on.
    pub fn set_order(&mut self, order: forebay_block::knobs::Order) {
        self.options.order = order;
    }

    /// Listens; connections come as [`What::Accepted`]. So many that were not accepted may wait in
    /// the kernel.
    ///
    /// # Errors
    /// What the kernel said: the address is in use, or not ours.
    pub fn listen(&mut self, address: &Address, backlog: u32) -> Result<Listener, SocketError> {
        let socket = address::listening(address, backlog, self.transport.calls())?;
        let key = self.listeners.insert(Ear {
            accepting: false,
            stopping: false,
            forgotten: false,
            rests_until: None,
        });
        if let Err(Errno(code)) = self.transport.listen(key, socket) {
            self.listeners.remove(key);
            let source = io::Error::from_raw_os_error(code);
            return Err(SocketError { doing: "listen on", address: address.clone(), source });
        }
        Ok(Listener(key))
    }

    /// Stops listening. Connections that were accepted and told stay; those that wait are closed.
    /// The address is free when a poll has seen to it. A stale number does nothing.
    pub fn stop_listening(&mut self, Listener(key): Listener) {
        let Some(ear) = self.listeners.get_mut(key).filter(|ear| !ear.forgotten) else { return };
        (ear.forgotten, ear.rests_until) = (true, None);
        self.lobby.retain(|(listener, _)| *listener != key);
        self.transport.forget_listener(key);
    }

    /// Starts to connect. [`What::Connected`] comes when it is done, or [`What::Closed`] with the
    /// reason why not. What is sent before that waits.
    ///
    /// # Errors
    /// There is no socket to be had, or the limit of connections is reached.
    pub fn connect(&mut self, address: &Address) -> Result<Connection, SocketError> {
        let doing = "connect to";
        let error = |source| SocketError { doing, address: address.clone(), source };
        if self.connections.len() >= self.options.connections as usize {
            return Err(error(io::Error::other(
                "as many connections as the options allow are there",
            )));
        }
        let (socket, raw) = address::to_connect(address, self.transport.calls())?;
        let key = self
            .admit(socket, Stage::Connecting)
            .map_err(|Errno(code)| error(io::Error::from_raw_os_error(code)))?;
        self.transport.connect(key, raw);
        Ok(Connection(key))
    }

    /// The address of a listener.
    ///
    /// # Errors
    /// It is stale, or what the kernel said.
    pub fn local(&self, listener: Listener) -> io::Result<Address> {
        Address::of(self.transport.listener_socket(listener.0).ok_or(io::ErrorKind::NotConnected)?)
    }

    /// The address of a connection's other end.
    ///
    /// # Errors
    /// It is stale, or what the kernel said.
    pub fn peer(&self, connection: Connection) -> io::Result<Address> {
        address::peer(self.transport.socket(connection.0).ok_or(io::ErrorKind::NotConnected)?)
    }

    /// Sends a copy of the bytes, behind all that was sent before; it goes with the next poll. Does
    /// not block. All of them are taken, or none.
    ///
    /// # Errors
    /// The connection is closed, or full.
    pub fn send(&mut self, connection: Connection, bytes: &[u8]) -> Result<Room, SendError> {
        self.queue(connection, |outgoing| outgoing.copy(bytes))
    }

    /// As [`Sockets::send`], without a copy.
    ///
    /// # Errors
    /// The connection is closed, or full.
    pub fn send_owned(
        &mut self,
        connection: Connection,
        bytes: Vec<u8>,
    ) -> Result<Room, SendError> {
        self.queue(connection, |outgoing| outgoing.give(bytes))
    }

    fn queue(
        &mut self,
        Connection(key): Connection,
        put: impl FnOnce(&mut Outgoing),
    ) -> Result<Room, SendError> {
        let limit = self.options.outgoing_bytes;
        let link = self.connections.get_mut(key).ok_or(SendError::Closed)?;
        if !matches!(link.stage, Stage::Connecting | Stage::Open) {
            return Err(SendError::Closed);
        }
        if link.outgoing.bytes() >= limit.saturating_mul(2) {
            return Err(SendError::Full);
        }
        if link.outgoing.bytes() == 0 {
            // Idleness is counted from when there is something to move.
            link.moved = self.now;
        }
        put(&mut link.outgoing);
        let room = if link.outgoing.bytes() < limit { Room::Yes } else { Room::Stop };
        if room == Room::Stop {
            link.stopped = true;
            self.work.set_gate(source(key), Gate::Held);
        }
        self.activate(key);
        Ok(room)
    }

    /// Bytes sent to a connection that are not with the kernel; none where it is closed.
    #[must_use]
    pub fn outgoing(&self, connection: Connection) -> usize {
        self.connections.get(connection.0).map_or(0, |link| link.outgoing.bytes())
    }

    /// How long a connection may move no byte, from now on. A stale number does nothing.
    pub fn set_idle(&mut self, connection: Connection, idle: Option<Duration>) {
        if let Some(link) = self.connections.get_mut(connection.0) {
            link.idle = idle;
            self.set_timer(connection.0);
        }
    }

    /// Closes a connection. What it sent and was not handed out is dropped; [`What::Closed`]
    /// follows. One that is closed already, or being closed, is left as it is, but that one closing
    /// after sending can be closed now.
    ///
    /// Bytes of the peer that were not received make the kernel reset the connection, and then what
    /// the peer has not read of ours is lost to it. So close what has [`Finished`](What::Finished),
    /// or where the protocol says that the peer waits.
    pub fn close(&mut self, Connection(key): Connection, how: Closing) {
        let Some(link) = self.connections.get_mut(key) else { return };
        if matches!(link.stage, Stage::Closing(_) | Stage::Closed) {
            return;
        }
        self.work.clear(source(key));
        self.work.set_gate(source(key), Gate::Open);
        let connecting = link.stage == Stage::Connecting;
        if how == Closing::Now || connecting || link.outgoing.bytes() == 0 {
            self.end(key, EndReason::Asked);
            return;
        }
        link.stage = Stage::Draining;
        link.moved = self.now;
        link.idle = Some(link.idle.map_or(LINGER, |idle| idle.min(LINGER)));
        self.set_timer(key);
        self.activate(key);
    }

    /// Asks the transport to close.
    fn end(&mut self, key: Key, reason: EndReason) {
        let link = self.connections.get_mut(key).expect("looked at by the caller");
        if matches!(link.stage, Stage::Closing(_) | Stage::Closed) {
            return;
        }
        link.stage = Stage::Closing(reason);
        self.work.set_gate(source(key), Gate::Open);
        self.transport.close(key);
    }

    /// Takes a socket in as a connection.
    fn admit(&mut self, socket: OwnedFd, stage: Stage) -> Result<Key, Errno> {
        let (moved, idle) = (self.now, self.options.idle);
        let link = Link {
            stage,
            receiving: Receiving::No,
            outgoing: Outgoing::default(),
            stopped: false,
            listed: false,
            moved,
            idle,
            timer: None,
        };
        let key = self.connections.insert(link);
        if let Err(error) = self.transport.add(key, socket) {
            self.connections.remove(key);
            return Err(error);
        }
        self.set_timer(key);
        Ok(key)
    }

    /// Sets the timer for when a connection has moved nothing for too long, unless one before that
    /// is set.
    fn set_timer(&mut self, key: Key) {
        let Some(link) = self.connections.get_mut(key) else { return };
        let Some(idle) = link.idle else { return };
        let due = link.moved + idle;
        if link.timer.is_some_and(|set| set <= due) {
            return;
        }
        link.timer = Some(due);
        if self.timers.len() > 2 * self.connections.len() + STALE_TIMERS {
            let connections = &self.connections;
            self.timers
                .retain(|at, key| connections.get(key).is_some_and(|link| link.timer == Some(at)));
        }
        self.timers.set(due, key);
    }

    /// Puts a connection in the list of those to be looked at before the next enter.
    fn activate(&mut self, key: Key) {
        if let Some(link) = self.connections.get_mut(key)
            && !std::mem::replace(&mut link.listed, true)
        {
            self.active.push(key);
        }
    }

    /// Something arrived that will be told.
    fn tell(&mut self, key: Key, bytes: usize, what: What<W>) {
        self.work.push(source(key), EVENT_COST_BYTES + bytes, what);
    }

    fn tell_loose(&mut self, what: What<W>) {
        self.work.push(LOOSE, EVENT_COST_BYTES, what);
    }
}

/// The source that stands for a connection.
fn source(key: Key) -> Source {
    key.place + 1
}
