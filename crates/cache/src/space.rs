//! Space reserved ahead of data, so that a file lies in one piece.
//!
//! Random writes into holes make an extent each; the same writes into space that was allocated in
//! one call make one extent in all. So a span is allocated before its first page is sent, where the
//! file is becoming dense there; and a little beyond the end of a file that grows. What is reserved
//! is remembered, to be given back: beyond the end when the file is closed, below it where nothing
//! was ever written.

use std::collections::BTreeMap;
use std::ops::Range;

use forebay_block::{Bio, Errno, Moment};

use crate::file::{CachedFile, Liberties, Reserving};
use crate::index::Chunk;
use crate::limits::{
    AHEAD_LEAST, AHEAD_OF_FILE, AHEAD_OF_FREE, AHEAD_SECONDS, DENSE_ONE_IN, GATHER_PAGES, PAGE,
    RESERVE_LEAST, RESERVE_PAGES, RESERVE_PIECES, SCARCE_PAUSE,
};
use crate::writeback::flight::Flight;

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

    /// Returns the reserved ranges in order.
    pub fn ranges(&self) -> impl DoubleEndedIterator<Item = Range<u64>> + '_ {
        self.ranges.iter().map(|(start, end)| *start..*end)
    }
}

impl CachedFile {
    /// What has to be allocated before a run that starts at `first` is sent.
    pub(crate) fn reservation(&mut self, first: u64) -> Option<Reservation> {
        let is_wanted = match self.reserving {
            Reserving::Adaptive | Reserving::Ahead(_) => true,
            Reserving::Hint(_) => self.extent_hint == 0,
            Reserving::Paused | Reserving::Off => false,
        };
        if !is_wanted || self.liberties == Liberties::Shared {
            return None;
        }
        if first < self.origin_pages || self.space.covers(&(first * PAGE..(first + 1) * PAGE)) {
            return None;
        }
        if self.reserve_pause > 0 {
            self.reserve_pause -= 1;
            return None;
        }
        let any = |_: u64, chunk: &Chunk| chunk.dirty;
        let lowest = self.index.next_dirty(self.origin_pages, u64::MAX, any)?;
        let end = self.index.last_dirty(first, any)? + 1;
        let start = (lowest / GATHER_PAGES * GATHER_PAGES).max(self.origin_pages);
        let dirty = self.index.count_dirty(start);
        if end - start < RESERVE_PAGES || dirty * DENSE_ONE_IN < end - start {
            // Counting costs a step per 64 pages, so a sparse file is looked at again after as many
            // runs.
            self.reserve_pause = dirty / 64;
            return None;
        }
        // A length that was declared is reserved with it, where that is not mostly air.
        let declared = self.disk_size / PAGE;
        if declared > end && dirty * DENSE_ONE_IN >= declared - start {
            return Some(self.at_once(first, start * PAGE..declared * PAGE, ReservedFor::Declared));
        }
        let growing = end * PAGE >= self.size / PAGE * PAGE;
        let beyond = match self.reserving {
            _ if !growing => 0,
            Reserving::Ahead(bytes) => fixed(bytes, self.free_bytes),
            _ => ahead(self.size, self.free_bytes, self.growth.bytes_per_second()),
        };
        // Random pages of a new file reach to its end as well, but most of what is below is not
        // there yet.
        let is_stream = growing && dirty * 2 > end - start;
        let purpose = if is_stream { ReservedFor::Stream } else { ReservedFor::Dense };
        Some(self.at_once(first, start * PAGE..end * PAGE + beyond, purpose))
    }

    /// The part of a span that is asked for at once: all of it, or the part for the run from
    /// `first` on if that is too much. The reservation says how much of the span is missing: a
    /// span that does not fit as a whole must not take all free space part by part.
    fn at_once(&self, first: u64, all: Range<u64>, purpose: ReservedFor) -> Reservation {
        let whole = self.space.missing(&all);
        let bytes = if all.end - all.start <= self.reserve_most {
            all
        } else {
            let start = (first / GATHER_PAGES * GATHER_PAGES * PAGE).max(all.start);
            start..all.end.min(start + self.reserve_most)
        };
        Reservation { bytes, whole, purpose }
    }

    /// Has the next release give back all that was reserved and never used, in however short
    /// stretches: a write needs the space. Whether there is anything reserved.
    pub fn give_back_all(&mut self) -> bool {
        let has_some = self.liberties == Liberties::Exclusive
            && (self.space.end() > 0 || self.reserved_beyond_end() > 0);
        self.gives_back_all |= has_some;
        has_some
    }

    /// Sets the maximum of bytes per reservation; see [`at_most`].
    pub fn set_reserve_most(&mut self, bytes: u64) {
        self.reserve_most = bytes.max(RESERVE_LEAST) / PAGE * PAGE;
    }

    /// Sets the extent-size hint that the file was created with, in bytes. The file system
    /// allocates in such units, and the part of the last one beyond the end must be given back.
    pub fn set_extent_hint(&mut self, bytes: u64) {
        self.extent_hint = bytes;
    }

    /// Data is sent up to this byte.
    pub(crate) fn note_sent(&mut self, end: u64) {
        if self.extent_hint > 0 {
            self.littered = self.littered.max(end.next_multiple_of(self.extent_hint));
        }
    }

    /// Records the time of a reservation, to measure how fast the file grows.
    pub fn note_reserved(&mut self, now: Moment) {
        self.growth.note(self.size, now);
    }

    /// Returns the reason if a bio in flight reserves space, and the bytes still to be reserved of
    /// the span that it is a part of.
    #[must_use]
    pub fn reserves_for(&self, bio: &Bio) -> Option<(ReservedFor, u64)> {
        match self.flights.get(Self::flight_of(bio).1) {
            Flight::Allocate(Reservation { purpose, whole, .. }) => Some((*purpose, *whole)),
            _ => None,
        }
    }

    /// Returns the bytes of space that a bio in flight gives back.
    #[must_use]
    pub fn gives_back(&self, bio: &Bio) -> u64 {
        match self.flights.get(Self::flight_of(bio).1) {
            Flight::Punch => bio.length,
            Flight::GiveBack { bytes } => *bytes,
            _ => 0,
        }
    }

    /// Space could not be allocated.
    pub(crate) fn settle_unreserved(&mut self, reservation: &Reservation, errno: Errno) {
        match errno {
            // There may be some again later. What was allocated before it ran out is still there.
            NO_SPACE | OVER_QUOTA => {
                self.note_litter(reservation.bytes.end);
                self.reserve_pause = SCARCE_PAUSE;
            }
            // It was not asked for.
            Errno::WOULD_BLOCK => self.reserve_pause = SCARCE_PAUSE,
            // Data can still be written without; whether there is room for it, the write will tell.
            _ => self.reserving = Reserving::Off,
        }
    }

    /// The last stretch below the end that was reserved, and where a whole request's worth was
    /// never written. A shorter one stays, for giving it back would split the file, unless its
    /// space is needed.
    pub(crate) fn last_unused(&self) -> Option<Range<u64>> {
        let end = self.disk_size / PAGE;
        let least = if self.gives_back_all { 1 } else { GATHER_PAGES };
        self.space.ranges().rev().find_map(|range| {
            let pages = range.start / PAGE..(range.end / PAGE).min(end);
            let run = self.holes.last_zero_run(pages, least)?;
            Some(run.start * PAGE..run.end * PAGE)
        })
    }
}

/// `ENOSPC` and `EDQUOT`.
pub(crate) const NO_SPACE: Errno = Errno(28);
const OVER_QUOTA: Errno = Errno(122);

/// Returns the bytes to reserve beyond the end of a growing file, in whole pages: some seconds of
/// its growth if the rate is known, limited by the size of the file and the free space.
#[must_use]
pub fn ahead(size: u64, free_bytes: u64, bytes_per_second: Option<u64>) -> u64 {
    let most = (size / AHEAD_OF_FILE).min(free_bytes / AHEAD_OF_FREE);
    let wanted = bytes_per_second
        .map_or(u64::MAX, |rate| rate.saturating_mul(AHEAD_SECONDS).max(AHEAD_LEAST));
    most.min(wanted) / PAGE * PAGE
}

/// The same where it was told how many they should be: no more than the file system's part.
fn fixed(bytes: u64, free_bytes: u64) -> u64 {
    bytes.min(free_bytes / AHEAD_OF_FREE) / PAGE * PAGE
}

/// Returns the maximum of bytes per reservation if the free space has extents of `piece_bytes`, or
/// `None` if it is not fragmented.
#[must_use]
pub fn at_most(piece_bytes: Option<u64>) -> u64 {
    piece_bytes.map_or(u64::MAX, |piece| piece.saturating_mul(RESERVE_PIECES).max(RESERVE_LEAST))
}

/// Of what lies in larger pieces it is not said that it lies in pieces.
const LARGE_PIECE: u64 = 16 << 20;

/// Returns the new estimate of the size of free extents, from the last estimate `before` and a
/// reservation of `bytes` that got `pieces` extents. Up to two extents do not count as fragmented.
#[must_use]
pub fn piece_bytes(before: Option<u64>, pieces: u64, bytes: u64) -> Option<u64> {
    let now = match (before, pieces) {
        // As long as was asked for, and so perhaps longer.
        (_, 0..=2) => before?.saturating_mul(2),
        (None, _) => bytes / pieces,
        (Some(before), _) => before / 2 + bytes / pieces / 2,
    };
    (now < LARGE_PIECE).then_some(now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{Entry, Origin};
    use crate::ticket::TicketKind;
    use crate::writeback::reason::Reason;
    use forebay_block::{Operation, Target};
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
    fn contract_09_little_is_reserved_beyond_the_end() {
        assert_eq!(ahead(160 << 20, 1 << 40, None), 10 << 20);
        assert_eq!(ahead(160 << 20, 1 << 20, None), 8192);
        assert_eq!(ahead(4096, 1 << 40, None), 0);
        assert_eq!(fixed(64 << 20, 1 << 40), 64 << 20);
        assert_eq!(fixed(64 << 20, 1 << 20), 8192);
    }

    proptest! {
        #[test]
        fn contract_09_what_a_stream_needs_never_passes_the_bounds(
            size in 0..1u64 << 50, free in 0..1u64 << 50, rate in proptest::option::of(0..u64::MAX)
        ) {
            let bytes = ahead(size, free, rate);
            prop_assert!(bytes <= size / 16 && bytes <= free / 100 && bytes.is_multiple_of(PAGE));
            // A faster stream never has less, and an unknown one has most.
            prop_assert!(bytes <= ahead(size, free, rate.map(|rate| rate.saturating_add(1 << 20))));
            prop_assert!(bytes <= ahead(size, free, None));
        }

        #[test]
        fn what_is_asked_for_at_once_has_the_run_it_is_for(
            start in 0..1_000u64, before in 0..100_000u64, after in 1..100_000u64, piece in 0..1u64 << 24
        ) {
            let mut file = CachedFile::new(Target(0), Origin::Existing(0), Liberties::Exclusive);
            file.set_reserve_most(at_most(Some(piece)));
            let (start, first, end) = (start * GATHER_PAGES, start * GATHER_PAGES + before, start * GATHER_PAGES + before + after);
            let all = start * PAGE..end * PAGE;
            let asked = file.at_once(first, all.clone(), ReservedFor::Dense).bytes;
            prop_assert!(all.start <= asked.start && asked.end <= all.end);
            prop_assert!(asked.end - asked.start <= at_most(Some(piece)));
            let run_end = (first + GATHER_PAGES).min(end) * PAGE;
            prop_assert!(asked.start <= first * PAGE && asked.end >= run_end, "{asked:?} for {first}");
        }
    }

    #[test]
    fn contract_09_a_part_says_how_much_of_its_span_is_missing() {
        let mut file = CachedFile::new(Target(0), Origin::Existing(0), Liberties::Exclusive);
        file.set_reserve_most(RESERVE_LEAST);
        let part = file.at_once(0, 0..1 << 30, ReservedFor::Declared);
        assert_eq!((part.bytes, part.whole), (0..RESERVE_LEAST, 1 << 30));
        file.space.add(0..RESERVE_LEAST);
        let next = file.at_once(RESERVE_LEAST / PAGE, 0..1 << 30, ReservedFor::Declared);
        assert_eq!(next.whole, (1 << 30) - RESERVE_LEAST);
    }

    fn empty() -> CachedFile {
        let origin = Origin::Empty { entry: Entry::Old };
        CachedFile::new(Target(0), origin, Liberties::Exclusive)
    }

    /// Whether a release sends a bio first, or ends at once.
    fn release(file: &mut CachedFile) -> Option<Operation> {
        let ticket = file.ask(TicketKind::Release);
        let bio = file.next_bio(Reason::Sync);
        assert_eq!(file.fetch(ticket).is_some(), bio.is_none());
        bio.map(|bio| bio.operation)
    }

    #[test]
    fn contract_09_a_release_leaves_the_space_of_a_write_under_way() {
        let mut file = empty();
        file.note_allocated(0..64 * PAGE);
        file.begin_allocated_write();
        assert_eq!(release(&mut file), None);
        assert_eq!(file.reserved_beyond_end(), 64 * PAGE, "forgotten");
        file.end_allocated_write();
        assert_eq!(release(&mut file), Some(Operation::SetLength));
    }

    #[test]
    fn contract_09_short_stretches_are_given_back_when_they_are_needed() {
        let mut file = empty();
        (file.size, file.disk_size) = (512 * PAGE, 512 * PAGE);
        file.space.add(0..512 * PAGE);
        (0..512).step_by(2).for_each(|page| file.holes.mark_written(page..page + 1));
        file.note_allocated(511 * PAGE..512 * PAGE);
        assert_eq!(file.last_unused(), None, "a split file");
        assert!(file.give_back_all());
        assert_eq!(file.last_unused(), Some(509 * PAGE..510 * PAGE), "the last is for a write");
        assert_eq!(release(&mut file), Some(Operation::Punch));
        assert!(!empty().give_back_all(), "nothing to give back");
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
        let huge = 1 << 50;
        assert_eq!(ahead(huge, huge, Some(100 << 20)), 800 << 20);
        assert_eq!(ahead(huge, huge, Some(0)), AHEAD_LEAST);
        assert_eq!(at_most(None), u64::MAX);
        assert_eq!(at_most(Some(1 << 20)), 64 << 20);
        assert_eq!(at_most(Some(4096)), RESERVE_LEAST);
    }
}
