//! The comparison server on epoll: a socket that is ready is read once and answered at once.
//!
//! ```text
//! epoll_wait --ready sockets, in order or reversed--> [ read, work, write ] each --> epoll_wait
//! ```
//!
//! A connection whose answer does not fit into its socket is not read until the answer is gone, so
//! a client that never reads costs one buffer of memory.

use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use forebay_net::Address;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{Timespec, epoll::Event};
use rustix::io::{Errno, read};
use rustix::net::{SendFlags, SocketFlags, accept_with, send};

use super::READ_BYTES;
use super::inversions::Pass;
use super::server::Served;
use super::stream;
use super::work::Work;
use crate::echo::WorkOrder;
use crate::load::{CellError, Context};

/// Sockets that one call reports at most, and so the size of a pass.
const PASS: usize = 256;

/// Time without accepting after the kernel had no descriptor or no memory for a connection.
const REST: Duration = Duration::from_millis(100);

/// Data of the events that belong to no connection. Those of a connection carry its descriptor.
const LISTENER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;

/// A server that listens.
#[derive(Debug)]
pub(super) struct EpollServer {
    epoll: OwnedFd,
    listener: OwnedFd,
    pub(super) address: Address,
    /// Hangs up when the server must stop.
    _stop: PipeReader,
    order: WorkOrder,
    work: Work,
    served: Arc<Served>,
    /// By descriptor.
    connections: Vec<Option<Connection>>,
    buffer: Vec<u8>,
    rests_until: Option<Instant>,
}

#[derive(Debug)]
struct Connection {
    stream: OwnedFd,
    /// Received bytes that the socket did not take back yet.
    unsent: Vec<u8>,
    /// Bytes received of a message that is not complete.
    begun: usize,
}

/// State of a connection after it was served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    Read,
    Write,
    Close,
}

impl EpollServer {
    /// Listens. The server stops when the returned end of a pipe is dropped.
    pub(super) fn new(
        order: WorkOrder,
        address: &Address,
        work: Work,
        served: Arc<Served>,
    ) -> Result<(Self, PipeWriter), CellError> {
        let (listener, address) = stream::listen(address)?;
        let watched = || -> io::Result<_> {
            let epoll = epoll::create(CreateFlags::CLOEXEC)?;
            let (stop, keep) = io::pipe()?;
            epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
            epoll::add(&epoll, &stop, EventData::new_u64(STOP), EventFlags::IN)?;
            Ok((epoll, stop, keep))
        };
        let (epoll, stop, keep) = watched().context("cannot set up epoll")?;
        let server = Self {
            epoll,
            listener,
            address,
            _stop: stop,
            order,
            work,
            served,
            connections: Vec::new(),
            buffer: vec![0; READ_BYTES],
            rests_until: None,
        };
        Ok((server, keep))
    }

    /// Serves until the pipe is closed.
    pub(super) fn serve(mut self) -> Result<(), CellError> {
        let mut ready = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; PASS];
        loop {
            const FAILED: &str = "epoll failed";
            let count = self.wait(&mut ready).context(FAILED)?;
            let mut pass = Pass::default();
            for turn in 0..count {
                // The kernel reports the socket first that became ready first.
                let arrival = match self.order {
                    WorkOrder::Fifo => turn,
                    WorkOrder::Lifo => count - 1 - turn,
                };
                pass.serve(arrival as u64);
                match ready[arrival].data.u64() {
                    STOP => return Ok(()),
                    LISTENER => self.accept().context(FAILED)?,
                    descriptor => self.answer(descriptor as usize).context(FAILED)?,
                }
            }
            self.served.add(pass);
        }
    }

    /// Waits for ready sockets. While accepting rests, it waits no longer than the rest.
    fn wait(&mut self, ready: &mut [Event; PASS]) -> Result<usize, Errno> {
        let rest = self.rests_until.map(|until| until.saturating_duration_since(Instant::now()));
        if rest == Some(Duration::ZERO) {
            self.rests_until = None;
            self.watch(&self.listener, LISTENER, EventFlags::IN)?;
        }
        let limit = rest.map(|rest| Timespec::try_from(rest).expect("a tenth of a second"));
        match epoll::wait(&self.epoll, &mut ready[..], limit.as_ref()) {
            Err(Errno::INTR) => Ok(0),
            waited => waited,
        }
    }

    fn watch(&self, socket: &impl AsFd, data: u64, flags: EventFlags) -> Result<(), Errno> {
        epoll::modify(&self.epoll, socket, EventData::new_u64(data), flags)
    }

    /// Accepts all waiting connections.
    fn accept(&mut self) -> Result<(), Errno> {
        loop {
            match accept_with(&self.listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(stream) => self.add(stream)?,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => {
                    self.served.accept_error.store(error.raw_os_error(), Ordering::Relaxed);
                    self.rests_until = Some(Instant::now() + REST);
                    // Otherwise the listener, which stays ready, would end every wait at once.
                    return self.watch(&self.listener, LISTENER, EventFlags::empty());
                }
            }
        }
    }

    fn add(&mut self, stream: OwnedFd) -> Result<(), Errno> {
        let place = usize::try_from(stream.as_raw_fd()).expect("an open descriptor");
        epoll::add(&self.epoll, &stream, EventData::new_u64(place as u64), EventFlags::IN)?;
        if self.connections.len() <= place {
            self.connections.resize_with(place + 1, || None);
        }
        self.connections[place] = Some(Connection { stream, unsent: Vec::new(), begun: 0 });
        self.served.connections.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Sends the rest of the last answer, or reads once and answers.
    fn answer(&mut self, place: usize) -> Result<(), Errno> {
        let connection = self.connections[place].as_mut().expect("closed ones are not watched");
        let before = if connection.unsent.is_empty() { Next::Read } else { Next::Write };
        let next = match before {
            Next::Write => connection.flush(),
            _ => connection.echo(&mut self.buffer, &mut self.work, &self.served),
        };
        match next.unwrap_or(Next::Close) {
            Next::Close => {
                self.connections[place] = None;
                self.served.connections.fetch_sub(1, Ordering::Relaxed);
            }
            next if next != before => {
                let flags = if next == Next::Read { EventFlags::IN } else { EventFlags::OUT };
                let connection = self.connections[place].as_ref().expect("served just now");
                self.watch(&connection.stream, place as u64, flags)?;
            }
            _ => {}
        }
        Ok(())
    }
}

impl Connection {
    fn echo(&mut self, buffer: &mut [u8], work: &mut Work, served: &Served) -> Result<Next, Errno> {
        let bytes = match read(&self.stream, &mut *buffer) {
            Ok(0) => return Ok(Next::Close),
            Ok(bytes) => bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(Next::Read),
            Err(error) => return Err(error),
        };
        work.received(&mut self.begun, bytes);
        served.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let sent = self.send(&buffer[..bytes])?;
        self.unsent.extend_from_slice(&buffer[sent..bytes]);
        Ok(if self.unsent.is_empty() { Next::Read } else { Next::Write })
    }

    fn flush(&mut self) -> Result<Next, Errno> {
        let unsent = std::mem::take(&mut self.unsent);
        let sent = self.send(&unsent)?;
        self.unsent = unsent;
        self.unsent.drain(..sent);
        Ok(if self.unsent.is_empty() { Next::Read } else { Next::Write })
    }

    /// Writes once, and returns the number of bytes that the socket took.
    fn send(&self, bytes: &[u8]) -> Result<usize, Errno> {
        match send(&self.stream, bytes, SendFlags::NOSIGNAL) {
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            sent => sent,
        }
    }
}
