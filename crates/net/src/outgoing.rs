//! Outgoing bytes of a connection: pieces in order. The kernel has at most one send at a time.

use std::collections::VecDeque;
use std::io::IoSlice;

use crate::limits::{SEND_BYTES, SEND_PIECES};

/// Minimal capacity of a new piece, so that small messages share one.
const PIECE: usize = 4 << 10;

/// A piece larger than this is not kept for the next use.
const SPARE: usize = 64 << 10;

/// Whether a connection accepts more outgoing bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// It accepts more.
    Yes,
    /// Stop sending until [`Writable`](super::What::Writable) arrives. Further bytes are accepted
    /// up to twice [`outgoing_bytes`](super::Options::outgoing_bytes), and refused after that.
    Stop,
}

/// The pieces of one send. Nothing changes them while the kernel has them.
#[derive(Debug)]
pub(crate) struct Flight {
    pieces: VecDeque<Vec<u8>>,
    /// Bytes of the first piece that were sent before.
    skip: usize,
    bytes: usize,
}

impl Flight {
    /// The bytes, piece by piece.
    pub(crate) fn slices(&self) -> impl Iterator<Item = IoSlice<'_>> {
        let skips = std::iter::once(self.skip).chain(std::iter::repeat(0));
        self.pieces.iter().zip(skips).map(|(piece, skip)| IoSlice::new(&piece[skip..]))
    }

    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The waiting pieces, and the number of bytes.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    waiting: VecDeque<Vec<u8>>,
    skip: usize,
    /// Waiting bytes, and those that the kernel has.
    bytes: usize,
    flying: bool,
    spare: Option<Vec<u8>>,
}

impl Outgoing {
    /// Number of bytes that wait or that the kernel has.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a send can start.
    pub(crate) fn is_ready(&self) -> bool {
        !self.flying && !self.waiting.is_empty()
    }

    /// Appends a copy.
    pub(crate) fn copy(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len();
        match self.waiting.back_mut() {
            Some(last) if last.capacity() - last.len() >= bytes.len() => {
                last.extend_from_slice(bytes);
            }
            _ if bytes.is_empty() => {}
            _ => {
                let spare = self.spare.take().filter(|spare| spare.capacity() >= bytes.len());
                let mut piece = spare.unwrap_or_else(|| Vec::with_capacity(bytes.len().max(PIECE)));
                piece.extend_from_slice(bytes);
                self.waiting.push_back(piece);
            }
        }
    }

    /// Removes the pieces of the next send.
    pub(crate) fn depart(&mut self) -> Flight {
        assert!(self.is_ready(), "one send of a connection at a time");
        self.flying = true;
        let mut flight =
            Flight { pieces: VecDeque::new(), skip: std::mem::take(&mut self.skip), bytes: 0 };
        while flight.pieces.len() < SEND_PIECES && flight.bytes < SEND_BYTES {
            let Some(piece) = self.waiting.pop_front() else { break };
            flight.bytes += piece.len() - if flight.pieces.is_empty() { flight.skip } else { 0 };
            flight.pieces.push_back(piece);
        }
        flight
    }

    /// Takes the pieces of a send back. The first `moved` bytes were sent.
    pub(crate) fn arrive(&mut self, flight: Flight, moved: usize) {
        assert!(
            self.flying && moved <= flight.bytes,
            "{moved} of {} bytes were sent",
            flight.bytes
        );
        self.flying = false;
        self.bytes -= moved;
        let Flight { mut pieces, skip, .. } = flight;
        let mut gone = skip + moved;
        while let Some(first) = pieces.front_mut() {
            if first.len() > gone {
                break;
            }
            gone -= first.len();
            let mut piece = pieces.pop_front().expect("looked at just now");
            if piece.capacity() <= SPARE {
                piece.clear();
                self.spare = Some(piece);
            }
        }
        if pieces.is_empty() {
            return;
        }
        self.skip = gone;
        for piece in pieces.into_iter().rev() {
            self.waiting.push_front(piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(flight: &Flight) -> Vec<u8> {
        flight.slices().flat_map(|slice| slice.to_vec()).collect()
    }

    /// Appends a piece of its own.
    fn give(outgoing: &mut Outgoing, piece: Vec<u8>) {
        outgoing.bytes += piece.len();
        outgoing.waiting.push_back(piece);
    }

    #[test]
    fn what_is_sent_short_is_sent_on_from_there() {
        // Every way to cut the ten bytes of four pieces in two, with something queued meanwhile.
        for moved in 0..=10 {
            let mut outgoing = Outgoing::default();
            give(&mut outgoing, vec![0, 1, 2]);
            outgoing.copy(&[3, 4]);
            outgoing.copy(&[5]);
            give(&mut outgoing, vec![6]);
            give(&mut outgoing, vec![7, 8, 9]);
            let flight = outgoing.depart();
            assert_eq!((bytes(&flight), flight.bytes()), ((0..10).collect(), 10));
            outgoing.copy(&[10]);
            assert!(!outgoing.is_ready() && outgoing.bytes() == 11);
            outgoing.arrive(flight, moved);
            assert_eq!(outgoing.bytes(), 11 - moved);
            let flight = outgoing.depart();
            let expected: Vec<u8> = (u8::try_from(moved).unwrap()..11).collect();
            assert_eq!(bytes(&flight), expected, "after {moved}");
            outgoing.arrive(flight, expected.len());
            assert!(!outgoing.is_ready() && outgoing.bytes() == 0);
        }
    }

    #[test]
    fn a_send_is_bounded_in_pieces_and_bytes() {
        let mut outgoing = Outgoing::default();
        for _ in 0..SEND_PIECES + 1 {
            give(&mut outgoing, vec![1]);
        }
        let flight = outgoing.depart();
        assert_eq!(flight.bytes(), SEND_PIECES);
        outgoing.arrive(flight, SEND_PIECES);
        for _ in 0..3 {
            give(&mut outgoing, vec![2; SEND_BYTES / 2]);
        }
        let flight = outgoing.depart();
        assert!(flight.bytes() <= 1 + SEND_BYTES, "{}", flight.bytes());
    }

    #[test]
    fn small_messages_share_a_piece_and_the_piece_is_used_again() {
        let mut outgoing = Outgoing::default();
        let mut first = None;
        for _ in 0..3 {
            for _ in 0..10 {
                outgoing.copy(&[5; 9]);
            }
            let flight = outgoing.depart();
            assert_eq!(flight.slices().count(), 1);
            let start = flight.slices().next().unwrap().as_ptr();
            assert_eq!(*first.get_or_insert(start), start);
            outgoing.arrive(flight, 90);
        }
    }
}
