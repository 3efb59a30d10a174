//! Pages of which only some bytes are here: a write of a hundred bytes does not wait for the page
//! to be read.
//!
//! ```text
//! absent --write of a part--> partial --more writes--> all of it written --> Dirty
//!                                |                                             ^
//!                                +--wanted: sent, read, or asked for--> filled-+
//! ```
//!
//! The bytes that were written are told by a mask of a bit each. The others come from the device,
//! into a frame of their own (direct I/O cannot read into the middle of a page), and from there
//! into the page: bytes that were written, before the read or during it, stay. That frame is taken
//! when the page becomes partial, so that filling it never waits for memory, and is free again when
//! the page is whole. Until then the page is not sent.
//!
//! A page that is being read in when a writer comes becomes partial, too: what was to be the page's
//! frame becomes the one it is filled from.

use std::ops::Range;

use forebay_block::Frame;

use crate::bits::{bits, parts};
use crate::limits::PAGE;

/// Words of a mask.
const WORDS: usize = PAGE as usize / 64;

/// Which bytes of a page are here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mask {
    words: [u64; WORDS],
}

impl Mask {
    pub(crate) fn new() -> Self {
        Self { words: [0; WORDS] }
    }

    pub(crate) fn full() -> Self {
        Self { words: [u64::MAX; WORDS] }
    }

    pub(crate) fn of(range: Range<usize>) -> Self {
        let mut mask = Self::new();
        mask.add(range);
        mask
    }

    pub(crate) fn add(&mut self, range: Range<usize>) {
        for (word, mask) in words(range) {
            self.words[word] |= mask;
        }
    }

    pub(crate) fn add_all(&mut self, other: &Self) {
        self.words.iter_mut().zip(&other.words).for_each(|(word, more)| *word |= more);
    }

    pub(crate) fn remove(&mut self, range: Range<usize>) {
        for (word, mask) in words(range) {
            self.words[word] &= !mask;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.words.iter().all(|word| *word == u64::MAX)
    }

    /// The first stretch that is here.
    pub(crate) fn first_run(&self) -> Option<Range<usize>> {
        let start = self.next(0, 0);
        (start < PAGE as usize).then(|| start..self.next(start, u64::MAX))
    }

    /// Stretches that are here, in order.
    pub(crate) fn runs(&self) -> Vec<Range<usize>> {
        let missing = Self { words: self.words.map(|word| !word) };
        missing.missing()
    }

    pub(crate) fn holds(&self, range: Range<usize>) -> bool {
        words(range).all(|(word, mask)| self.words[word] & mask == mask)
    }

    /// Stretches that are not here, in order.
    pub(crate) fn missing(&self) -> Vec<Range<usize>> {
        let mut missing = Vec::new();
        let mut at = 0;
        while at < PAGE as usize {
            let start = self.next(at, u64::MAX);
            at = self.next(start, 0);
            if start < at {
                missing.push(start..at);
            }
        }
        missing
    }

    /// The first byte from `at` on whose bit is not that of `like` (all ones, or all zeroes).
    fn next(&self, at: usize, like: u64) -> usize {
        let mut from = at;
        while from < PAGE as usize {
            let differs = (self.words[from / 64] ^ like) >> (from % 64);
            if differs != 0 {
                return from + differs.trailing_zeros() as usize;
            }
            from = (from / 64 + 1) * 64;
        }
        PAGE as usize
    }
}

/// The words a range touches, each with the bits of it.
fn words(range: Range<usize>) -> impl Iterator<Item = (usize, u64)> {
    parts(range.start as u64..range.end as u64)
        .map(|(at, bit, count)| ((at / 64) as usize, bits(bit, count)))
}

/// A page of which some bytes are missing.
#[derive(Debug)]
pub(crate) struct Partial {
    /// The bytes that were written.
    pub(crate) mask: Box<Mask>,
    /// Where the others come from.
    pub(crate) rest: Rest,
}

/// Where the bytes that were not written are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rest {
    /// On the device; this frame is for reading them.
    OnDevice(Frame),
    /// On their way, with the flight of this number.
    OnTheWay(u32),
    /// In this frame, of which the first so many bytes are the device's and the others zero; the
    /// page is being copied into, and is made whole when that is published.
    Here(Frame, usize),
}

/// Copy of byte ranges from frame `from` to the same offsets of frame `to`, to complete a page.
/// Bytes from `filled` on are zero instead. It is made under the lock of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Patch {
    /// Page that is complete afterwards.
    pub page: u64,
    /// Source frame.
    pub from: Frame,
    /// Destination frame.
    pub to: Frame,
    /// Ranges of bytes to copy.
    pub bytes: Vec<Range<usize>>,
    /// Number of valid bytes in `from`.
    pub filled: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_plain_set(ranges in proptest::collection::vec((0..4096usize, 1..900usize), 0..12)) {
            let mut mask = Mask::new();
            let mut plain = vec![false; PAGE as usize];
            for (start, length) in ranges {
                let range = start..(start + length).min(PAGE as usize);
                prop_assert_eq!(mask.holds(range.clone()), plain[range.clone()].iter().all(|here| *here));
                mask.add(range.clone());
                plain[range.clone()].fill(true);
                prop_assert!(mask.holds(range));
            }
            let runs = mask.runs();
            prop_assert_eq!(mask.first_run(), runs.first().cloned());
            let mut here = vec![false; PAGE as usize];
            runs.iter().for_each(|run| here[run.clone()].fill(true));
            prop_assert_eq!(&here, &plain);
            prop_assert_eq!(mask.is_empty(), runs.is_empty());
            let mut rest = mask.clone();
            runs.into_iter().for_each(|run| rest.remove(run));
            prop_assert!(rest.is_empty() && !mask.is_full());
            let mut missing = vec![false; PAGE as usize];
            for range in mask.missing() {
                prop_assert!(!range.is_empty());
                missing[range].fill(true);
            }
            prop_assert!(plain.iter().zip(&missing).all(|(here, missing)| here != missing));
        }
    }
}
