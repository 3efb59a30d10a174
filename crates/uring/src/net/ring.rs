//! Sockets over the ring: multishot accepts, multishot receives into provided buffers, one gathered send at a time of
//! each connection. A pass's requests go with one call, which also waits.
//!
//! The guarantees. What the kernel reads for a send is boxed and untouched until the send's completion is here; what it
//! receives into is the pool's. A completion that belongs to no request under way ends nothing. A full completion
//! queue loses nothing, and a multishot request that the kernel ends early is told as ended. Dropped, the ring cancels
//! all and waits a second; what does not end by then keeps its memory for ever.
//!
//! The rule for the owner: as for [`Ring`](crate::Ring), the ring belongs to the thread that first enters it.

use std::collections::VecDeque;
use std::mem::{self, ManuallyDrop};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use forebay_block::Errno;
use io_uring::types::Fd;
use io_uring::{cqueue, opcode, squeue};
use rustix::net::SocketAddrAny;

use super::options::STAGED;
use super::outgoing::Flight;
use super::pool::Pool;
use super::provided::{GROUP, Provided};
use super::table::Key;
use super::transport::{Arrival, End};
use crate::enter::{Booked, Door, Enter, Enters};
use crate::fork::Home;
use crate::offer::{Feature, Offers};
use crate::setup::{Level, Setup, SetupError};
use crate::waker::Waker;
use voyage::Departed;

pub(super) mod ability;
mod voyage;

/// How often a submission that the kernel has no memory for is tried again, a millisecond apart.
const TRIES: u32 = 1000;

/// How long what is under way is waited for when the ring is dropped.
const GOODBYE: Duration = Duration::from_secs(1);

/// What the kernel reads from the waker's eventfd goes here and is never looked at.
static UNREAD: AtomicU64 = AtomicU64::new(0);

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
        let all = [Kind::Accept, Kind::Receive, Kind::Send, Kind::Connect, Kind::Cancel, Kind::Wake];
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
        formatter.debug_struct("SocketRing").field("under_way", &self.under_way).finish_non_exhaustive()
    }
}

impl SocketRing {
    pub(super) fn new(pool: Arc<Pool>) -> Result<Self, SetupError> {
        let setup = Setup::new(STAGED, Level::NoArray)?;
        ability::check(setup.level)?;
        let provided = Provided::register(&setup.uring, pool)?;
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
        let accept = opcode::AcceptMulti::new(Fd(listening.socket.as_raw_fd())).flags(libc::SOCK_CLOEXEC);
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

    /// Moves what is staged to the submission queue, as far as it goes; tells how much is in it.
    fn fill(&mut self) -> u32 {
        let mut queue = self.setup.uring.submission();
        while !queue.is_full()
            && let Some(entry) = self.staged.pop_front()
        {
            // SAFETY: what the entry points to stays until its completion is here: a send's pieces and a connect's
            // address are boxed in their connection's entry, which stays while one is under way (and is leaked if
            // need be), the descriptors beside them; buffers are the kernel's own choice. The waker's read points to a
            // static.
            unsafe { queue.push(&entry) }.expect("it is not full");
        }
        u32::try_from(queue.len()).expect("the queue's size is 32 bits")
    }

    /// From the first call on the ring belongs to the thread that makes it.
    fn enable_here(&mut self) -> Result<(), Errno> {
        let here = thread::current().id();
        match self.thread {
            Some(thread) => {
                assert_eq!(thread, here, "sockets belong to the thread that polled first");
            }
            None => {
                let enabled = self.setup.uring.submitter().register_enable_rings();
                enabled.map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EIO)))?;
                self.thread = Some(here);
                self.door.register();
            }
        }
        Ok(())
    }

    pub(super) fn enter(&mut self, limit: Option<Duration>) -> Result<(), Errno> {
        self.enable_here()?;
        let here = !self.closed.is_empty()
            || !self.forgotten.is_empty()
            || !self.completions.is_empty()
            || !self.setup.uring.completion().is_empty();
        if here || limit == Some(Duration::ZERO) {
            let to_submit = self.fill();
            let queue = self.setup.uring.submission();
            let quiet = to_submit == 0 && !queue.taskrun() && !queue.cq_overflow();
            drop(queue);
            // Below 5.19 the queue does not tell of work put off; rings of such kernels are not used here.
            return if quiet { Ok(()) } else { self.submit(0, None) };
        }
        if !self.waker.fall_asleep() {
            // Somebody rang since the last look: the caller looks again.
            self.waker.awake();
            return self.submit(0, None);
        }
        if !mem::replace(&mut self.wake_armed, true) {
            let length = u32::try_from(size_of::<u64>()).expect("eight");
            let read = opcode::Read::new(Fd(self.waker.eventfd()), UNREAD.as_ptr().cast(), length).build();
            self.staged.push_back(read.user_data(Kind::Wake.word(NOBODY)));
        }
        let entered = self.submit(1, limit);
        self.waker.awake();
        entered
    }

    /// Submits what is staged, and waits for so many completions; in one call unless there is more than the queue holds,
    /// or the kernel was busy.
    fn submit(&mut self, want: u32, limit: Option<Duration>) -> Result<(), Errno> {
        self.enable_here()?;
        // Sockets are waited for without end: that is idleness, not I/O.
        let booked = if self.setup.has.no_iowait { Booked::Idle } else { Booked::WaitingForIo };
        let mut tries = 0;
        while tries < TRIES {
            let to_submit = self.fill();
            let all = self.staged.is_empty();
            let want = if all { want } else { 0 };
            match self.door.enter(Enter { to_submit, want, within: Duration::ZERO, limit, booked }) {
                Ok(submitted) if submitted == to_submit as usize => {
                    if all {
                        return Ok(());
                    }
                }
                // One was bad (its completion says so), or the kernel ran out of memory on the way: the rest again.
                Ok(_) => tries += 1,
                // Time ran out, or a signal came. The kernel says so only where it had nothing to submit.
                Err(libc::ETIME | libc::EINTR) => return Ok(()),
                // The kernel keeps completions that found no place: make some.
                Err(libc::EBUSY) => {
                    tries += 1;
                    self.collect();
                }
                Err(libc::EAGAIN) => {
                    tries += 1;
                    self.collect();
                    thread::sleep(Duration::from_millis(1));
                }
                Err(code) => return Err(Errno(code)),
            }
        }
        Err(Errno(libc::EAGAIN))
    }

    /// Takes all that has completed off the kernel's queue.
    fn collect(&mut self) {
        self.completions.extend(self.setup.uring.completion());
    }

    pub(super) fn reap(&mut self, arrivals: &mut Vec<Arrival>) {
        self.collect();
        while let Some(completion) = self.completions.pop_front() {
            let word = completion.user_data();
            match Kind::of(word) {
                Some(Kind::Accept) => self.accepted(Key::of(word), &completion, arrivals),
                Some(Kind::Receive) => self.received(Key::of(word), &completion, arrivals),
                Some(Kind::Send) => self.sent(Key::of(word), &completion, arrivals),
                Some(Kind::Connect) => self.connected(Key::of(word), &completion, arrivals),
                Some(Kind::Cancel) => {}
                Some(Kind::Wake) => self.wake_armed = false,
                None => tracing::error!(word, "a completion that belongs to no request"),
            }
        }
        // Dropped, and so closed: calls that do not block, for nothing lingers.
        for key in self.closed.drain(..) {
            self.connections[key.index()] = None;
            arrivals.push(Arrival::Closed { connection: key });
        }
        for key in self.forgotten.drain(..) {
            self.listeners[key.index()] = None;
            arrivals.push(Arrival::Forgotten { listener: key });
        }
    }

    fn accepted(&mut self, key: Key, completion: &cqueue::Entry, arrivals: &mut Vec<Arrival>) {
        let result = result(completion);
        let more = cqueue::more(completion.flags());
        // SAFETY: the completion is of an accept, and its result a descriptor that nobody has yet.
        let socket = result.ok().map(|_| unsafe { OwnedFd::from_raw_fd(completion.result()) });
        let Some(listening) = find(&mut self.listeners, key) else {
            tracing::error!(?key, ?result, "an accept that nobody waits for");
            return;
        };
        let wanted = !listening.forgotten;
        arrivals.extend(socket.filter(|_| wanted).map(|socket| Arrival::Accepted { listener: key, socket }));
        if more {
            return;
        }
        self.under_way -= 1;
        listening.accept = Going::No;
        if !wanted {
            self.forgotten.push(key);
            return;
        }
        let error = result.err().filter(|error| error.0 != libc::ECANCELED);
        arrivals.push(Arrival::AcceptEnded { listener: key, error });
    }

    fn received(&mut self, key: Key, completion: &cqueue::Entry, arrivals: &mut Vec<Arrival>) {
        let result = result(completion);
        let provided = self.provided.as_mut().expect("until the drop");
        let bytes = cqueue::buffer_select(completion.flags())
            .map(|buffer| provided.take(buffer, result.unwrap_or(0)))
            .filter(|bytes| !bytes.is_empty());
        let Some(connected) = find(&mut self.connections, key) else {
            tracing::error!(?key, ?result, "a receive that nobody waits for");
            return;
        };
        arrivals.extend(bytes.map(|bytes| Arrival::Received { connection: key, bytes }));
        if cqueue::more(completion.flags()) {
            return;
        }
        self.under_way -= 1;
        connected.receive = Going::No;
        let end = match result {
            Ok(0) => End::Finished,
            // The kernel ends a multishot request where its completion queue is full.
            Ok(_) => End::Stopped,
            Err(Errno(libc::ENOBUFS)) => End::NoBuffer,
            Err(Errno(libc::ECANCELED | libc::EINTR | libc::EAGAIN)) => End::Stopped,
            Err(error) => End::Failed(error),
        };
        arrivals.push(Arrival::ReceiveEnded { connection: key, end });
        self.close_when_quiet(key);
    }

    fn sent(&mut self, key: Key, completion: &cqueue::Entry, arrivals: &mut Vec<Arrival>) {
        let moved = result(completion);
        let departed = find(&mut self.connections, key).and_then(|connected| connected.send.take());
        let Some(departed) = departed else {
            tracing::error!(?key, ?moved, "a send that nobody waits for");
            return;
        };
        self.under_way -= 1;
        arrivals.push(Arrival::Sent { connection: key, flight: departed.arrive(), moved });
        self.close_when_quiet(key);
    }

    fn connected(&mut self, key: Key, completion: &cqueue::Entry, arrivals: &mut Vec<Arrival>) {
        let result = result(completion).map(|_| ());
        let address = find(&mut self.connections, key).and_then(|connected| connected.connect.take());
        if address.is_none() {
            tracing::error!(?key, ?result, "a connect that nobody waits for");
            return;
        }
        self.under_way -= 1;
        arrivals.push(Arrival::Connected { connection: key, result });
        self.close_when_quiet(key);
    }

    fn close_when_quiet(&mut self, key: Key) {
        let connected = find(&mut self.connections, key).expect("looked at just now");
        if connected.closing && connected.under_way() == 0 {
            self.closed.push(key);
        }
    }
}

fn result(completion: &cqueue::Entry) -> Result<usize, Errno> {
    usize::try_from(completion.result()).map_err(|_| Errno(-completion.result()))
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

impl SocketRing {
    /// Cancels everything, and waits for it to a deadline.
    fn wait_out(&mut self) -> Result<(), Errno> {
        let of_listeners = self.listeners.iter().flatten();
        let accepts = of_listeners.filter(|listening| listening.accept == Going::Yes);
        let mut words: Vec<u64> = accepts.map(|listening| Kind::Accept.word(listening.key)).collect();
        for connected in self.connections.iter().flatten().filter(|connected| !connected.closing) {
            let receive = (connected.receive == Going::Yes).then_some(Kind::Receive);
            let send = connected.send.as_ref().map(|_| Kind::Send);
            let connect = connected.connect.as_ref().map(|_| Kind::Connect);
            let kinds = [receive, send, connect].into_iter().flatten();
            words.extend(kinds.map(|kind| kind.word(connected.key)));
        }
        for word in words {
            let cancel = opcode::AsyncCancel::new(word).build();
            self.staged.push_back(cancel.user_data(Kind::Cancel.word(NOBODY)));
        }
        let deadline = Instant::now() + GOODBYE;
        let mut arrivals = Vec::new();
        while self.under_way > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.submit(1, Some(left))?;
            self.reap(&mut arrivals);
            arrivals.clear();
        }
        Ok(())
    }
}

impl Drop for SocketRing {
    fn drop(&mut self) {
        if !self.home.is_here() {
            // A forked child did not inherit the queues; what is under way is its parent's. Boxes of sends are not
            // freed, as in the parent where they do not end.
            return;
        }
        let here = self.thread.is_none_or(|thread| thread::current().id() == thread);
        if here && self.under_way > 0 {
            // Staged requests are submitted to be cancelled: simpler than to take them back, and the ring may never
            // have been entered.
            if let Err(error) = self.wait_out() {
                tracing::error!(%error, "could not wait for what is under way");
            }
        }
        if self.under_way > 0 {
            self.provided.take().expect("dropped once").leak();
            mem::forget(mem::take(&mut self.connections));
            mem::forget(mem::take(&mut self.listeners));
        }
        if here {
            self.door.unregister();
        }
        // SAFETY: nothing uses the ring after its drop.
        unsafe { ManuallyDrop::drop(&mut self.setup) };
    }
}
