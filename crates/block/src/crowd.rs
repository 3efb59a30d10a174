//! Crowd: whether a bio may conflict with any bio submitted and not ended, decided in a few
//! nanoseconds.
//!
//! Bios on their way together almost never overlap, and comparing each bio with a hundred others
//! would cost more than the rest of its path. So this table counts bios by stretches of their
//! target, hashed, from submission to end. A count of zero proves that no bio conflicts. It holds
//! until the bio ends, because later bios wait for it and not the reverse. Any other count requires
//! a search. A count is never zero where a bio is.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::footprint::Footprint;
use crate::hashed;
use crate::limits::{PLUG_BIOS, REQUEST_BYTES, TAGS};

/// Number of counts: with 128 bios on their way, one search of 60 finds nothing.
const COUNTS: usize = 8192;

/// Bytes of a stretch, as a power of two: a page, so that neighbours do not share one.
const STRETCH: u32 = 12;

/// Most stretches of a bio that are counted one by one. Larger footprints are rare and kept in a
/// list.
const STRETCHES_COUNTED: u64 = REQUEST_BYTES >> STRETCH;

// Bios are on their way in a plug, or merged from one plug into a request in flight. A count that
// overflowed could be zero where a bio is.
const _: () = assert!(
    PLUG_BIOS + TAGS * PLUG_BIOS <= u16::MAX as usize,
    "a count must hold all bios on their way"
);

/// Bios submitted and not ended, counted by stretches.
#[derive(Debug)]
pub(crate) struct Crowd {
    counts: Box<[u16; COUNTS]>,
    /// Footprints of more stretches than are counted.
    wide: Vec<Footprint>,
    /// Bios with a footprint that change their target.
    changes: u32,
    all: u32,
}

impl Crowd {
    pub(crate) fn new() -> Self {
        Self { counts: Box::new([0; COUNTS]), wide: Vec::new(), changes: 0, all: 0 }
    }

    /// Adds a bio. Returns whether it may conflict with one that is here.
    #[inline]
    pub(crate) fn enter(&mut self, footprint: Footprint) -> bool {
        let changes = footprint.changes();
        let in_the_way = if changes { self.all } else { self.changes };
        let mut seen = 0;
        match stretches(footprint) {
            Stretches::None => return false,
            Stretches::Wide => {
                self.wide.push(footprint);
                seen = 1;
            }
            Stretches::Some { first, last } => {
                for stretch in first..=last {
                    let count =
                        &mut self.counts[hashed::place::<COUNTS>(footprint.target().0, stretch)];
                    seen |= *count;
                    *count += 1;
                }
                if !self.wide.is_empty() && self.wide.iter().any(|wide| wide.conflicts(footprint)) {
                    seen = 1;
                }
            }
        }
        self.all += 1;
        self.changes += u32::from(changes);
        debug_assert!(self.changes <= self.all, "more bios change their target than are here");
        in_the_way > 0 && seen > 0
    }

    /// Removes a bio that has ended.
    #[inline]
    pub(crate) fn leave(&mut self, footprint: Footprint) {
        match stretches(footprint) {
            Stretches::None => return,
            Stretches::Wide => {
                let place = self.wide.iter().position(|wide| *wide == footprint);
                self.wide.swap_remove(place.expect("a bio leaves once"));
            }
            Stretches::Some { first, last } => {
                for stretch in first..=last {
                    let count =
                        &mut self.counts[hashed::place::<COUNTS>(footprint.target().0, stretch)];
                    assert!(*count > 0, "{footprint:?} leaves and did not enter");
                    *count -= 1;
                }
            }
        }
        self.all -= 1;
        self.changes -= u32::from(footprint.changes());
        debug_assert!(
            self.all > 0 || self.changes == 0 && self.wide.is_empty(),
            "a bio has left, and part of it is still counted"
        );
    }
}

impl Default for Crowd {
    fn default() -> Self {
        Self::new()
    }
}

enum Stretches {
    None,
    Some { first: u64, last: u64 },
    Wide,
}

#[inline]
fn stretches(footprint: Footprint) -> Stretches {
    let (start, end) = footprint.range();
    if end <= start {
        return Stretches::None;
    }
    let (first, last) = (start >> STRETCH, (end - 1) >> STRETCH);
    if last - first <= STRETCHES_COUNTED {
        Stretches::Some { first, last }
    } else {
        Stretches::Wide
    }
}
