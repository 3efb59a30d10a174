//! Space that was allocated for a file ahead of its data, and that must be given back if no data
//! comes.
//!
//! Beyond the end of the file such space is a leak after the last close. Below the end it splits
//! free space for nothing. A release gives both back. Space that cannot be given back now is
//! recorded, so that the next open does it.
//!
//! Invariants: the ranges are those of [`Space`]; a write whose space was allocated before ends
//! once.

use std::ops::Range;

use crate::space::Space;

/// Allocated space of one file.
#[derive(Debug, Default)]
pub(crate) struct Reserved {
    ranges: Space,
    /// Byte up to which a failed allocation may have left space.
    littered: u64,
    /// Set if space beyond the end could not be given back: the next open does it.
    leaves_space: bool,
    /// Writes in progress whose space was allocated before.
    allocated_writes: u64,
    /// Set if the next release gives back short ranges, too.
    gives_back_all: bool,
    below: Below,
}

/// Whether space is reserved in holes that the file had when it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Below {
    /// No, or the holes are not known.
    #[default]
    Never,
    /// Yes, but it is not given back: some of it may be its user's.
    Kept,
    /// Yes, and unused space is given back: they had none.
    GivenBack,
}

impl Reserved {
    pub(crate) fn ranges(&self) -> &Space {
        &self.ranges
    }

    pub(crate) fn below(&self) -> Below {
        self.below
    }

    pub(crate) fn set_below(&mut self, below: Below) {
        self.below = below;
    }

    pub(crate) fn gives_back_all(&self) -> bool {
        self.gives_back_all
    }

    pub(crate) fn leaves_space(&self) -> bool {
        self.leaves_space
    }

    /// Returns whether a write in progress relies on space allocated before.
    pub(crate) fn is_relied_on(&self) -> bool {
        self.allocated_writes > 0
    }

    /// Returns the allocated bytes beyond the end in the file system.
    pub(crate) fn beyond(&self, disk_size: u64) -> u64 {
        self.ranges.end().max(self.littered).saturating_sub(disk_size)
    }

    pub(crate) fn add(&mut self, bytes: Range<u64>) {
        self.ranges.add(bytes);
    }

    /// Records that space may have been left up to this byte.
    pub(crate) fn note_litter(&mut self, end: u64) {
        self.littered = self.littered.max(end);
    }

    pub(crate) fn begin_write(&mut self) {
        self.allocated_writes += 1;
    }

    pub(crate) fn end_write(&mut self) {
        let left = self.allocated_writes.checked_sub(1);
        self.allocated_writes = left.expect("a write with allocated space ends once");
    }

    /// Records that a write needs the space, so the next release gives back all of it.
    pub(crate) fn want_all(&mut self) {
        self.gives_back_all = true;
    }

    /// The file was cut. Space that was allocated beyond its new end is still there.
    pub(crate) fn cut(&mut self, length: u64) {
        self.keep_litter();
        self.ranges.cut(length);
    }

    /// Records the end of the ranges as littered, before the ranges are forgotten.
    pub(crate) fn keep_litter(&mut self) {
        self.note_litter(self.ranges.end());
    }

    /// The space beyond the end is being given back. Returns its bytes.
    pub(crate) fn give_back(&mut self, disk_size: u64) -> u64 {
        let bytes = self.beyond(disk_size);
        self.ranges.cut(disk_size);
        self.littered = 0;
        bytes
    }

    /// The unused space from this byte on is being given back.
    pub(crate) fn punch(&mut self, start: u64) {
        self.ranges.cut(start);
    }

    /// Records that space beyond the end stays for the next open to give back.
    pub(crate) fn leave(&mut self) {
        self.leaves_space = true;
    }

    /// A release has ended: nothing below the end is given back any later.
    pub(crate) fn end_release(&mut self) {
        self.ranges = Space::default();
        self.gives_back_all = false;
    }

    /// The file is closed: nothing is left to give back.
    pub(crate) fn forget(&mut self) {
        self.ranges = Space::default();
    }

    /// Asserts the invariants of this part.
    pub(crate) fn verify(&self) {
        self.ranges.verify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_allocated_beyond_the_end_is_not_forgotten_by_a_cut() {
        let mut reserved = Reserved::default();
        reserved.add(0..100);
        reserved.cut(40);
        reserved.verify();
        assert_eq!((reserved.ranges().end(), reserved.beyond(40)), (40, 60));
        assert_eq!((reserved.give_back(40), reserved.beyond(40)), (60, 0));
    }

    #[test]
    #[should_panic(expected = "ends once")]
    fn a_write_that_ends_twice_is_found() {
        Reserved::default().end_write();
    }
}
