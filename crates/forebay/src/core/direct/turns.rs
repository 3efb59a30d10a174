//! Bios of direct files that wait for room in the queue: files take turns, by bytes.
//!
//! Within a file first in, first out: what overlaps keeps its order. Between files a turn is one
//! large request's worth of bytes, so who has thousands of bios waiting holds nobody up by more
//! than that. Flushes, which cover what has ended and wait for nothing, go first. Pure: no time, no
//! device.

use std::collections::VecDeque;

use forebay_block::Bio;
use forebay_block::limits::{PAGE, REQUEST_BYTES};

/// The bios that wait.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    flushes: VecDeque<Bio>,
    /// By target's number.
    lines: Vec<Line>,
    /// Lines with something in them, whose turn it is first.
    order: VecDeque<usize>,
}

#[derive(Debug, Default)]
struct Line {
    bios: VecDeque<Bio>,
    /// Bytes of its turn that are left.
    left: u64,
}

impl Turns {
    /// Puts a bio at the end of its file's line.
    pub(crate) fn push(&mut self, bio: Bio) {
        let number = bio.target.0 as usize;
        if self.lines.len() <= number {
            self.lines.resize_with(number + 1, Line::default);
        }
        let line = &mut self.lines[number];
        if line.bios.is_empty() {
            line.left = REQUEST_BYTES;
            self.order.push_back(number);
        }
        line.bios.push_back(bio);
    }

    /// Puts a flush before all else.
    pub(crate) fn push_flush(&mut self, bio: Bio) {
        self.flushes.push_back(bio);
    }

    /// The next one.
    pub(crate) fn pop(&mut self) -> Option<Bio> {
        if let Some(flush) = self.flushes.pop_front() {
            return Some(flush);
        }
        let number = *self.order.front()?;
        let line = &mut self.lines[number];
        let bio = line.bios.pop_front().expect("a line in the order has something in it");
        // One without bytes is not for nothing either.
        line.left = line.left.saturating_sub(bio.length.max(PAGE as u64));
        if line.bios.is_empty() || line.left == 0 {
            line.left = REQUEST_BYTES;
            self.order.pop_front();
            if !line.bios.is_empty() {
                self.order.push_back(number);
            }
        }
        Some(bio)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.flushes.is_empty() && self.order.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use forebay_block::{Class, Operation, Segments, Source, Target};

    use super::*;

    fn bio(operation: Operation, target: u32, length: u64, owner: u64) -> Bio {
        let (source, target) = (Source(target), Target(target));
        let (class, segments) = (Class::Waited, Segments::new());
        Bio { operation, target, offset: 0, length, segments, class, source, owner }
    }

    #[test]
    fn contract_15_files_take_turns_by_bytes_and_keep_their_order() {
        let mut turns = Turns::default();
        for owner in 0..4 {
            turns.push(bio(Operation::Write, 7, REQUEST_BYTES, owner));
        }
        for owner in 10..14 {
            turns.push(bio(Operation::Read, 2, REQUEST_BYTES / 2, owner));
        }
        turns.push(bio(Operation::Read, 3, 1, 20));
        turns.push_flush(bio(Operation::FlushData, 5, 0, 30));
        let order: Vec<u64> = std::iter::from_fn(|| turns.pop().map(|bio| bio.owner)).collect();
        assert_eq!(order, [30, 0, 10, 11, 20, 1, 12, 13, 2, 3]);
        assert!(turns.is_empty());
    }
}
