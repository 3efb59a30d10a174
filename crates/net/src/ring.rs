//! Sockets over a ring: multishot accepts, multishot receives into provided buffers, and one
//! gathered send at a time for each connection. The requests of a pass go with one call, which also
//! waits.
//!
//! The guarantees. The kernel reads a send from a box that nothing touches until the completion of
//! the send. It receives into buffers of the pool. A completion without a request in flight ends
//! nothing. A full completion queue loses nothing, and a multishot request that the kernel ends
//! early is reported as ended. A dropped ring cancels its requests and waits a second; the memory
//! of requests that do not end by then is leaked.
//!
//! The rule for the owner: as for [`forebay_uring::Ring`], the ring belongs to the thread that
//! first enters it.

use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::ThreadId;

use forebay_uring::fork::Home;
use forebay_uring::setup::Setup;
use forebay_uring::{Enters, Feature, Offers, SetupError, Waker};
use io_uring::types::Fd;
use io_uring::{cqueue, opcode, squeue};

use crate::limits::STAGED;
use crate::outgoing::Flight;
use crate::pool::Pool;
use crate::provided::{GROUP, Provided};
use crate::table::Key;
pub(crate) use arrival::{Arrival, End};
use voyage::Departed;

mod arrival;
mod arriving;
mod entering;
mod goodbye;
mod voyage;

/// Kind of a request. With a key, it makes the word that the kernel returns with the completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Kind {
    Accept = 1,
    Receive,
    Send,
    /// Its completion is ignored.
    Cancel,
    Wake,
}

impl Kind {
    fn word(self, key: Key) -> u64 {
        (self as u64) << 56 | key.word()
    }

    fn of(word: u64) -> Option<Self> {
        let all = [Kind::Accept, Kind::Receive, Kind::Send, Kind::Cancel, Kind::Wake];
        all.into_iter().find(|kind| *kind as u64 == word >> 56)
    }
}

/// Key of no socket.
const NOBODY: Key = Key { place: 0, generation: 0 };

/// State of a request that goes on until it is stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Going {
    No,
    Yes,
    Stopping,
}

#[derive(Debug)]
struct Listening {
    socket: OwnedFd,
    accept: Going,
}

#[derive(Debug)]
struct Connected {
    socket: OwnedFd,
    receive: Going,
    send: Option<Departed>,
    closing: bool,
}

impl Connected {
    fn has_requests(&self) -> bool {
        self.receive != Going::No || self.send.is_some()
    }
}

/// The ring.
pub(crate) struct SocketRing {
    /// Dropped by hand, because a forked child must not.
    setup: ManuallyDrop<Setup>,
    home: Home,
    thread: Option<ThreadId>,
    /// `None` only during the drop.
    provided: Option<Provided>,
    /// By the place of their keys.
    listeners: Vec<Option<(Key, Listening)>>,
    connections: Vec<Option<(Key, Connected)>>,
    /// Requests in flight or staged, except cancels and the wake.
    under_way: u32,
    completions: VecDeque<cqueue::Entry>,
    /// Connections to be closed that have no more requests.
    closed: Vec<Key>,
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
    pub(crate) fn new(pool: Arc<Pool>) -> Result<Self, SetupError> {
        let setup = Setup::best(STAGED)?;
        if !setup.has_single_issuer() {
            // No probe reports a multishot receive. The kernel got it with the single issuer.
            return Err(SetupError::TooOld("multishot receive (6.0)"));
        }
        let provided =
            Provided::register(&setup.uring, pool).map_err(|error| match error.raw_os_error() {
                Some(libc::ENOMEM) => SetupError::Memory(error),
                _ => SetupError::Other(error),
            })?;
        Ok(Self {
            setup: ManuallyDrop::new(setup),
            home: Home::here(),
            thread: None,
            provided: Some(provided),
            listeners: Vec::new(),
            connections: Vec::new(),
            under_way: 0,
            completions: VecDeque::new(),
            closed: Vec::new(),
            staged: VecDeque::new(),
            waker: Waker::new()?,
            wake_armed: false,
        })
    }

    pub(crate) fn describe(&self) -> String {
        let mut offers = self.setup.offers();
        // Only files need these.
        let files = [Feature::SetLength, Feature::DiscardCommand, Feature::MinimalWait];
        offers.retain(|offer| !files.contains(&offer.feature));
        Offers(offers).to_string()
    }

    pub(crate) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    pub(crate) fn enters(&self) -> Enters {
        self.setup.door.enters()
    }

    /// Takes a listening socket. The place of its key is free.
    pub(crate) fn listen(&mut self, listener: Key, socket: OwnedFd) {
        put(&mut self.listeners, listener, Listening { socket, accept: Going::No });
    }

    /// Accepts connections until stopped.
    pub(crate) fn accept(&mut self, listener: Key) {
        let listening = find(&mut self.listeners, listener).expect("taken before");
        assert_eq!(listening.accept, Going::No, "one accept at a time");
        listening.accept = Going::Yes;
        let accept =
            opcode::AcceptMulti::new(Fd(listening.socket.as_raw_fd())).flags(libc::SOCK_CLOEXEC);
        self.start(accept.build(), Kind::Accept, listener);
    }

    pub(crate) fn stop_accepting(&mut self, listener: Key) {
        let listening = find(&mut self.listeners, listener).expect("taken before");
        if listening.accept == Going::Yes {
            listening.accept = Going::Stopping;
            self.cancel(Kind::Accept, listener);
        }
    }

    /// Takes the socket of a connection. The place of its key is free.
    pub(crate) fn add(&mut self, connection: Key, socket: OwnedFd) {
        let connected = Connected { socket, receive: Going::No, send: None, closing: false };
        put(&mut self.connections, connection, connected);
    }

    /// Receives until stopped.
    pub(crate) fn receive(&mut self, connection: Key) {
        let connected = find(&mut self.connections, connection).expect("added before");
        assert!(connected.receive == Going::No && !connected.closing, "one receive at a time");
        connected.receive = Going::Yes;
        let receive = opcode::RecvMulti::new(Fd(connected.socket.as_raw_fd()), GROUP);
        self.start(receive.build(), Kind::Receive, connection);
    }

    pub(crate) fn stop_receiving(&mut self, connection: Key) {
        let connected = find(&mut self.connections, connection).expect("added before");
        if connected.receive == Going::Yes {
            connected.receive = Going::Stopping;
            self.cancel(Kind::Receive, connection);
        }
    }

    pub(crate) fn send(&mut self, connection: Key, flight: Flight) {
        let connected = find(&mut self.connections, connection).expect("added before");
        assert!(connected.send.is_none() && !connected.closing, "one send at a time");
        let departed = connected.send.insert(Departed::new(flight));
        let entry = departed.entry(Fd(connected.socket.as_raw_fd()));
        self.start(entry, Kind::Send, connection);
    }

    /// Cancels the requests of a connection, and closes its socket when they have ended.
    /// [`Arrival::Closed`] follows.
    pub(crate) fn close(&mut self, connection: Key) {
        let connected = find(&mut self.connections, connection).expect("added before");
        assert!(!connected.closing, "a connection is closed once");
        connected.closing = true;
        let (receives, sends) = (connected.receive == Going::Yes, connected.send.is_some());
        if !connected.has_requests() {
            self.closed.push(connection);
        }
        if receives {
            self.cancel(Kind::Receive, connection);
        }
        if sends {
            self.cancel(Kind::Send, connection);
        }
    }

    /// Gives the returned buffers to the kernel. Returns the number of buffers that it has.
    pub(crate) fn recycle(&mut self) -> u32 {
        self.provided.as_mut().expect("until the drop").recycle()
    }

    pub(crate) fn listener_socket(&self, listener: Key) -> Option<BorrowedFd<'_>> {
        let (key, listening) = self.listeners.get(listener.index())?.as_ref()?;
        (*key == listener).then(|| listening.socket.as_fd())
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

fn put<T>(table: &mut Vec<Option<(Key, T)>>, key: Key, value: T) {
    if table.len() <= key.index() {
        table.resize_with(key.index() + 1, || None);
    }
    let place = &mut table[key.index()];
    assert!(place.is_none(), "the place of {key:?} is taken");
    *place = Some((key, value));
}

fn find<T>(table: &mut [Option<(Key, T)>], key: Key) -> Option<&mut T> {
    let (own, found) = table.get_mut(key.index())?.as_mut()?;
    (*own == key).then_some(found)
}
