//! Space reserved ahead of data, so that a file lies in one piece.
//!
//! Random writes into holes make an extent each. The same writes into space that was allocated in
//! one call make one extent in all. So a span that becomes dense is allocated before its first page
//! is sent, and beyond the end of a stream as much again as it has. The reserved ranges are
//! recorded, to be given back: beyond the end when the file is closed, below it if nothing was
//! written there.
//!
//! This file has the set of ranges and the sizes of reservations. Nothing here knows a file.

use std::collections::BTreeMap;
use std::ops::Range;

use forebay_block::Errno;

use crate::limits::{
    AHEAD_LEAST, AHEAD_MOST, AHEAD_OF_FREE, AHEAD_OF_SCATTERED, AHEAD_SECONDS, PAGE, RESERVE_LEAST,
    RESERVE_PIECES,
};

/// Reason for a reservation of space.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReservedFor {
    /// Dirty pages at scattered places are becoming dense.
    Dense,
    /// The file grows at its end.
    Stream,
    /// The length of the file was declared.
    Declared,
}

/// A range of bytes to be allocated before data is sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Reservation {
    pub(crate) bytes: Range<u64>,
    /// Bytes still to be reserved of the span that `bytes` is a part of.
    pub(crate) whole: u64,
    pub(crate) purpose: ReservedFor,
}

/// Reserved ranges of one file, in bytes.
#[derive(Debug, Default)]
pub struct Space {
    ranges: BTreeMap<u64, u64>,
}

impl Space {
    /// Returns whether a whole range is reserved.
    #[must_use]
    pub fn covers(&self, range: &Range<u64>) -> bool {
        self.ranges.range(..=range.start).next_back().is_some_and(|(_, end)| *end >= range.end)
    }

    /// Returns how many bytes of a range are not reserved.
    #[must_use]
    pub fn missing(&self, range: &Range<u64>) -> u64 {
        let reserved = self.ranges.range(..range.end).rev();
        let reserved = reserved.take_while(|(_, end)| **end > range.start);
        let inside = |(start, end): (&u64, &u64)| (*end).min(range.end) - (*start).max(range.start);
        range.end - range.start - reserved.map(inside).sum::<u64>()
    }

    /// Adds a reserved range.
    pub fn add(&mut self, range: Range<u64>) {
        let mut merged = range;
        while let Some((&start, &end)) = self.ranges.range(..=merged.end).next_back() {
            if end < merged.start {
                break;
            }
            merged = merged.start.min(start)..merged.end.max(end);
            self.ranges.remove(&start);
        }
        self.ranges.insert(merged.start, merged.end);
    }

    /// Removes ranges beyond `length`, after the file was truncated.
    pub fn cut(&mut self, length: u64) {
        self.ranges.split_off(&length);
        if let Some((_, end)) = self.ranges.range_mut(..length).next_back() {
            *end = (*end).min(length);
        }
    }

    /// Returns the end of the last reserved range.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.ranges.last_key_value().map_or(0, |(_, end)| *end)
    }

    /// Asserts that the ranges are in order, not empty, and apart.
    pub(crate) fn verify(&self) {
        let mut before = None;
        for (start, end) in &self.ranges {
            assert!(start < end, "a range of no bytes is reserved");
            assert!(before < Some(*start), "ranges that touch are one");
            before = Some(*end);
        }
    }

    /// Returns the reserved ranges in order.
    pub fn ranges(&self) -> impl DoubleEndedIterator<Item = Range<u64>> + '_ {
        self.ranges.iter().map(|(start, end)| *start..*end)
    }
}

/// `ENOSPC` and `EDQUOT`.
pub(crate) const NO_SPACE: Errno = Errno(28);
pub(crate) const OVER_QUOTA: Errno = Errno(122);

/// Returns the bytes to reserve beyond the end of a growing file, in whole pages: some seconds of
/// its growth if the rate is known, limited by the size of the file, a maximum, and the free space.
/// A stream gets as much again as it has, so a file of N bytes takes log N allocations.
#[must_use]
pub fn ahead(
    size: u64,
    free_bytes: u64,
    bytes_per_second: Option<u64>,
    purpose: ReservedFor,
) -> u64 {
    let of_file = match purpose {
        ReservedFor::Stream => size,
        ReservedFor::Dense | ReservedFor::Declared => size / AHEAD_OF_SCATTERED,
    };
    let most = of_file.min(AHEAD_MOST).min(free_bytes / AHEAD_OF_FREE);
    let wanted = bytes_per_second
        .map_or(u64::MAX, |rate| rate.saturating_mul(AHEAD_SECONDS).max(AHEAD_LEAST));
    most.min(wanted) / PAGE * PAGE
}

/// Returns the maximum of bytes per reservation if the free space has extents of `piece_bytes`, or
/// `None` if it is not fragmented.
#[must_use]
pub fn at_most(piece_bytes: Option<u64>) -> u64 {
    piece_bytes.map_or(u64::MAX, |piece| piece.saturating_mul(RESERVE_PIECES).max(RESERVE_LEAST))
}

/// Free space in larger extents does not count as fragmented.
const LARGE_PIECE: u64 = 16 << 20;

/// Returns the new estimate of the size of free extents, from the last estimate `before` and a
/// reservation of `bytes` that got `pieces` extents. Up to two extents do not count as fragmented.
#[must_use]
pub fn piece_bytes(before: Option<u64>, pieces: u64, bytes: u64) -> Option<u64> {
    let now = match (before, pieces) {
        // As long as requested, so the free extent may be longer.
        (_, 0..=2) => before?.saturating_mul(2),
        (None, _) => bytes / pieces,
        (Some(before), _) => before / 2 + bytes / pieces / 2,
    };
    (now < LARGE_PIECE).then_some(now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn agrees_with_a_plain_set(operations in proptest::collection::vec((0..5u8, 0..60u64, 1..20u64), 1..60)) {
            let mut space = Space::default();
            let mut plain = BTreeSet::new();
            for (what, start, length) in operations {
                if what == 0 {
                    space.cut(start);
                    plain.retain(|at| *at < start);
                } else {
                    space.add(start..start + length);
                    plain.extend(start..start + length);
                }
                let listed: BTreeSet<u64> = space.ranges().flatten().collect();
                prop_assert_eq!(&listed, &plain);
                prop_assert_eq!(space.end(), plain.last().map_or(0, |at| at + 1));
                let asked = start..start + 3 * length;
                let missing = asked.clone().filter(|at| !plain.contains(at)).count() as u64;
                prop_assert_eq!(space.missing(&asked), missing);
                for at in 0..80 {
                    let range = at..at + 3;
                    prop_assert_eq!(space.covers(&range), range.clone().all(|byte| plain.contains(&byte)));
                }
            }
        }
    }

    #[test]
    fn contract_09_as_much_again_is_reserved_beyond_the_end_of_a_stream() {
        let stream = |size, free| ahead(size, free, None, ReservedFor::Stream);
        assert_eq!(stream(2 << 20, 1 << 40), 2 << 20);
        assert_eq!(stream(160 << 20, 1 << 40), 64 << 20);
        assert_eq!(stream(160 << 20, 1 << 20), 8192);
        assert_eq!(stream(4095, 1 << 40), 0);
    }

    #[test]
    fn contract_09_little_is_reserved_beyond_the_end_of_scattered_pages() {
        let dense = |size, free| ahead(size, free, None, ReservedFor::Dense);
        assert_eq!(dense(160 << 20, 1 << 40), 10 << 20);
        assert_eq!(dense(160 << 20, 1 << 20), 8192);
        assert_eq!(dense(4096, 1 << 40), 0);
    }

    proptest! {
        #[test]
        fn contract_09_what_a_stream_needs_never_passes_the_bounds(
            size in 0..1u64 << 50, free in 0..1u64 << 50, small in 0..1u64 << 28,
            rate in proptest::option::of(0..u64::MAX)
        ) {
            for size in [size, small] {
                let of = |rate| ahead(size, free, rate, ReservedFor::Stream);
                let bytes = of(rate);
                prop_assert!(bytes <= size && bytes <= 64 << 20 && bytes <= free / 100);
                prop_assert!(bytes.is_multiple_of(PAGE));
                // A faster stream never has less, and an unknown one has most.
                prop_assert!(bytes <= of(rate.map(|rate| rate.saturating_add(1 << 20))));
                prop_assert!(bytes <= of(None));
                prop_assert!(ahead(size, free, rate, ReservedFor::Dense) <= bytes);
            }
        }
    }

    #[test]
    fn pieces_are_learned_and_forgotten() {
        assert_eq!(piece_bytes(None, 1, 64 << 20), None);
        assert_eq!(piece_bytes(None, 2, 64 << 20), None);
        assert_eq!(piece_bytes(None, 3, 48 << 20), None, "large ones");
        let mut piece = piece_bytes(None, 64, 2 << 20);
        assert_eq!(piece, Some(32 << 10));
        piece = piece_bytes(piece, 32, 2 << 20);
        assert_eq!(piece, Some(48 << 10));
        assert_eq!(
            piece_bytes(piece, 0, 0),
            Some(96 << 10),
            "nothing has a place: no reason to ask for little"
        );
        let mut tries = 0;
        while piece.is_some() {
            (piece, tries) = (piece_bytes(piece, 1, 2 << 20), tries + 1);
        }
        assert_eq!(tries, 9, "space that is whole again is found out");
    }

    #[test]
    fn a_stream_reserves_for_some_seconds() {
        let of = |rate| ahead(1 << 50, 1 << 50, Some(rate), ReservedFor::Stream);
        assert_eq!(of(5 << 20), 40 << 20);
        assert_eq!(of(100 << 20), AHEAD_MOST);
        assert_eq!(of(0), AHEAD_LEAST);
        assert_eq!(at_most(None), u64::MAX);
        assert_eq!(at_most(Some(1 << 20)), 64 << 20);
        assert_eq!(at_most(Some(4096)), RESERVE_LEAST);
    }
}
