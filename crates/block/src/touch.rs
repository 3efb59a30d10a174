//! Touch: whether any of the plugged bios may be adjacent, decided in a few nanoseconds per bio.
//!
//! Random I/O has no neighbours and should not pay for the search. So each bio marks the stretches
//! of its target that it covers, including its end, in a small table. A bio that finds a mark *may*
//! be adjacent to a plugged bio, and is compared with the plugged bios, latest first. The table is
//! hashed, so the mark may belong to another target or stretch; then the search finds nothing. A
//! mark is never missing where bios are adjacent.
//!
//! A mark is the number of the round, so that adding one to the round empties the table.

use alloc::boxed::Box;

use crate::bio::Bio;
use crate::hashed;

/// Number of marks: with 32 bios plugged, one batch in 16 is searched in vain.
const MARKS: usize = 8192;

/// Bytes of a stretch, as a power of two: 32 KiB.
const STRETCH: u32 = 15;

/// Stretches of a bio above which it is not marked and counts as adjacent.
const STRETCHES_MARKED: u64 = 64;

/// Marks of the plugged bios.
#[derive(Debug)]
pub(crate) struct Touch {
    marks: Box<[u8; MARKS]>,
    round: u8,
    /// Whether two plugged bios are adjacent, as far as known.
    touches: bool,
}

impl Touch {
    pub(crate) fn new() -> Self {
        Self { marks: Box::new([0; MARKS]), round: 1, touches: false }
    }

    /// Adds a bio that joins the plugged bios `held`.
    #[inline]
    pub(crate) fn add<'a, Held: Iterator<Item = &'a Bio>>(
        &mut self,
        bio: &Bio,
        held: impl FnOnce() -> Held,
    ) {
        if self.touches || !bio.operation.merges() {
            return;
        }
        debug_assert!(self.round != 0, "zero marks a stretch that no bio covers");
        let (first, last) = (bio.offset >> STRETCH, bio.end() >> STRETCH);
        let mut may_touch = false;
        if last - first < STRETCHES_MARKED {
            for stretch in first..=last {
                let mark = &mut self.marks[hashed::place::<MARKS>(bio.target.0, stretch)];
                may_touch |= *mark == self.round;
                *mark = self.round;
            }
        } else {
            // Large bios are few. After one, all bios are searched for neighbours, and no more
            // marks are set.
            self.touches = true;
        }
        if may_touch {
            self.touches |= held().any(|other| are_neighbours(bio, other));
        }
    }

    /// Returns whether two of the bios may be adjacent.
    #[inline]
    pub(crate) fn touches(&self) -> bool {
        self.touches
    }

    /// Forgets all bios, because the plug is empty.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.touches = false;
        self.round = self.round.wrapping_add(1);
        if self.round == 0 {
            self.marks.fill(0);
            self.round = 1;
        }
    }
}

impl Default for Touch {
    fn default() -> Self {
        Self::new()
    }
}

fn are_neighbours(one: &Bio, other: &Bio) -> bool {
    let is_alike =
        one.operation == other.operation && one.target == other.target && one.class == other.class;
    is_alike && (one.offset == other.end() || other.offset == one.end())
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use smallvec::smallvec;

    use super::*;
    use crate::bio::{Class, Frame, Operation, Segment, Source, Target};

    fn bio(operation: Operation, target: u32, offset: u64, length: u64) -> Bio {
        let segments = smallvec![Segment::frames(Frame(0), length as u32)];
        let (target, class, source) = (Target(target), Class::Waited, Source(0));
        Bio { operation, target, offset, length, segments, class, source, owner: 0 }
    }

    #[test]
    fn neighbours_are_never_missed() {
        let mut touch = Touch::new();
        for length in [1, 511, 4096, 1 << 15, (1 << 15) + 1, 1 << 20, 1 << 30] {
            for offset in [0, 4096, (1 << 15) - 4096, 1 << 15, 12345, 1 << 40] {
                let before = bio(Operation::Read, 3, offset, length);
                let after = bio(Operation::Read, 3, offset + length, 1);
                for (first, second) in [(&before, &after), (&after, &before)] {
                    touch.add(first, || [].into_iter());
                    touch.add(second, || [first].into_iter());
                    assert!(touch.touches(), "{length} at {offset}");
                    touch.clear();
                }
            }
        }
    }

    #[test]
    fn bios_with_gaps_do_not_touch() {
        let mut touch = Touch::new();
        let bios: Vec<Bio> =
            (0..128).map(|page| bio(Operation::Write, 0, (3 * page) << 12, 4096)).collect();
        for count in 0..bios.len() {
            touch.add(&bios[count], || bios[..count].iter());
        }
        assert!(!touch.touches());
    }

    #[test]
    fn operations_that_do_not_merge_are_ignored() {
        let mut touch = Touch::new();
        let first = bio(Operation::Discard, 0, 0, 4096);
        touch.add(&first, || [].into_iter());
        touch.add(&bio(Operation::Write, 0, 4096, 4096), || [&first].into_iter());
        assert!(!touch.touches());
    }
}
