//! Sockets over the ring: multishot accepts, multishot receives into provided buffers, one gathered
//! send at a time of each connection. A pass's requests go with one call, which also waits.
//!
//! The guarantees. What the kernel reads for a send is boxed and untouched until the send's
//! completion is here; what it receives into is the pool's. A completion that belongs to no request
//! under way ends nothing. A full completion queue loses nothing, and a multishot request that the
//! kernel ends early is told as ended. Dropped, the ring cancels all and waits a second; what does
//! not end by then keeps its memory for ever.
//!
//! The rule for the owner: as for [`Ring`](crate::Ring), the ring belongs to the thread that first
//! enters it.

use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::ThreadId;

use forebay_block::Errno;
use io_uring::types::Fd;
use io_uring::{cqueue, opcode, squeue};
use rustix::net::SocketAddrAny;

use super::limits::STAGED;
use super::outgoing::Flight;
use super::pool::Pool;
use super::provided::{GROUP, Provided};
use super::table::Key;
use crate::enter::{Door, Enters};
use crate::fork::Home;
use crate::offer::{Feature, Offers};
use crate::setup::{Level, Setup, SetupError};
use crate::waker::Waker;
use voyage::Departed;

pub(super) mod ability;
mod arriving;
mod entering;
mod goodbye;
mod voyage;

/// What a request is about; with a key the word the kernel carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Kind {
    Accept = 1,
    Receive,
    Send,
    Connect,
    /// Its completion says nothing.
    Cancel,
    Wake,
}

impl Kind {
    fn word(self, key: Key) -> u64 {
        (self as u64) << 56 | key.word()
    }

    fn of(word: u64) -> Option<Self> {
        let all =
            [Kind::Accept, Kind::Receive, Kind::Send, Kind::Connect, Kind::Cancel, Kind::Wake];
        all.into_iter().find(|kind| *kind as u64 == word >> 56)
    }
}

/// No socket's key.
const NOBODY: Key = Key { place: 0, generation: 0 };

/// A request that goes on until it is stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Going {
    No,
    Yes,
    Stopping,
}

#[derive(Debug)]
struct Listening {
    key: Key,
    socket: OwnedFd,
    accept: Going,
    forgotten: bool,
}

#[derive(Debug)]
struct Connected {
    key: Key,
    socket: OwnedFd,
    receive: Going,
    send: Option<Departed>,
    /// Where to: the kernel reads it until the connect has ended.
    connect: Option<Box<SocketAddrAny>>,
    closing: bool,
}

impl Connected {
    fn under_way(&self) -> u32 {
        u32::from(self.receive != Going::No)
            + u32::from(self.send.is_some())
            + u32::from(self.connect.is_some())
    }
}

/// The ring.
pub(super) struct SocketRing {
    /// Dropped by hand, because a forked child must not.
    setup: ManuallyDrop<Setup>,
    door: Door,
    home: Home,
    thread: Option<ThreadId>,
    /// `None` only while it is dropped.
    provided: Option<Provided>,
    listeners: Vec<Option<Listening>>,
    connections: Vec<Option<Connected>>,
    /// Requests that the kernel has or that are staged, but for cancels and the wake.
    under_way: u32,
    completions: VecDeque<cqueue::Entry>,
    /// Connections of which nothing is under way any more.
    closed: Vec<Key>,
    /// Such listeners.
    forgotten: Vec<Key>,
    /// Requests that are not in the submission queue yet, which may be full.
    staged: VecDeque<squeue::Entry>,
    waker: Waker,
    wake_armed: bool,
}

impl std::fmt::Debug for SocketRing {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("SocketRing")
            .field("under_way", &self.under_way)
            .finish_non_exhaustive()
    }
}

impl SocketRing {
    pub(super) fn new(pool: Arc<Pool>) -> Result<Self, SetupError> {
        let setup = Setup::new(STAGED, Level::NoArray)?;
        ability::check(ability::ability(setup.level))?;
        let provided =
            Provided::register(&setup.uring, pool).map_err(|error| match error.raw_os_error() {
                Some(libc::ENOMEM) => SetupError::Memory(error),
                _ => SetupError::Other(error),
            })?;
        Ok(Self {
            door: Door::of(&setup.uring),
            setup: ManuallyDrop::new(setup),
            home: Home::here(),
            thread: None,
            provided: Some(provided),
            listeners: Vec::new(),
            connections: Vec::new(),
            under_way: 0,
            completions: VecDeque::new(),
            closed: Vec::new(),
            forgotten: Vec::new(),
            staged: VecDeque::new(),
            waker: Waker::new()?,
            wake_armed: false,
        })
    }

    pub(super) fn describe(&self) -> String {
        let mut offers = self.setup.offers();
        // What files need, and sockets do not.
        let files = [Feature::SetLength, Feature::DiscardCommand, Feature::MinimalWait];
        offers.retain(|offer| !files.contains(&offer.feature));
        Offers(offers).to_string()
    }

    pub(super) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    pub(super) fn enters(&self) -> Enters {
        self.door.enters()
    }

    pub(super) fn listen(&mut self, listener: Key, socket: OwnedFd) -> Result<(), Errno> {
        let listening = Listening { key: listener, socket, accept: Going::No, forgotten: false };
        put(&mut self.listeners, listener, listening);
        Ok(())
    }

    pub(super) fn accept(&mut self, listener: Key) {
        let listening = find(&mut self.listeners, listener).expect("taken in before");
        assert_eq!(listening.accept, Going::No, "one accept at a time");
        listening.accept = Going::Yes;
        let accept =
            opcode::AcceptMulti::new(Fd(listening.socket.as_raw_fd())).flags(libc::SOCK_CLOEXEC);
        self.start(accept.build(), Kind::Accept, listener);
    }

    pub(super) fn stop_accepting(&mut self, listener: Key) {
        let listening = find(&mut self.listeners, listener).expect("taken in before");
        if listening.accept == Going::Yes {
            listening.accept = Going::Stopping;
            self.cancel(Kind::Accept, listener);
        }
    }

    pub(super) fn forget_listener(&mut self, listener: Key) {
        let listening = find(&mut self.listeners, listener).expect("taken in before");
        listening.forgotten = true;
        if listening.accept == Going::No {
            self.forgotten.push(listener);
        } else {
            self.stop_accepting(listener);
        }
    }

    pub(super) fn add(&mut self, connection: Key, socket: OwnedFd) -> Result<(), Errno> {
        let connected = Connected {
            key: connection,
            socket,
            receive: Going::No,
            send: None,
            connect: None,
            closing: false,
        };
        put(&mut self.connections, connection, connected);
        Ok(())
    }

    pub(super) fn connect(&mut self, connection: Key, address: SocketAddrAny) {
        let connected = find(&mut self.connections, connection).expect("added before");
        let address = connected.connect.insert(Box::new(address));
        let socket = Fd(connected.socket.as_raw_fd());
        let connect = opcode::Connect::new(socket, address.as_ptr().cast(), address.addr_len());
        self.start(connect.build(), Kind::Connect, connection);
    }

    pub(super) fn receive(&mut self, connection: Key) {
        let connected = find(&mut self.connections, connection).expect("added before");
        assert!(connected.receive == Going::No && !connected.closing, "one receive at a time");
        connected.receive = Going::Yes;
        let receive = opcode::RecvMulti::new(Fd(connected.socket.as_raw_fd()), GROUP);
        self.start(receive.build(), Kind::Receive, connection);
    }

    pub(super) fn stop_receiving(&mut self, connection: Key) {
        let connected = find(&mut self.connections, connection).expect("added before");
        if connected.receive == Going::Yes {
            connected.receive = Going::Stopping;
            self.cancel(Kind::Receive, connection);
        }
    }

    pub(super) fn send(&mut self, connection: Key, flight: Flight) {
        let connected = find(&mut self.connections, connection).expect("added before");
        assert!(connected.send.is_none() && !connected.closing, "one send at a time");
        let departed = connected.send.insert(Departed::new(flight));
        let entry = departed.entry(Fd(connected.socket.as_raw_fd()));
        self.start(entry, Kind::Send, connection);
    }

    pub(super) fn close(&mut self, connection: Key) {
        let connected = find(&mut self.connections, connection).expect("added before");
        assert!(!connected.closing, "a connection is closed once");
        connected.closing = true;
        let receive = connected.receive == Going::Yes;
        let (send, connect) = (connected.send.is_some(), connected.connect.is_some());
        if connected.under_way() == 0 {
            self.closed.push(connection);
            return;
        }
        for (kind, is) in [(Kind::Receive, receive), (Kind::Send, send), (Kind::Connect, connect)] {
            if is {
                self.cancel(kind, connection);
            }
        }
    }

    pub(super) fn recycle(&mut self) -> u32 {
        self.provided.as_mut().expect("until the drop").recycle()
    }

    pub(super) fn listener_socket(&self, listener: Key) -> Option<BorrowedFd<'_>> {
        let listening = self.listeners.get(listener.index())?.as_ref()?;
        (listening.key == listener).then(|| listening.socket.as_fd())
    }

    pub(super) fn socket(&self, connection: Key) -> Option<BorrowedFd<'_>> {
        let connected = self.connections.get(connection.index())?.as_ref()?;
        (connected.key == connection).then(|| connected.socket.as_fd())
    }

    fn start(&mut self, entry: squeue::Entry, kind: Kind, key: Key) {
        self.under_way += 1;
        self.staged.push_back(entry.user_data(kind.word(key)));
    }

    fn cancel(&mut self, kind: Kind, key: Key) {
        let cancel = opcode::AsyncCancel::new(kind.word(key)).build();
        self.staged.push_back(cancel.user_data(Kind::Cancel.word(key)));
    }
}

fn put<T>(table: &mut Vec<Option<T>>, key: Key, value: T) {
    if table.len() <= key.index() {
        table.resize_with(key.index() + 1, || None);
    }
    let place = &mut table[key.index()];
    assert!(place.is_none(), "the place of {key:?} is taken");
    *place = Some(value);
}

trait Keyed {
    fn key(&self) -> Key;
}

impl Keyed for Listening {
    fn key(&self) -> Key {
        self.key
    }
}

impl Keyed for Connected {
    fn key(&self) -> Key {
        self.key
    }
}

fn find<T: Keyed>(table: &mut [Option<T>], key: Key) -> Option<&mut T> {
    table.get_mut(key.index())?.as_mut().filter(|found| found.key() == key)
}
