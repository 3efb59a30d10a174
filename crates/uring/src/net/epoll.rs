//! Sockets over epoll, for where the ring cannot: the same surface, with a call for each thing that
//! moves.
//!
//! Sockets do not block and are watched at their edges: told once that something came, they are
//! read until nothing is there. Who has more than is read in one go keeps its place in line and
//! goes on at the next call, so here too a flood does not keep others waiting.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSlice};
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use forebay_block::Errno;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrAny, sockopt};

use super::address::Calls;
use super::limits::{RECEIVES, STAGED};
use super::outgoing::Flight;
use super::pool::Pool;
use super::table::Key;
use super::transport::{Arrival, End};
use crate::enter::Enters;
use crate::waker::Waker;

const WAKE: u64 = 1 << 56;
const LISTENER: u64 = 2 << 56;
const CONNECTION: u64 = 3 << 56;
const KIND: u64 = 0xff << 56;

#[derive(Debug)]
struct Listening {
    key: Key,
    socket: OwnedFd,
    accepting: bool,
    readable: bool,
}

#[derive(Debug)]
struct Connected {
    key: Key,
    socket: OwnedFd,
    receiving: bool,
    readable: bool,
    /// The peer sends nothing more, so there is an end to be read behind the bytes.
    hung_up: bool,
    writable: bool,
    connecting: bool,
    flight: Option<Flight>,
    in_line: bool,
}

/// Whoever can go on without being told.
#[derive(Clone, Copy, Debug)]
enum Ready {
    Listener(Key),
    Connection(Key),
}

/// The sockets, and who is ready.
pub(super) struct Epoll {
    epoll: OwnedFd,
    waker: Waker,
    pool: Arc<Pool>,
    free: Vec<u16>,
    listeners: Vec<Option<Listening>>,
    connections: Vec<Option<Connected>>,
    ready: VecDeque<Ready>,
    arrived: Vec<Arrival>,
    enters: Enters,
    /// Why there is no ring, where one was wanted.
    instead: Option<String>,
}

impl fmt::Debug for Epoll {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Epoll").field("enters", &self.enters).finish_non_exhaustive()
    }
}

impl Epoll {
    pub(super) fn new(pool: Arc<Pool>, instead: Option<String>) -> io::Result<Self> {
        let (epoll, waker) = (epoll::create(CreateFlags::CLOEXEC)?, Waker::new()?);
        // SAFETY: the waker is held, and keeps its descriptor open.
        let eventfd = unsafe { BorrowedFd::borrow_raw(waker.eventfd()) };
        epoll::add(&epoll, eventfd, EventData::new_u64(WAKE), EventFlags::IN)?;
        Ok(Self {
            epoll,
            waker,
            free: (0..pool.count()).rev().collect(),
            pool,
            listeners: Vec::new(),
            connections: Vec::new(),
            ready: VecDeque::new(),
            arrived: Vec::new(),
            enters: Enters::default(),
            instead,
        })
    }

    pub(super) fn describe(&self) -> String {
        match &self.instead {
            None => "epoll: as asked for".into(),
            Some(refused) => format!("epoll: {refused}"),
        }
    }

    pub(super) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    pub(super) fn enters(&self) -> Enters {
        self.enters
    }

    pub(super) fn listen(&mut self, listener: Key, socket: OwnedFd) -> Result<(), Errno> {
        self.enters.all += 1;
        let data = EventData::new_u64(LISTENER | listener.word());
        epoll::add(&self.epoll, &socket, data, EventFlags::IN | EventFlags::ET).map_err(errno)?;
        put(
            &mut self.listeners,
            listener,
            Listening { key: listener, socket, accepting: false, readable: true },
        );
        Ok(())
    }

    pub(super) fn accept(&mut self, listener: Key) {
        let listening = listening(&mut self.listeners, listener).expect("taken in before");
        listening.accepting = true;
        if listening.readable {
            self.ready.push_back(Ready::Listener(listener));
        }
    }

    pub(super) fn stop_accepting(&mut self, listener: Key) {
        let listening = listening(&mut self.listeners, listener).expect("taken in before");
        if mem::take(&mut listening.accepting) {
            self.arrived.push(Arrival::AcceptEnded { listener, error: None });
        }
    }

    pub(super) fn forget_listener(&mut self, listener: Key) {
        self.listeners[listener.index()] = None;
        self.arrived.push(Arrival::Forgotten { listener });
    }

    pub(super) fn add(&mut self, connection: Key, socket: OwnedFd) -> Result<(), Errno> {
        self.enters.all += 1;
        let data = EventData::new_u64(CONNECTION | connection.word());
        let edges = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, &socket, data, edges).map_err(errno)?;
        let connected = Connected {
            key: connection,
            socket,
            receiving: false,
            readable: true,
            hung_up: false,
            writable: true,
            connecting: false,
            flight: None,
            in_line: false,
        };
        put(&mut self.connections, connection, connected);
        Ok(())
    }

    pub(super) fn connect(&mut self, connection: Key, address: SocketAddrAny) {
        self.enters.all += 1;
        let connected = connected(&mut self.connections, connection).expect("added before");
        // What was told of it before it connects counts for nothing.
        (connected.readable, connected.writable) = (false, false);
        match rustix::net::connect(&connected.socket, &address) {
            Err(rustix::io::Errno::INPROGRESS | rustix::io::Errno::INTR) => {
                connected.connecting = true;
            }
            result => {
                (connected.readable, connected.writable) = (true, true);
                let result = result.map_err(errno);
                self.arrived.push(Arrival::Connected { connection, result });
            }
        }
    }

    pub(super) fn receive(&mut self, connection: Key) {
        let connected = connected(&mut self.connections, connection).expect("added before");
        assert!(!connected.receiving, "one receive at a time");
        connected.receiving = true;
        self.line_up(connection);
    }

    pub(super) fn stop_receiving(&mut self, connection: Key) {
        let connected = connected(&mut self.connections, connection).expect("added before");
        if mem::take(&mut connected.receiving) {
            self.arrived.push(Arrival::ReceiveEnded { connection, end: End::Stopped });
        }
    }

    pub(super) fn send(&mut self, connection: Key, flight: Flight) {
        let connected = connected(&mut self.connections, connection).expect("added before");
        assert!(connected.flight.is_none(), "one send at a time");
        connected.flight = Some(flight);
        self.line_up(connection);
    }

    pub(super) fn close(&mut self, connection: Key) {
        // Closing takes it out of the epoll too. Nothing lingers, so it does not block.
        self.connections[connection.index()] = None;
        self.arrived.push(Arrival::Closed { connection });
    }

    pub(super) fn recycle(&mut self) -> u32 {
        self.pool.take_back(&mut self.free);
        u32::try_from(self.free.len()).expect("16 bits of them")
    }

    pub(super) fn listener_socket(&self, listener: Key) -> Option<BorrowedFd<'_>> {
        let listening = self.listeners.get(listener.index())?.as_ref()?;
        (listening.key == listener).then(|| listening.socket.as_fd())
    }

    pub(super) fn socket(&self, connection: Key) -> Option<BorrowedFd<'_>> {
        let connected = self.connections.get(connection.index())?.as_ref()?;
        (connected.key == connection).then(|| connected.socket.as_fd())
    }

    pub(super) fn reap(&mut self, arrivals: &mut Vec<Arrival>) {
        arrivals.append(&mut self.arrived);
    }

    pub(super) fn enter(&mut self, limit: Option<Duration>) -> Result<(), Errno> {
        self.go_on();
        let no_wait =
            !self.arrived.is_empty() || !self.ready.is_empty() || limit == Some(Duration::ZERO);
        let watched = if no_wait {
            self.watch(Some(Duration::ZERO))
        } else if self.waker.fall_asleep() {
            self.watch(limit)
        } else {
            // Somebody rang since the last look: the caller looks again.
            Ok(())
        };
        if !no_wait {
            self.waker.awake();
        }
        watched?;
        self.go_on();
        Ok(())
    }

    /// Asks who is ready, and waits for it.
    fn watch(&mut self, limit: Option<Duration>) -> Result<(), Errno> {
        self.enters.all += 1;
        self.enters.waits += u64::from(limit != Some(Duration::ZERO));
        let limit = limit.map(|limit| {
            Timespec::try_from(limit).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 })
        });
        let mut space = [const { MaybeUninit::<epoll::Event>::uninit() }; STAGED as usize];
        let events = match epoll::wait(&self.epoll, &mut space, limit.as_ref()) {
            Ok((events, _)) => events,
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(errno(error)),
        };
        for event in events {
            let (word, flags) = (event.data.u64(), event.flags);
            match word & KIND {
                LISTENER => self.listener_is_ready(Key::of(word)),
                CONNECTION => self.connection_is_ready(Key::of(word), flags),
                _ => self.silence(),
            }
        }
        Ok(())
    }

    fn silence(&mut self) {
        self.enters.all += 1;
        // SAFETY: the waker is held, and keeps its descriptor open.
        let eventfd = unsafe { BorrowedFd::borrow_raw(self.waker.eventfd()) };
        // It is read by this thread alone, so a read of one that was seen to ring does not block.
        let _ = rustix::io::retry_on_intr(|| rustix::io::read(eventfd, &mut [0; 8]));
    }

    fn listener_is_ready(&mut self, key: Key) {
        if let Some(listening) = listening(&mut self.listeners, key)
            && !mem::replace(&mut listening.readable, true)
            && listening.accepting
        {
            self.ready.push_back(Ready::Listener(key));
        }
    }

    fn connection_is_ready(&mut self, key: Key, flags: EventFlags) {
        let Some(connected) = connected(&mut self.connections, key) else { return };
        let ended = flags.intersects(EventFlags::HUP | EventFlags::ERR);
        if connected.connecting {
            if !ended && !flags.contains(EventFlags::OUT) {
                return;
            }
            connected.connecting = false;
            self.enters.all += 1;
            let result =
                sockopt::socket_error(&connected.socket).and_then(|result| result).map_err(errno);
            self.arrived.push(Arrival::Connected { connection: key, result });
        }
        connected.hung_up |= ended || flags.contains(EventFlags::RDHUP);
        connected.readable |= connected.hung_up || flags.contains(EventFlags::IN);
        connected.writable |= ended || flags.contains(EventFlags::OUT);
        self.line_up(key);
    }

    /// Puts a connection in line, if it can go on.
    fn line_up(&mut self, key: Key) {
        let connected = connected(&mut self.connections, key).expect("looked at by the caller");
        if connected.can_go_on() && !mem::replace(&mut connected.in_line, true) {
            self.ready.push_back(Ready::Connection(key));
        }
    }

    /// Lets each in line go on once.
    fn go_on(&mut self) {
        for _ in 0..self.ready.len() {
            match self.ready.pop_front().expect("counted just now") {
                Ready::Listener(key) => self.accept_some(key),
                Ready::Connection(key) => self.move_some(key),
            }
        }
    }

    fn accept_some(&mut self, key: Key) {
        let Some(listening) = listening(&mut self.listeners, key) else { return };
        for _ in 0..RECEIVES {
            if !(listening.accepting && listening.readable) {
                return;
            }
            self.enters.all += 1;
            match rustix::net::accept_with(&listening.socket, Calls::DoNotBlock.flags()) {
                Ok(socket) => self.arrived.push(Arrival::Accepted { listener: key, socket }),
                Err(rustix::io::Errno::AGAIN) => listening.readable = false,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    listening.accepting = false;
                    let error = Some(errno(error));
                    self.arrived.push(Arrival::AcceptEnded { listener: key, error });
                }
            }
        }
        self.ready.push_back(Ready::Listener(key));
    }

    fn move_some(&mut self, key: Key) {
        let Some(connected) = connected(&mut self.connections, key) else { return };
        connected.in_line = false;
        if connected.writable
            && let Some(flight) = connected.flight.take()
        {
            self.enters.all += 1;
            match connected.send(&flight) {
                Err(Errno(libc::EAGAIN)) => {
                    connected.writable = false;
                    connected.flight = Some(flight);
                }
                Err(Errno(libc::EINTR)) => connected.flight = Some(flight),
                moved => self.arrived.push(Arrival::Sent { connection: key, flight, moved }),
            }
        }
        for _ in 0..RECEIVES {
            if !(connected.receiving && connected.readable) {
                break;
            }
            let Some(buffer) = self.free.pop() else {
                connected.receiving = false;
                self.arrived.push(Arrival::ReceiveEnded { connection: key, end: End::NoBuffer });
                break;
            };
            self.enters.all += 1;
            let received = connected.receive(&self.pool, buffer);
            if let Ok(length @ 1..) = received {
                // SAFETY: the buffer was free, and is not in the list of the free any more.
                let bytes = unsafe { self.pool.hand_out(buffer, length) };
                self.arrived.push(Arrival::Received { connection: key, bytes });
                // Nothing was left: the next edge tells. But an end behind the bytes had its edge
                // already.
                connected.readable = connected.hung_up || length == self.pool.each() as usize;
                continue;
            }
            self.free.push(buffer);
            let end = match received {
                Err(Errno(libc::EAGAIN)) => {
                    connected.readable = false;
                    continue;
                }
                Err(Errno(libc::EINTR)) => continue,
                Err(error) => End::Failed(error),
                Ok(_) => End::Finished,
            };
            connected.receiving = false;
            self.arrived.push(Arrival::ReceiveEnded { connection: key, end });
        }
        self.line_up(key);
    }
}

impl Connected {
    fn can_go_on(&self) -> bool {
        !self.connecting
            && (self.receiving && self.readable || self.flight.is_some() && self.writable)
    }

    fn send(&self, flight: &Flight) -> Result<usize, Errno> {
        let slices: Vec<IoSlice<'_>> = flight.slices().collect();
        let mut nothing = SendAncillaryBuffer::default();
        rustix::net::sendmsg(&self.socket, &slices, &mut nothing, SendFlags::NOSIGNAL)
            .map_err(errno)
    }

    fn receive(&self, pool: &Pool, buffer: u16) -> Result<usize, Errno> {
        let start = pool.start(buffer).as_ptr();
        // SAFETY: the buffer is free, so nobody else uses it, and its bytes were zeroed at the
        // start.
        let bytes = unsafe { std::slice::from_raw_parts_mut(start, pool.each() as usize) };
        rustix::net::recv(&self.socket, bytes, RecvFlags::empty())
            .map(|(length, _)| length)
            .map_err(errno)
    }
}

fn errno(error: rustix::io::Errno) -> Errno {
    Errno(error.raw_os_error())
}

fn put<T>(table: &mut Vec<Option<T>>, key: Key, value: T) {
    if table.len() <= key.index() {
        table.resize_with(key.index() + 1, || None);
    }
    table[key.index()] = Some(value);
}

fn listening(table: &mut [Option<Listening>], key: Key) -> Option<&mut Listening> {
    table.get_mut(key.index())?.as_mut().filter(|listening| listening.key == key)
}

fn connected(table: &mut [Option<Connected>], key: Key) -> Option<&mut Connected> {
    table.get_mut(key.index())?.as_mut().filter(|connected| connected.key == key)
}
