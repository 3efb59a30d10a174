//! When space is reserved ahead of data, and how much: the settings and the measured growth.
//!
//! The decision itself needs the pages and is in `reserve.rs`. The allocated ranges are in
//! `reserved.rs` beside this file.
//!
//! Invariants:
//! - [`Reserving::Off`] is final unless a new file is made;
//! - a reservation is at least two requests long.

use forebay_block::{Errno, Moment};

use crate::growth::Growth;
use crate::limits::{AHEAD_OF_FREE, GAP_PAGES, PAGE, RESERVE_LEAST, SCARCE_PAUSE};
use crate::space::{NO_SPACE, OVER_QUOTA, ReservedFor, ahead};

/// Whether space may be reserved ahead of data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reserving {
    /// Reserve space in files that become dense.
    Adaptive,
    /// As `Adaptive`, and this many bytes beyond the end of a file that grows.
    Ahead(u64),
    /// Reserve nothing for now, because the knob says so.
    Paused,
    /// Reserve nothing ever in this file: it could not be given back, or the file system refused.
    Off,
}

/// Holes between two dirty runs that may be filled with zeroes, to write both runs in one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gaps {
    /// All known holes, which allocates space for them.
    OverHoles,
    /// Only known holes with reserved space.
    OverReserved,
    /// None.
    Unfilled,
}

/// Settings for space ahead of data, of one file.
#[derive(Debug)]
pub(crate) struct Ahead {
    reserving: Reserving,
    /// Runs still to be sent before the file is examined again.
    pause: u64,
    /// First page of the last run that went beyond the reserved space.
    crossing: Option<u64>,
    /// Maximum of bytes per reservation.
    most: u64,
    /// Free bytes of the file system.
    free_bytes: u64,
    growth: Growth,
    gaps: Gaps,
    /// Longest gap that is written along, in pages.
    gap_pages: u64,
    /// Whether a write of a page that has data needs no space.
    rewrites_in_place: bool,
    /// Most pages of a request, and of one that moves the end of the file.
    request_pages: u64,
    extending_pages: u64,
}

impl Default for Ahead {
    fn default() -> Self {
        Self {
            reserving: Reserving::Adaptive,
            pause: 0,
            crossing: None,
            most: u64::MAX,
            free_bytes: 0,
            growth: Growth::default(),
            gaps: Gaps::OverHoles,
            gap_pages: GAP_PAGES,
            rewrites_in_place: false,
            request_pages: u64::MAX,
            extending_pages: u64::MAX,
        }
    }
}

impl Ahead {
    pub(crate) fn set_reserving(&mut self, reserving: Reserving) {
        self.reserving = reserving;
    }

    /// Sets whether space may be reserved, unless it is off for good.
    pub(crate) fn change_reserving(&mut self, reserving: Reserving) {
        if self.reserving != Reserving::Off {
            self.reserving = reserving;
        }
    }

    pub(crate) fn set_most(&mut self, bytes: u64) {
        self.most = bytes.max(RESERVE_LEAST) / PAGE * PAGE;
    }

    pub(crate) fn most(&self) -> u64 {
        self.most
    }

    pub(crate) fn set_free_bytes(&mut self, free_bytes: u64) {
        self.free_bytes = free_bytes;
    }

    pub(crate) fn set_gaps(&mut self, gaps: Gaps) {
        self.gaps = gaps;
    }

    pub(crate) fn set_gap_pages(&mut self, pages: u64) {
        debug_assert!(pages <= GAP_PAGES, "the space for such gaps is not kept free");
        self.gap_pages = pages;
    }

    pub(crate) fn gap_pages(&self) -> u64 {
        self.gap_pages
    }

    /// Returns the most clean pages of a gap that are written along. At half the price of a request
    /// they save nearly as much time, and write far fewer bytes.
    pub(crate) fn clean_pages(&self) -> u64 {
        self.gap_pages / 2
    }

    pub(crate) fn set_rewrites_in_place(&mut self, in_place: bool) {
        self.rewrites_in_place = in_place;
    }

    pub(crate) fn rewrites_in_place(&self) -> bool {
        self.rewrites_in_place
    }

    pub(crate) fn set_request_pages(&mut self, pages: u64, extending: u64) {
        debug_assert!(pages > 0 && extending > 0, "a request has a page");
        (self.request_pages, self.extending_pages) = (pages, extending);
    }

    /// Returns the smaller of `most` and the pages that a request may have now.
    pub(crate) fn request_pages(&self, most: u64, is_extending: bool) -> u64 {
        most.min(if is_extending { self.extending_pages } else { self.request_pages })
    }

    /// Returns whether gaps between dirty runs may be filled with zeroes at all.
    pub(crate) fn fills_gaps(&self) -> bool {
        self.gaps != Gaps::Unfilled
    }

    /// Returns whether zeroes may be written over holes without reserved space. Not if the holes of
    /// the file may not fit into the free space: their zeroes would take the space of later writes.
    pub(crate) fn takes_holes(&self, size: u64) -> bool {
        self.gaps == Gaps::OverHoles && size <= self.free_bytes
    }

    /// Records the size of the file at the time of a reservation.
    pub(crate) fn note_reserved(&mut self, size: u64, now: Moment) {
        self.growth.note(size, now);
    }

    /// Returns whether space may be reserved at all.
    pub(crate) fn may_reserve(&self) -> bool {
        matches!(self.reserving, Reserving::Adaptive | Reserving::Ahead(_))
    }

    /// Returns whether this run is in the pause before the file is examined again.
    pub(crate) fn is_paused(&mut self) -> bool {
        let was_paused = self.pause > 0;
        self.pause -= u64::from(was_paused);
        was_paused
    }

    /// Returns whether a run that goes beyond the reserved space, and begins with this page, is
    /// seen for the first time. Otherwise a run that grows while its space is reserved might be
    /// delayed again and again.
    pub(crate) fn is_first_crossing(&mut self, first: u64) -> bool {
        self.crossing.replace(first) != Some(first)
    }

    /// Skips this many runs.
    pub(crate) fn pause(&mut self, runs: u64) {
        self.pause = runs;
    }

    /// Returns the bytes to reserve beyond the end of a growing file of this size.
    pub(crate) fn beyond(&self, size: u64, purpose: ReservedFor) -> u64 {
        match self.reserving {
            Reserving::Ahead(bytes) => fixed(bytes, self.free_bytes),
            _ => ahead(size, self.free_bytes, self.growth.bytes_per_second(), purpose),
        }
    }

    /// Handles a refused reservation. Returns whether some of its space may have been allocated.
    pub(crate) fn refuse(&mut self, errno: Errno) -> bool {
        match errno {
            // There may be space again later. Space allocated before it ran out is still there.
            NO_SPACE | OVER_QUOTA => self.pause = SCARCE_PAUSE,
            // The reservation was not tried.
            Errno::WOULD_BLOCK => self.pause = SCARCE_PAUSE,
            // Data can be written without a reservation; the write reports a lack of space.
            _ => self.reserving = Reserving::Off,
        }
        matches!(errno, NO_SPACE | OVER_QUOTA)
    }

    /// Asserts the invariants of this part.
    pub(crate) fn verify(&self) {
        assert!(self.most >= RESERVE_LEAST, "a reservation is too short: {}", self.most);
    }
}

/// Returns the part of a fixed number of bytes that the file system has room for.
fn fixed(bytes: u64, free_bytes: u64) -> u64 {
    bytes.min(free_bytes / AHEAD_OF_FREE) / PAGE * PAGE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contract_09_a_fixed_number_is_limited_by_the_free_space() {
        assert_eq!(fixed(64 << 20, 1 << 40), 64 << 20);
        assert_eq!(fixed(64 << 20, 1 << 20), 8192);
    }

    #[test]
    fn contract_09_a_refusal_pauses_or_ends_reservations() {
        let mut ahead = Ahead::default();
        assert!(ahead.refuse(NO_SPACE) && ahead.refuse(OVER_QUOTA));
        assert!(!ahead.refuse(Errno::WOULD_BLOCK) && ahead.may_reserve());
        assert_eq!((0..100).filter(|_| ahead.is_paused()).count() as u64, SCARCE_PAUSE);
        assert!(!ahead.refuse(Errno::IO));
        ahead.change_reserving(Reserving::Adaptive);
        assert!(!ahead.may_reserve(), "off for good");
        ahead.verify();
    }
}
