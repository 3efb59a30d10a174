//! The null device: every request has ended when the doorbell returns, with all its bytes moved. There is no data.
//!
//! Why not the ring with no-ops: they cost a system call and a completion queue each, and what is measured over this
//! device is the way of a request itself. The price of a request here is two moves of sixteen bytes, and nothing is
//! allocated once the lists have grown to the depth used.
//!
//! A doorbell never waits: nothing is ever under way, so there is nothing to wait for. What a read "moved" into the
//! frames is what was there before.

use std::mem;

use forebay_block::limits::TAGS;
use forebay_block::{Bio, Completion, Device, Errno, Moment, Refused, Tag, Wait};

use crate::clock;

/// A device that ends everything at once and moves nothing.
#[derive(Debug)]
pub struct Null {
    staged: Vec<Completion>,
    completed: Vec<Completion>,
}

impl Null {
    /// A null device with room for every tag of a queue.
    #[must_use]
    pub fn new() -> Self {
        Self { staged: Vec::with_capacity(TAGS), completed: Vec::with_capacity(TAGS) }
    }
}

impl Default for Null {
    fn default() -> Self {
        Self::new()
    }
}

impl Device for Null {
    fn now(&mut self) -> Moment {
        clock::now()
    }

    /// Refuses nothing: what is staged is bounded by the tags.
    #[inline]
    fn prepare(&mut self, tag: Tag, request: &Bio) -> Result<(), Refused> {
        self.staged.push(Completion { tag, result: Ok(request.bytes()) });
        Ok(())
    }

    #[inline]
    fn doorbell(&mut self, _wait: Wait) -> Result<(), Errno> {
        if self.completed.is_empty() {
            mem::swap(&mut self.staged, &mut self.completed);
        } else {
            self.completed.append(&mut self.staged);
        }
        Ok(())
    }

    #[inline]
    fn reap(&mut self, completions: &mut Vec<Completion>) {
        completions.append(&mut self.completed);
    }
}

#[cfg(test)]
mod tests {
    use forebay_block::{Class, Frame, Operation, Segment, Segments, Source, Target};

    use super::*;

    fn bio(operation: Operation, length: u32) -> Bio {
        let segments: Segments = if operation.moves_bytes() {
            [Segment::frames(Frame(0), length)].into()
        } else {
            Segments::new()
        };
        Bio {
            operation,
            target: Target(9),
            offset: 0,
            length: u64::from(length),
            segments,
            class: Class::Waited,
            source: Source(0),
            owner: 0,
        }
    }

    #[test]
    fn what_was_staged_ends_at_the_doorbell_in_its_order() {
        let mut null = Null::new();
        let mut done = Vec::new();
        for (tag, operation) in
            [Operation::Read, Operation::FlushData, Operation::WriteFua].into_iter().enumerate()
        {
            null.prepare(Tag(u16::try_from(tag).unwrap()), &bio(operation, 4096)).unwrap();
            null.reap(&mut done);
            assert_eq!(done, [], "nothing reaches the device before the doorbell");
        }
        null.doorbell(Wait::Not).unwrap();
        null.prepare(Tag(3), &bio(Operation::Write, 100)).unwrap();
        null.doorbell(Wait::Something(None)).unwrap();
        null.reap(&mut done);
        let expected = [(0, 4096), (1, 0), (2, 4096), (3, 100)];
        assert_eq!(done, expected.map(|(tag, bytes)| Completion { tag: Tag(tag), result: Ok(bytes) }));
    }

    #[test]
    fn a_doorbell_with_nothing_to_wait_for_returns() {
        let mut null = Null::new();
        let start = null.now();
        null.doorbell(Wait::Something(None)).unwrap();
        assert!(null.now() >= start);
    }
}
