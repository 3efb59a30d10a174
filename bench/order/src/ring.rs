//! The server on io_uring.
//!
//! ```text
//! one call ==completions, numbered==> items of a pass, arranged --> copied behind the answers
//!          <==sends of the pass======================================
//! ```
//!
//! One multishot accept, one multishot receive per connection into provided buffers, and one send
//! at a time per connection, which takes everything that waits. A connection whose peer does not
//! read is not read either, beyond [`MOST_WAITING`].
//!
//! Memory that the kernel uses outlives its use: the drop cancels all requests and waits for them,
//! and leaks the memory of those that do not end within a second.

use std::io::{self, PipeReader};
use std::mem;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode, squeue};

use crate::buffers::{Buffers, GROUP};
use crate::load::{MOST_CONNECTIONS, Order};
use crate::pass::{Item, Pass, arrange};
use crate::server::{Served, with_remedy};

mod end;

/// Requests that one call submits at most.
const SUBMITTED: u32 = 256;

/// Completions that the kernel keeps in its queue: more than the largest load has at once.
const COMPLETIONS: u32 = 4096;

/// Received bytes of a connection that wait to be sent, above which it is not read.
const MOST_WAITING: usize = 256 << 10;

/// Kind of a request. With the index of a connection it makes the word that the kernel returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Kind {
    Accept = 1,
    Receive,
    Send,
    /// Its completion is ignored.
    Cancel,
    /// The server must stop.
    Stop,
}

impl Kind {
    fn word(self, connection: usize) -> u64 {
        (self as u64) << 32 | connection as u64
    }

    fn of(word: u64) -> (Self, usize) {
        let all = [Kind::Accept, Kind::Receive, Kind::Send, Kind::Cancel, Kind::Stop];
        let kind = all.into_iter().find(|kind| *kind as u64 == word >> 32);
        (kind.expect("a word of this server"), (word & u64::from(u32::MAX)) as usize)
    }
}

/// State of the receive of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Receiving {
    No,
    Yes,
    Stopping,
    /// The peer sends nothing more, or the connection has failed.
    Over,
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    receiving: Receiving,
    /// The bytes that the kernel has; nothing touches them while `sending`.
    flying: Vec<u8>,
    /// How many of them were sent.
    sent: usize,
    sending: bool,
    waiting: Vec<u8>,
    /// The number of its first item in this pass.
    first: Option<u64>,
    /// Whether it is in the list of connections to look at after the pass.
    listed: bool,
}

/// A server that listens.
#[derive(Debug)]
pub(crate) struct RingServer {
    uring: Uring,
    listener: TcpListener,
    /// Hangs up when the server must stop.
    stop: PipeReader,
    order: Order,
    served: Arc<Served>,
    /// `None` only in the drop.
    buffers: Option<Buffers>,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    /// Requests in flight, except cancels.
    in_flight: u32,
    arrivals: u64,
    items: Vec<Item>,
    active: Vec<usize>,
}

/// The ring, with a short form for `Debug`.
struct Uring(IoUring);

impl std::fmt::Debug for Uring {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Uring").finish_non_exhaustive()
    }
}

impl RingServer {
    /// Creates the ring, for the calling thread.
    ///
    /// # Errors
    /// The kernel is too old, or io_uring is forbidden.
    pub(crate) fn new(
        listener: TcpListener,
        stop: PipeReader,
        order: Order,
        served: Arc<Served>,
    ) -> Result<Self, String> {
        let set_up = || -> io::Result<_> {
            let mut builder = IoUring::builder();
            builder.setup_cqsize(COMPLETIONS).setup_single_issuer().setup_defer_taskrun();
            let uring = builder.build(SUBMITTED)?;
            let buffers = Buffers::register(&uring)?;
            Ok((uring, buffers))
        };
        let (uring, buffers) = set_up().map_err(|error| {
            format!("could not set up io_uring: {error} (needs Linux 6.1, and permission)")
        })?;
        Ok(Self {
            uring: Uring(uring),
            listener,
            stop,
            order,
            served,
            buffers: Some(buffers),
            connections: Vec::new(),
            free: Vec::new(),
            in_flight: 0,
            arrivals: 0,
            items: Vec::new(),
            active: Vec::new(),
        })
    }

    /// Serves until the pipe is closed.
    pub(crate) fn serve(mut self) -> Result<(), String> {
        let poll = opcode::PollAdd::new(Fd(self.stop.as_raw_fd()), libc::POLLIN as u32).build();
        self.start(poll, Kind::Stop.word(0));
        self.accept();
        let mut completions = Vec::new();
        loop {
            match self.uring.0.submit_and_wait(1) {
                Err(error) if !is_passing(&error) => return Err(format!("io_uring: {error}")),
                _ => {}
            }
            self.take(&mut completions);
            for completion in completions.drain(..) {
                if self.complete(&completion)? == Goes::Off {
                    return Ok(());
                }
            }
            self.pass();
        }
    }

    /// Moves the completions out of the kernel's queue.
    fn take(&mut self, into: &mut Vec<cqueue::Entry>) {
        into.extend(self.uring.0.completion());
        let ended = into.iter().filter(|one| {
            Kind::of(one.user_data()).0 != Kind::Cancel && !cqueue::more(one.flags())
        });
        self.in_flight -= ended.count() as u32;
    }

    fn complete(&mut self, completion: &cqueue::Entry) -> Result<Goes, String> {
        let (kind, connection) = Kind::of(completion.user_data());
        let result = completion.result();
        match kind {
            Kind::Stop => return Ok(Goes::Off),
            Kind::Cancel => {}
            Kind::Accept => {
                self.accepted(result)?;
                if !cqueue::more(completion.flags()) {
                    self.accept();
                }
            }
            Kind::Receive => self.received(connection, completion),
            Kind::Send => self.sent(connection, result),
        }
        Ok(Goes::On)
    }

    fn accepted(&mut self, result: i32) -> Result<(), String> {
        match result {
            0.. => {}
            error
                if matches!(-error, libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS) =>
            {
                let error = io::Error::from_raw_os_error(-error);
                return Err(with_remedy("could not accept a connection", &error));
            }
            // The connection had failed before it was accepted.
            _ => return Ok(()),
        }
        // SAFETY: the completion is of an accept, so its result is a new descriptor.
        let stream = unsafe { TcpStream::from_raw_fd(result) };
        let connection = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        self.connections[connection] = Some(Connection {
            stream,
            receiving: Receiving::No,
            flying: Vec::new(),
            sent: 0,
            sending: false,
            waiting: Vec::new(),
            first: None,
            listed: false,
        });
        self.activate(connection);
        Ok(())
    }

    fn received(&mut self, connection: usize, completion: &cqueue::Entry) {
        let result = completion.result();
        let link = self.connections[connection].as_mut().expect("it has a receive in flight");
        if let Some(buffer) = cqueue::buffer_select(completion.flags()) {
            let number = self.arrivals;
            self.arrivals += 1;
            let first = *link.first.get_or_insert(number);
            let length = usize::try_from(result).unwrap_or(0);
            self.items.push(Item { number, first, connection, buffer, length });
        }
        if cqueue::more(completion.flags()) {
            return;
        }
        link.receiving = match result {
            // The kernel ends a multishot receive when its queue of completions is full, and
            // without a free buffer. All buffers are returned at the end of the pass.
            1.. => Receiving::No,
            error
                if matches!(
                    -error,
                    libc::ENOBUFS | libc::ECANCELED | libc::EINTR | libc::EAGAIN
                ) =>
            {
                Receiving::No
            }
            _ => Receiving::Over,
        };
        self.activate(connection);
    }

    fn sent(&mut self, connection: usize, result: i32) {
        let link = self.connections[connection].as_mut().expect("it has a send in flight");
        link.sending = false;
        match usize::try_from(result) {
            Ok(bytes) => link.sent += bytes,
            Err(_) if matches!(-result, libc::EINTR | libc::EAGAIN | libc::ENOBUFS) => {}
            Err(_) => {
                // The peer is gone: nothing more is sent to it, and its receive ends.
                link.sent = link.flying.len();
                link.waiting.clear();
                let _ = link.stream.shutdown(Shutdown::Both);
            }
        }
        self.activate(connection);
    }

    /// Serves the items that arrived, and starts the sends and receives that follow.
    fn pass(&mut self) {
        let mut items = mem::take(&mut self.items);
        arrange(&mut items, self.order);
        let mut pass = Pass::default();
        let mut bytes = 0;
        for item in items.drain(..) {
            pass.serve(item.number);
            bytes += item.length;
            let buffers = self.buffers.as_mut().expect("until the drop");
            let link = self.connections[item.connection].as_mut().expect("gone after its items");
            link.first = None;
            link.waiting.extend_from_slice(buffers.received(item.buffer, item.length));
            buffers.put(item.buffer);
            self.activate(item.connection);
        }
        self.items = items;
        self.buffers.as_mut().expect("until the drop").publish();
        self.served.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.served.add(pass);
        let mut active = mem::take(&mut self.active);
        for connection in active.drain(..) {
            self.go_on(connection);
        }
        self.active = active;
    }

    /// Starts or stops the requests of a connection, or closes it.
    fn go_on(&mut self, connection: usize) {
        let link = self.connections[connection].as_mut().expect("listed while it is there");
        link.listed = false;
        if !link.sending && link.sent == link.flying.len() {
            link.flying.clear();
            link.sent = 0;
            mem::swap(&mut link.flying, &mut link.waiting);
        }
        let descriptor = Fd(link.stream.as_raw_fd());
        let starts_send = !link.sending && !link.flying.is_empty();
        link.sending |= starts_send;
        let rest = &link.flying[link.sent..];
        let length = u32::try_from(rest.len()).unwrap_or(u32::MAX);
        let send = opcode::Send::new(descriptor, rest.as_ptr(), length).flags(libc::MSG_NOSIGNAL);
        let full = link.waiting.len() >= MOST_WAITING;
        let before = link.receiving;
        link.receiving = match before {
            Receiving::No if !full => Receiving::Yes,
            Receiving::Yes if full => Receiving::Stopping,
            unchanged => unchanged,
        };
        let receives = link.receiving;
        if receives == Receiving::Over && !link.sending {
            self.connections[connection] = None;
            self.free.push(connection);
            return;
        }
        if starts_send {
            self.start(send.build(), Kind::Send.word(connection));
        }
        match (before, receives) {
            (Receiving::No, Receiving::Yes) => {
                let receive = opcode::RecvMulti::new(descriptor, GROUP).build();
                self.start(receive, Kind::Receive.word(connection));
            }
            (Receiving::Yes, Receiving::Stopping) => {
                let cancel = opcode::AsyncCancel::new(Kind::Receive.word(connection)).build();
                self.push(&cancel.user_data(Kind::Cancel.word(connection)));
            }
            _ => {}
        }
    }

    fn activate(&mut self, connection: usize) {
        let link = self.connections[connection].as_mut().expect("found by the caller");
        if !mem::replace(&mut link.listed, true) {
            self.active.push(connection);
        }
    }

    fn accept(&mut self) {
        let accept =
            opcode::AcceptMulti::new(Fd(self.listener.as_raw_fd())).flags(libc::SOCK_CLOEXEC);
        self.start(accept.build(), Kind::Accept.word(0));
    }

    fn start(&mut self, entry: squeue::Entry, word: u64) {
        self.in_flight += 1;
        self.push(&entry.user_data(word));
    }

    fn push(&mut self, entry: &squeue::Entry) {
        loop {
            // SAFETY: everything that the entry points to stays until its completion. The bytes of
            // a send are in `flying`, which is not touched while `sending`, and leaked with its
            // connection if the send does not end. The kernel chooses buffers itself.
            if unsafe { self.uring.0.submission().push(entry) }.is_ok() {
                return;
            }
            // The queue is full.
            let _ = self.uring.0.submit();
        }
    }
}

/// Whether the server goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Goes {
    On,
    Off,
}

/// Whether a call can be made again: a signal, a time limit, or a full queue of completions.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN))
}

const _: () = assert!(MOST_CONNECTIONS <= u32::MAX / 2, "an index of a connection has 32 bits");
