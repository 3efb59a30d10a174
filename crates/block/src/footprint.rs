//! Footprint: the range that a bio touches. It decides which two bios must keep their order.
//!
//! The kernel keeps no order between requests in flight, so two that must keep their order are
//! never in flight together. A footprint is small and copied, so that a batch is compared with all
//! requests in flight in one walk over an array.
//!
//! A flush touches nothing: it covers the bios that ended before it was submitted, so it waits for
//! none.

use crate::bio::{Bio, Operation, Target};

/// Range of a target that a bio touches: the whole target if the bio changes its size or the mode
/// of its descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Footprint {
    target: Target,
    start: u64,
    end: u64,
    manner: Manner,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Manner {
    Reads,
    Changes,
}

impl Footprint {
    /// Footprint of no bio. It conflicts with nothing.
    pub const NONE: Footprint = Footprint::nothing_of(Target(0));

    /// Returns the footprint of a bio.
    #[must_use]
    #[inline]
    pub fn of(bio: &Bio) -> Self {
        let (target, start, end) = (bio.target, bio.offset, bio.end());
        match bio.operation {
            Operation::FlushData | Operation::FlushAll | Operation::FlushDirectory => {
                Self::nothing_of(target)
            }
            Operation::Read => Self { target, start, end, manner: Manner::Reads },
            Operation::Write
            | Operation::WriteFua
            | Operation::WriteZeroes
            | Operation::Discard
            | Operation::Allocate
            | Operation::Punch => Self { target, start, end, manner: Manner::Changes },
            Operation::WriteBuffered | Operation::SetLength => {
                Self { target, start: 0, end: u64::MAX, manner: Manner::Changes }
            }
        }
    }

    /// Returns the target.
    #[must_use]
    pub fn target(self) -> Target {
        self.target
    }

    /// Returns whether the bio changes the range.
    #[must_use]
    pub fn changes(self) -> bool {
        self.manner == Manner::Changes
    }

    /// Returns the first byte and the first byte after the range. The range is empty if the end is
    /// not above the start.
    #[must_use]
    pub fn range(self) -> (u64, u64) {
        (self.start, self.end)
    }

    /// Returns whether two bios must keep their order and must not be in flight together.
    #[must_use]
    pub fn conflicts(self, other: Footprint) -> bool {
        let overlaps = self.start < other.end && other.start < self.end;
        let both_read = self.manner == Manner::Reads && other.manner == Manner::Reads;
        overlaps && self.target == other.target && !both_read
    }

    /// Returns an empty range. It ends before it begins, so it overlaps no range, not even the
    /// whole target.
    const fn nothing_of(target: Target) -> Self {
        Self { target, start: u64::MAX, end: 0, manner: Manner::Reads }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bio::{Class, Segments, Source};

    fn footprint(operation: Operation, target: u32, offset: u64, length: u64) -> Footprint {
        let (target, class, source, segments) =
            (Target(target), Class::Waited, Source(0), Segments::new());
        Footprint::of(&Bio { operation, target, offset, length, segments, class, source, owner: 0 })
    }

    #[test]
    fn ranges_conflict_only_where_they_overlap_and_one_changes() {
        let write = footprint(Operation::Write, 1, 4096, 4096);
        assert!(write.conflicts(footprint(Operation::Read, 1, 0, 4097)));
        assert!(!write.conflicts(footprint(Operation::Read, 1, 0, 4096)));
        assert!(!write.conflicts(footprint(Operation::Write, 2, 4096, 4096)));
        let read = footprint(Operation::Read, 1, 0, 8192);
        assert!(!read.conflicts(read));
    }

    #[test]
    fn a_new_size_conflicts_with_all_of_its_target_but_flushes() {
        let size = footprint(Operation::SetLength, 1, 1 << 40, 0);
        assert!(size.conflicts(footprint(Operation::Read, 1, 0, 1)));
        assert!(!size.conflicts(footprint(Operation::FlushAll, 1, 0, 0)));
        assert!(!size.conflicts(footprint(Operation::SetLength, 2, 0, 0)));
        assert!(!size.conflicts(Footprint::NONE));
    }
}
