//! Reservation of space before data is sent, and what a release gives back.
//!
//! Before the first page of a span is sent, the span is allocated in one call if the file is
//! becoming dense there. How much is reserved beyond the end is in `file/ahead.rs`; which space is
//! held is in `file/reserved.rs`.

use std::ops::Range;

use forebay_block::{Bio, Class, Errno, Moment};

use crate::file::{Below, CachedFile};
use crate::index::Chunk;
use crate::limits::{
    DENSE_ONE_IN, EXTENDING_PAGES, GAP_PAGES, GATHER_PAGES, PAGE, REGION_PAGES, RESERVE_PAGES,
};
use crate::space::{Reservation, ReservedFor};
use crate::writeback::flight::Flight;

impl CachedFile {
    /// Returns the space to allocate before a run that starts at `first` is sent.
    pub(crate) fn reservation(&mut self, first: u64, class: Class) -> Option<Reservation> {
        if !self.ahead.may_reserve() || self.lease.is_shared() {
            return None;
        }
        let origin = self.sizes.origin_pages();
        let is_hole = || self.reserved.below() != Below::Never && self.holes.is_zero(first);
        if first < origin && !is_hole() {
            return None;
        }
        if self.is_reserved_for(first) || self.ahead.is_paused() {
            return None;
        }
        if first < origin {
            return self.reservation_of_region(first);
        }
        let any = |_: u64, chunk: &Chunk| chunk.dirty;
        let lowest = self.index.next_dirty(origin, u64::MAX, any)?;
        let end = self.index.last_dirty(first, any)? + 1;
        let start = (lowest / GATHER_PAGES * GATHER_PAGES).max(origin);
        let dirty = self.index.count_dirty(start..u64::MAX);
        if end - start < RESERVE_PAGES || dirty * DENSE_ONE_IN < end - start {
            // Counting costs a step per 64 pages, so a sparse file is looked at again after as many
            // runs.
            self.ahead.pause(dirty / 64);
            return None;
        }
        // A declared length is reserved with it, unless most of it is empty.
        let declared = self.sizes.disk_size() / PAGE;
        if declared > end && dirty * DENSE_ONE_IN >= declared - start {
            return Some(self.at_once(first, start * PAGE..declared * PAGE, ReservedFor::Declared));
        }
        let growing = end * PAGE >= self.sizes.size() / PAGE * PAGE;
        // A small new file that a caller syncs is probably complete. Its one write allocates all of
        // it in one piece, and nothing has to be given back.
        let is_one_write = dirty == end && end <= GATHER_PAGES;
        if is_one_write && class == Class::Waited && growing && self.sizes.disk_size() == 0 {
            return None;
        }
        // Random pages of a new file reach to its end as well, but most pages below are missing.
        let is_stream = growing && dirty * 2 > end - lowest;
        let purpose = if is_stream { ReservedFor::Stream } else { ReservedFor::Dense };
        let beyond = if growing { self.ahead.beyond(self.sizes.size(), purpose) } else { 0 };
        Some(self.at_once(first, start * PAGE..end * PAGE + beyond, purpose))
    }

    /// The space of a region of a sparse file, if the region is becoming dense.
    fn reservation_of_region(&mut self, first: u64) -> Option<Reservation> {
        let start = first / REGION_PAGES * REGION_PAGES;
        let end = (start + REGION_PAGES).min(self.sizes.origin_pages());
        let dirty = self.index.count_dirty(start..end);
        // Zeroes that are written over gaps may take as much space as stays reserved.
        let one_in = match self.reserved.below() {
            Below::GivenBack => DENSE_ONE_IN,
            Below::Kept | Below::Never => GAP_PAGES,
        };
        if dirty * one_in < end - start || end - start < RESERVE_PAGES {
            self.ahead.pause(dirty / 64);
            return None;
        }
        Some(self.at_once(first, start * PAGE..end * PAGE, ReservedFor::Dense))
    }

    /// Returns whether the space of a run that starts at `first` is reserved. A run that moves the
    /// end must be covered as a whole: its part without reserved space would become an extent of
    /// its own, between those of other files.
    fn is_reserved_for(&mut self, first: u64) -> bool {
        let covers = |end| self.reserved.ranges().covers(&(first * PAGE..end * PAGE));
        if !covers(first + 1) {
            return false;
        }
        if first < self.sizes.inner_pages() {
            return true;
        }
        let any = |_: u64, chunk: &Chunk| chunk.dirty;
        let last = self.index.last_dirty(first, any).unwrap_or(first);
        covers((last + 1).min(first + EXTENDING_PAGES)) || !self.ahead.is_first_crossing(first)
    }

    /// The part of a span that is asked for at once: all of it, or the part for the run from
    /// `first` on if that is too much. The reservation says how much of the span is missing: a
    /// span that does not fit as a whole must not take all free space part by part.
    fn at_once(&self, first: u64, all: Range<u64>, purpose: ReservedFor) -> Reservation {
        let whole = self.reserved.ranges().missing(&all);
        let bytes = if all.end - all.start <= self.ahead.most() {
            all
        } else {
            let start = (first / GATHER_PAGES * GATHER_PAGES * PAGE).max(all.start);
            start..all.end.min(start + self.ahead.most())
        };
        Reservation { bytes, whole, purpose }
    }

    /// Makes the next release give back all unused reserved space, also short ranges, because a
    /// write needs it. Returns whether any space is reserved.
    pub fn give_back_all(&mut self) -> bool {
        let has_some = self.lease.is_exclusive()
            && (self.reserved.ranges().end() > 0 || self.reserved_beyond_end() > 0);
        if has_some {
            self.reserved.want_all();
        }
        has_some
    }

    /// Sets the maximum of bytes per reservation; see `space::at_most`.
    pub fn set_reserve_most(&mut self, bytes: u64) {
        self.ahead.set_most(bytes);
    }

    /// Records the time of a reservation, to measure how fast the file grows.
    pub fn note_reserved(&mut self, now: Moment) {
        self.ahead.note_reserved(self.sizes.size(), now);
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
        if self.ahead.refuse(errno) {
            self.note_litter(reservation.bytes.end);
        }
    }

    /// The last stretch below the end that was reserved, and where a whole request's worth was
    /// never written. A shorter one stays, for giving it back would split the file, unless its
    /// space is needed.
    pub(crate) fn last_unused(&self) -> Option<Range<u64>> {
        let end = self.sizes.disk_size() / PAGE;
        let start = match self.reserved.below() {
            Below::Kept => self.sizes.origin_pages(),
            Below::GivenBack | Below::Never => 0,
        };
        let least = if self.reserved.gives_back_all() { 1 } else { GATHER_PAGES };
        self.reserved.ranges().ranges().rev().find_map(|range| {
            let pages = (range.start / PAGE).max(start)..(range.end / PAGE).min(end);
            let run = self.holes.last_zero_run(pages, least)?;
            Some(run.start * PAGE..run.end * PAGE)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{Entry, Liberties, Origin};
    use crate::limits::RESERVE_LEAST;
    use crate::space::at_most;
    use crate::ticket::TicketKind;
    use crate::writeback::reason::Reason;
    use forebay_block::{Operation, Target};
    use proptest::prelude::*;

    proptest! {
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
        file.reserved.add(0..RESERVE_LEAST);
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
        file.sizes.set_length(512 * PAGE);
        file.reserved.add(0..512 * PAGE);
        (0..512).step_by(2).for_each(|page| file.holes.mark_written(page..page + 1));
        file.note_allocated(511 * PAGE..512 * PAGE);
        assert_eq!(file.last_unused(), None, "a split file");
        assert!(file.give_back_all());
        assert_eq!(file.last_unused(), Some(509 * PAGE..510 * PAGE), "the last is for a write");
        assert_eq!(release(&mut file), Some(Operation::Punch));
        assert!(!empty().give_back_all(), "nothing to give back");
    }
}
