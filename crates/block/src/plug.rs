//! A plug: bios held a moment with their neighbours, in the order they arrived.
//!
//! One list, not one per class: whether two bios may change places is decided by their order of arrival across
//! the classes, and the classes are put one before the other at dispatch, once per batch. Nothing here reads a
//! clock; who holds the plug decides when to dispatch it.
//!
//! Bounded by count and by bytes: see [`limits`](crate::limits). Filling a full plug is the caller's bug.

use alloc::vec::Vec;

use crate::bio::{Bio, Class};
use crate::limits::{PLUG_BIOS, PLUG_BYTES};

/// A bio and the place it had when it came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    /// Number in the order of arrival, never the same twice in one queue.
    pub arrival: u64,
    /// What was asked.
    pub bio: Bio,
}

/// Bios held with their neighbours.
#[derive(Debug, Default)]
pub struct Plug {
    held: Vec<Held>,
    bytes: u64,
    arrivals: u64,
}

impl Plug {
    /// An empty plug.
    #[must_use]
    pub fn new() -> Self {
        Self { held: Vec::with_capacity(PLUG_BIOS), bytes: 0, arrivals: 0 }
    }

    /// Takes a bio in, behind all that came before; says the number it came as.
    pub fn hold(&mut self, bio: Bio) -> u64 {
        assert!(self.room() > 0, "the plug is full: dispatch it before submitting more");
        bio.check();
        self.bytes += bio.bytes();
        let arrival = self.arrivals;
        self.held.push(Held { arrival, bio });
        self.arrivals += 1;
        arrival
    }

    /// Bios it can still take.
    #[must_use]
    pub fn room(&self) -> usize {
        if self.bytes >= PLUG_BYTES { 0 } else { PLUG_BIOS - self.held.len() }
    }

    /// Bios it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Bios of one class it holds.
    #[must_use]
    pub fn len_of(&self, class: Class) -> usize {
        self.held.iter().filter(|held| held.bio.class == class).count()
    }

    /// Bytes its bios move.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Moves all it holds to the end of `into`, in the order of arrival.
    pub fn drain_into(&mut self, into: &mut Vec<Held>) {
        into.append(&mut self.held);
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;
    use crate::bio::{Frame, Operation, Segment, Source, Target};
    use crate::limits::EXTENDING_REQUEST_BYTES;

    fn write(length: u32) -> Bio {
        Bio {
            operation: Operation::Write,
            target: Target(0),
            offset: 0,
            length: u64::from(length),
            segments: smallvec![Segment::frames(Frame(0), length)],
            class: Class::Background,
            source: Source(0),
            owner: 0,
        }
    }

    #[test]
    fn holds_in_order_of_arrival_up_to_its_count() {
        let mut plug = Plug::new();
        while plug.room() > 0 {
            plug.hold(write(4096));
        }
        assert_eq!(plug.len(), PLUG_BIOS);
        assert_eq!(plug.len_of(Class::Background), PLUG_BIOS);
        let mut held = Vec::new();
        plug.drain_into(&mut held);
        assert!(held.is_sorted_by_key(|held| held.arrival));
        assert_eq!((plug.len(), plug.bytes(), plug.room()), (0, 0, PLUG_BIOS));
    }

    #[test]
    fn is_full_when_its_bytes_are() {
        let mut plug = Plug::new();
        for _ in 0..PLUG_BYTES / EXTENDING_REQUEST_BYTES {
            assert!(plug.room() > 0);
            plug.hold(write(EXTENDING_REQUEST_BYTES as u32));
        }
        assert_eq!(plug.room(), 0);
    }

    #[test]
    #[should_panic(expected = "the plug is full")]
    fn a_full_plug_takes_no_more() {
        let mut plug = Plug::new();
        for _ in 0..=PLUG_BIOS {
            plug.hold(write(4096));
        }
    }
}
