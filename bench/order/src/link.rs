//! One connection of the client: its messages, the check of their answers, and how many overtook
//! one.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use crate::epoll::is_passing;

/// A message that is not answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) number: u64,
    pub(crate) at: Instant,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) stream: TcpStream,
    message_bytes: usize,
    /// Oldest first: a stream answers in order.
    pub(crate) unanswered: VecDeque<Sent>,
    /// Received bytes of the answer to the oldest one.
    answered_bytes: usize,
    /// Bytes to send; the socket has `taken` some.
    outgoing: Vec<u8>,
    taken: usize,
    /// Whether it waits until the socket is writable.
    pub(crate) wants_room: bool,
}

impl Link {
    pub(crate) fn new(stream: TcpStream, message_bytes: usize) -> Self {
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

    pub(crate) fn put(&mut self, sent: Sent) {
        self.outgoing.extend((0..self.message_bytes).map(|place| byte(sent.number, place)));
        self.unanswered.push_back(sent);
    }

    /// Gives the socket what it takes. Returns whether a rest must wait.
    pub(crate) fn flush(&mut self) -> Result<bool, String> {
        while self.taken < self.outgoing.len() {
            match self.stream.write(&self.outgoing[self.taken..]) {
                Ok(bytes) => self.taken += bytes,
                Err(error) if is_passing(&error) => return Ok(true),
                Err(error) => return Err(self.gone(&format!("could not send: {error}"))),
            }
        }
        self.outgoing.clear();
        self.taken = 0;
        Ok(false)
    }

    /// Reads the received bytes and reports each complete answer.
    pub(crate) fn read(
        &mut self,
        buffer: &mut [u8],
        mut answered: impl FnMut(Sent, Instant),
    ) -> Result<(), String> {
        loop {
            let bytes = match self.stream.read(buffer) {
                Ok(0) => return Err(self.gone("the server closed a connection")),
                Ok(bytes) => bytes,
                Err(error) if is_passing(&error) => return Ok(()),
                Err(error) => return Err(self.gone(&format!("could not receive: {error}"))),
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
    ) -> Result<(), String> {
        while !bytes.is_empty() {
            let oldest = self.unanswered.front().copied();
            let oldest = oldest.ok_or("the server sent more than it received")?;
            let missing = self.message_bytes - self.answered_bytes;
            let (front, rest) = bytes.split_at(bytes.len().min(missing));
            let expected = (self.answered_bytes..).map(|place| byte(oldest.number, place));
            if !front.iter().copied().zip(expected).all(|(found, expected)| found == expected) {
                return Err(format!(
                    "the answer to message {} is not what was sent (is it an echo server?)",
                    oldest.number
                ));
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

    fn gone(&self, what: &str) -> String {
        format!("{what}, with {} messages not answered", self.unanswered.len())
    }
}

/// Returns the byte at a place of a message.
fn byte(number: u64, place: usize) -> u8 {
    match number.to_le_bytes().get(place) {
        Some(byte) => *byte,
        None => (number as u8).wrapping_add(place as u8),
    }
}

/// Counts the messages that were sent later and answered before: reordered work, seen from outside.
///
/// A window of bits, one for each message from the oldest that is not answered.
#[derive(Debug, Default)]
pub(crate) struct Overtaken {
    /// Number of the first bit, a multiple of 64. All messages below are answered.
    first: u64,
    answered: VecDeque<u64>,
}

impl Overtaken {
    /// Marks a message as answered. Returns how many with a greater number were before.
    pub(crate) fn answered(&mut self, number: u64) -> u64 {
        let place = number.checked_sub(self.first).expect("a message is answered once");
        let (word, bit) = ((place / 64) as usize, place % 64);
        if word >= self.answered.len() {
            self.answered.resize(word + 1, 0);
        }
        assert!(self.answered[word] >> bit & 1 == 0, "message {number} is answered twice");
        let greater = (self.answered[word] >> bit).count_ones();
        let later = self.answered.range(word + 1..).map(|word| word.count_ones()).sum::<u32>();
        self.answered[word] |= 1 << bit;
        while self.answered.front() == Some(&u64::MAX) {
            self.answered.pop_front();
            self.first += 64;
        }
        u64::from(greater + later)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_counts_as_a_list_would() {
        // Every message swaps its place with another, in blocks of 100.
        let order: Vec<u64> = (0..1000).map(|at| at / 100 * 100 + at % 100 * 37 % 100).collect();
        let mut overtaken = Overtaken::default();
        for (turn, number) in order.iter().enumerate() {
            let before = order[..turn].iter().filter(|earlier| *earlier > number).count();
            assert_eq!(overtaken.answered(*number), before as u64);
        }
        assert!(overtaken.answered.len() <= 1, "answered ones are forgotten");
    }

    #[test]
    fn a_message_differs_from_its_neighbours() {
        for length in [1, 7, 8, 9, 300] {
            let message = |number| (0..length).map(|place| byte(number, place)).collect::<Vec<_>>();
            assert_ne!(message(0x0102_0304), message(0x0102_0305));
        }
    }
}
