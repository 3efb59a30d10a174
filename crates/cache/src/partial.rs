//! Partial pages, with only some bytes in memory: a write of a hundred bytes does not wait for the
//! page to be read.
//!
//! ```text
//! absent --write of a part--> partial --more writes--> all of it written --> Dirty
//!                                |                                             ^
//!                                +--wanted: sent, read, or asked for--> filled-+
//! ```
//!
//! A mask has a bit for each written byte. The other bytes come from the device into a frame of
//! their own (direct I/O cannot read into the middle of a page), and from there into the page.
//! Bytes written before the read or during it stay. That frame is taken when the page becomes
//! partial, so that filling it never waits for memory, and is freed when the page is whole. Until
//! then the page is not sent.
//!
//! A page that is being read when it is written becomes partial, too: the frame being read into
//! becomes the one that it is filled from.
//!
//! The masks of `Exact` pages are here, too: the bytes of a page of a shared file that are ours.

use std::ops::Range;

use forebay_block::Frame;

use crate::bits::{bits, parts};
use crate::limits::PAGE;

/// Words of a mask.
const WORDS: usize = PAGE as usize / 64;

/// Set of bytes of a page.
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

    /// The first run of bytes in the set.
    pub(crate) fn first_run(&self) -> Option<Range<usize>> {
        let start = self.next(0, 0);
        (start < PAGE as usize).then(|| start..self.next(start, u64::MAX))
    }

    /// Runs of bytes in the set, in order.
    pub(crate) fn runs(&self) -> Vec<Range<usize>> {
        let missing = Self { words: self.words.map(|word| !word) };
        missing.missing()
    }

    pub(crate) fn holds(&self, range: Range<usize>) -> bool {
        words(range).all(|(word, mask)| self.words[word] & mask == mask)
    }

    /// Runs of bytes that are not in the set, in order.
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

    /// The first byte from `at` on with a bit other than that of `like` (all ones, or all zeroes).
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

/// A page with missing bytes.
#[derive(Debug)]
pub(crate) struct Partial {
    /// The bytes that were written.
    mask: Mask,
    /// Where the others come from.
    rest: Rest,
}

impl Partial {
    pub(crate) fn new(rest: Rest) -> Self {
        Self::with(Mask::new(), rest)
    }

    pub(crate) fn with(mask: Mask, rest: Rest) -> Self {
        Self { mask, rest }
    }

    pub(crate) fn mask(&self) -> &Mask {
        &self.mask
    }

    pub(crate) fn rest(&self) -> Rest {
        self.rest
    }

    /// Returns the frame that the page holds beside its own, if it is not being read into.
    pub(crate) fn spare(&self) -> Option<Frame> {
        match self.rest {
            Rest::OnDevice(frame) | Rest::Here(frame, _) => Some(frame),
            Rest::OnTheWay(_) => None,
        }
    }

    /// Adds bytes that were written.
    pub(crate) fn write(&mut self, bytes: Range<usize>) {
        self.mask.add(bytes);
    }

    /// The file ends at byte `inside` of the page now. Returns whether written bytes are left. The
    /// bytes beyond the end are zero, so under the lease they count as written.
    pub(crate) fn cut(&mut self, inside: usize, is_exclusive: bool) -> bool {
        self.mask.remove(inside..PAGE as usize);
        let is_left = !self.mask.is_empty();
        if is_left && is_exclusive {
            self.mask.add(inside..PAGE as usize);
        }
        is_left
    }

    /// The missing bytes are being read with a flight.
    pub(crate) fn send(&mut self, flight: u32) {
        debug_assert!(matches!(self.rest, Rest::OnDevice(_)), "a page is filled once");
        self.rest = Rest::OnTheWay(flight);
    }

    /// The missing bytes are in a frame, while the page is being copied into.
    pub(crate) fn arrive(&mut self, frame: Frame, filled: usize) {
        debug_assert!(matches!(self.rest, Rest::OnTheWay(_)), "no bytes were on their way");
        self.rest = Rest::Here(frame, filled);
    }

    /// The missing bytes could not be read.
    pub(crate) fn fail(&mut self, frame: Frame) {
        debug_assert!(matches!(self.rest, Rest::OnTheWay(_)), "no bytes were on their way");
        self.rest = Rest::OnDevice(frame);
    }
}

/// Bytes of a page of a shared file that are ours. All bytes of a page without such a record are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Exact {
    /// To be written.
    dirty: Mask,
    /// Written, and kept for a flush.
    kept: Mask,
}

impl Exact {
    pub(crate) fn new(dirty: Mask, kept: Mask) -> Self {
        Self { dirty, kept }
    }

    pub(crate) fn dirty(&self) -> &Mask {
        &self.dirty
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.dirty.is_empty() && self.kept.is_empty()
    }

    pub(crate) fn write(&mut self, bytes: Range<usize>) {
        self.dirty.add(bytes);
    }

    /// Bytes were written to the file. Returns whether none are left to write.
    pub(crate) fn note_written(&mut self, bytes: Range<usize>) -> bool {
        self.dirty.remove(bytes.clone());
        self.kept.add(bytes);
        self.dirty.is_empty()
    }

    pub(crate) fn keep_all(&mut self) {
        self.kept = Mask::full();
    }

    pub(crate) fn end_keeping(&mut self) {
        self.kept = Mask::new();
    }

    /// The kept bytes before byte `inside` must be written again.
    pub(crate) fn redo(&mut self, inside: usize) {
        self.dirty.add_all(&std::mem::replace(&mut self.kept, Mask::new()));
        self.dirty.remove(inside..PAGE as usize);
    }

    /// The file ends at byte `inside` of the page now.
    pub(crate) fn cut(&mut self, inside: usize) {
        self.dirty.remove(inside..PAGE as usize);
        self.kept.remove(inside..PAGE as usize);
    }
}

/// Where the bytes that were not written are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rest {
    /// On the device; this frame is for reading them.
    OnDevice(Frame),
    /// Being read, with the flight of this number.
    OnTheWay(u32),
    /// In this frame: this number of bytes from the device, then zeroes. The page is being copied
    /// into, and is made whole when that is published.
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
