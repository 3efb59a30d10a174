//! One connection of the client: its sent messages, the received part of their answers, and the
//! check of these.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::net::{SendFlags, send};

use super::message;
use crate::load::CellError;

/// A message that is not answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) number: u64,
    pub(super) at: Instant,
}

/// Whether the socket took all there was for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flushed {
    Yes,
    /// The rest waits until it is writable.
    InPart,
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) stream: OwnedFd,
    message_bytes: usize,
    /// Sent and not answered, oldest first: a stream answers in order.
    unanswered: VecDeque<Sent>,
    /// Bytes of the oldest one's answer that have come.
    answered_bytes: usize,
    /// Messages, less what of them the socket has taken.
    outgoing: Vec<u8>,
    taken: usize,
    /// Whether it waits until the socket is writable.
    pub(super) wants_room: bool,
}

impl Link {
    pub(super) fn new(stream: OwnedFd, message_bytes: usize) -> Self {
        Self {
            stream,
            message_bytes,
            unanswered: VecDeque::new(),
            answered_bytes: 0,
            outgoing: Vec::new(),
            taken: 0,
            wants_room: false,
        }
    }

    pub(super) fn unanswered(&self) -> usize {
        self.unanswered.len()
    }

    /// Puts a message behind those that are to be sent.
    pub(super) fn put(&mut self, sent: Sent) {
        message::write(sent.number, self.message_bytes, &mut self.outgoing);
        self.unanswered.push_back(sent);
    }

    /// Gives the socket what it takes.
    pub(super) fn flush(&mut self) -> Result<Flushed, CellError> {
        while self.taken < self.outgoing.len() {
            let rest = &self.outgoing[self.taken..];
            match send(&self.stream, rest, SendFlags::NOSIGNAL).map_err(io::Error::from) {
                Ok(bytes) => self.taken += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Flushed::InPart),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(CellError::failed("could not send to the server", &error));
                }
            }
        }
        self.outgoing.clear();
        self.taken = 0;
        Ok(Flushed::Yes)
    }

    /// Reads the received bytes and reports each complete answer.
    pub(super) fn read(
        &mut self,
        buffer: &mut [u8],
        mut answered: impl FnMut(Sent, Instant),
    ) -> Result<(), CellError> {
        loop {
            let read = rustix::io::read(&self.stream, &mut *buffer);
            let bytes = match read.map_err(io::Error::from) {
                Ok(0) => return Err(self.gone("the server closed a connection")),
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                    return Err(self.gone("the server reset a connection"));
                }
                Err(error) => {
                    return Err(CellError::failed("could not receive from the server", &error));
                }
            };
            self.take(&buffer[..bytes], Instant::now(), &mut answered)?;
            if bytes < buffer.len() {
                return Ok(());
            }
        }
    }

    fn take(
        &mut self,
        mut bytes: &[u8],
        now: Instant,
        answered: &mut impl FnMut(Sent, Instant),
    ) -> Result<(), CellError> {
        while !bytes.is_empty() {
            let Some(oldest) = self.unanswered.front().copied() else {
                return Err(CellError::invalid("the server sent more than it was sent"));
            };
            let (front, rest) =
                bytes.split_at(bytes.len().min(self.message_bytes - self.answered_bytes));
            if !message::is(oldest.number, self.answered_bytes, front) {
                let number = oldest.number;
                let what = format!(
                    "the answer to message {number} is not what was sent (is it an echo server?)"
                );
                return Err(CellError::invalid(what));
            }
            self.answered_bytes += front.len();
            bytes = rest;
            if self.answered_bytes == self.message_bytes {
                self.answered_bytes = 0;
                self.unanswered.pop_front();
                answered(oldest, now);
            }
        }
        Ok(())
    }

    fn gone(&self, what: &str) -> CellError {
        CellError::invalid(format!("{what} with {} messages not answered", self.unanswered.len()))
    }
}
