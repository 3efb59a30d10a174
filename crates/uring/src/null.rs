//! The null device: every request has ended when the doorbell returns, with all its bytes moved.
//! There is no data.
//!
//! Why not the ring with no-ops: they cost a system call and a completion queue each, and this
//! device measures the path of a request itself. The price of a request here is one completion
//! written; the list they are in is exchanged for the reaper's empty one, and nothing is allocated
//! once both have grown to the depth used.
//!
//! A doorbell never waits: nothing is ever under way, so there is nothing to wait for. A read
//! leaves the frames as they were.

use std::mem;

use forebay_block::limits::TAGS;
use forebay_block::{Bio, Completion, Device, Errno, Moment, Refused, Tag, Wait};

use crate::clock;

/// Device that completes every request at once and transfers nothing.
#[derive(Debug)]
pub struct Null {
    /// Completed requests, and behind them the staged ones.
    completions: Vec<Completion>,
    /// How many have completed.
    rung: usize,
}

impl Null {
    /// Creates a null device with room for every tag of a queue.
    #[must_use]
    pub fn new() -> Self {
        Self { completions: Vec::with_capacity(TAGS), rung: 0 }
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

    /// Refuses nothing: the tags bound the staged requests.
    #[inline]
    fn prepare(&mut self, tag: Tag, request: &Bio) -> Result<(), Refused> {
        self.completions.push(Completion { tag, result: Ok(request.bytes()) });
        Ok(())
    }

    #[inline]
    fn doorbell(&mut self, _wait: Wait) -> Result<(), Errno> {
        self.rung = self.completions.len();
        Ok(())
    }

    #[inline]
    fn reap(&mut self, completions: &mut Vec<Completion>) {
        if completions.is_empty() && self.rung == self.completions.len() {
            mem::swap(&mut self.completions, completions);
        } else {
            completions.extend(self.completions.drain(..self.rung));
        }
        self.rung = 0;
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
        let ended = |ends: &[(u16, u64)]| -> Vec<Completion> {
            ends.iter()
                .map(|&(tag, bytes)| Completion { tag: Tag(tag), result: Ok(bytes) })
                .collect()
        };
        null.doorbell(Wait::Not).unwrap();
        null.prepare(Tag(3), &bio(Operation::Write, 100)).unwrap();
        null.reap(&mut done);
        assert_eq!(
            done,
            ended(&[(0, 4096), (1, 0), (2, 4096)]),
            "what was staged since is not among them"
        );
        null.doorbell(Wait::Something(None)).unwrap();
        null.reap(&mut done);
        assert_eq!(done, ended(&[(0, 4096), (1, 0), (2, 4096), (3, 100)]), "behind what was there");
        done.clear();
        null.reap(&mut done);
        assert_eq!(done, []);
    }

    #[test]
    fn a_doorbell_with_nothing_to_wait_for_returns() {
        let mut null = Null::new();
        let start = null.now();
        null.doorbell(Wait::Something(None)).unwrap();
        assert!(null.now() >= start);
    }
}
