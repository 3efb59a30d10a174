//! The server to compare with, on epoll: a socket that is ready is read once and answered at once.
//!
//! ```text
//! epoll_wait --ready sockets, in order or reversed--> [ read, write ] each --> epoll_wait
//! ```
//!
//! A connection whose answer does not fit into its socket is not read until the answer is gone, so
//! a client that never reads costs one buffer of memory.

use std::io::{self, ErrorKind, PipeReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use crate::buffers::EACH;
use crate::load::Order;
use crate::pass::Pass;
use crate::server::Served;

/// Sockets that one call reports at most, and so the size of a pass.
const PASS: usize = 256;

/// Data of the events that belong to no connection. Those of a connection carry its descriptor.
const LISTENER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;

/// A server that listens.
#[derive(Debug)]
pub(crate) struct EpollServer {
    epoll: OwnedFd,
    listener: TcpListener,
    /// Hangs up when the server must stop.
    _stop: PipeReader,
    order: Order,
    served: Arc<Served>,
    /// By descriptor.
    connections: Vec<Option<Connection>>,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    /// Received bytes that the socket did not take back yet.
    unsent: Vec<u8>,
}

/// State of a connection after it was served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    Read,
    Write,
    Close,
}

impl EpollServer {
    pub(crate) fn new(
        listener: TcpListener,
        stop: PipeReader,
        order: Order,
        served: Arc<Served>,
    ) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        listener.set_nonblocking(true)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        epoll::add(&epoll, &stop, EventData::new_u64(STOP), EventFlags::IN)?;
        let buffer = vec![0; EACH];
        Ok(Self { epoll, listener, _stop: stop, order, served, connections: Vec::new(), buffer })
    }

    /// Serves until the pipe is closed.
    pub(crate) fn serve(mut self) -> io::Result<()> {
        let mut ready = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; PASS];
        loop {
            let count = match epoll::wait(&self.epoll, &mut ready[..], None) {
                Err(Errno::INTR) => 0,
                waited => waited?,
            };
            let mut pass = Pass::default();
            for turn in 0..count {
                // The kernel reports the socket first that became ready first.
                let arrival = match self.order {
                    Order::Fifo => turn,
                    Order::Lifo => count - 1 - turn,
                };
                pass.serve(arrival as u64);
                match ready[arrival].data.u64() {
                    STOP => return Ok(()),
                    LISTENER => self.accept()?,
                    descriptor => self.answer(descriptor as usize)?,
                }
            }
            self.served.add(pass);
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => self.add(stream)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // The connection had failed before it was accepted.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn add(&mut self, stream: TcpStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        let place = usize::try_from(stream.as_raw_fd()).expect("an open descriptor");
        epoll::add(&self.epoll, &stream, EventData::new_u64(place as u64), EventFlags::IN)?;
        if self.connections.len() <= place {
            self.connections.resize_with(place + 1, || None);
        }
        self.connections[place] = Some(Connection { stream, unsent: Vec::new() });
        Ok(())
    }

    /// Sends the rest of the last answer, or reads once and answers.
    fn answer(&mut self, place: usize) -> io::Result<()> {
        let connection = self.connections[place].as_mut().expect("closed ones are not watched");
        let before = if connection.unsent.is_empty() { Next::Read } else { Next::Write };
        let next = match before {
            Next::Write => connection.flush(),
            _ => connection.echo(&mut self.buffer, &self.served),
        };
        match next.unwrap_or(Next::Close) {
            Next::Close => self.connections[place] = None,
            next if next != before => {
                let flags = if next == Next::Read { EventFlags::IN } else { EventFlags::OUT };
                let data = EventData::new_u64(place as u64);
                epoll::modify(&self.epoll, &connection.stream, data, flags)?;
            }
            _ => {}
        }
        Ok(())
    }
}

impl Connection {
    fn echo(&mut self, buffer: &mut [u8], served: &Served) -> io::Result<Next> {
        let bytes = match self.stream.read(buffer) {
            Ok(0) => return Ok(Next::Close),
            Ok(bytes) => bytes,
            Err(error) if is_passing(&error) => return Ok(Next::Read),
            Err(error) => return Err(error),
        };
        served.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.unsent.extend_from_slice(&buffer[..bytes]);
        self.flush()
    }

    /// Writes once.
    fn flush(&mut self) -> io::Result<Next> {
        match self.stream.write(&self.unsent) {
            Ok(sent) => drop(self.unsent.drain(..sent)),
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(if self.unsent.is_empty() { Next::Read } else { Next::Write })
    }
}

/// Whether a call can be made again.
pub(crate) fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
