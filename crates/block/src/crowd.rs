//! The crowd: whether anything submitted and not ended may be in a bio's way, told for a few
//! nanoseconds.
//!
//! Almost nothing that is on its way together overlaps, and comparing each bio with a hundred
//! others would cost more than all the rest of its way. So bios are counted by stretches of their
//! target, in a hashed table, from submission to end: a count of zero is an answer, and holds for
//! the bio's whole way, since those that come later wait for it and not it for them; any other
//! makes somebody look. It is never zero where something is.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::footprint::Footprint;
use crate::hashed;
use crate::limits::REQUEST_BYTES;

/// Counts: with 128 bios on their way, one look of 60 is in vain.
const COUNTS: usize = 8192;

/// Bytes of a stretch, as a power of two: a page, so that neighbours are in nobody's way.
const STRETCH: u32 = 12;

/// Stretches counted one by one; what covers more is kept in a list, for there are never many.
const STRETCHES_COUNTED: u64 = REQUEST_BYTES >> STRETCH;

/// What is on its way, by stretches.
#[derive(Debug)]
pub(crate) struct Crowd {
    counts: Box<[u16; COUNTS]>,
    /// Of more stretches than are counted.
    wide: Vec<Footprint>,
    /// That change something.
    changes: u32,
    all: u32,
}

impl Crowd {
    pub(crate) fn new() -> Self {
        Self { counts: Box::new([0; COUNTS]), wide: Vec::new(), changes: 0, all: 0 }
    }

    /// Takes a bio in; whether something that is here may be in its way.
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
        in_the_way > 0 && seen > 0
    }

    /// A bio has ended.
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
                    self.counts[hashed::place::<COUNTS>(footprint.target().0, stretch)] -= 1;
                }
            }
        }
        self.all -= 1;
        self.changes -= u32::from(footprint.changes());
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
