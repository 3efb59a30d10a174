//! Bios of direct files that wait for room in the queue. Files take turns, by bytes.
//!
//! Bios of one file leave first in, first out, so overlapping ones keep their order. A turn has the
//! bytes of one large request. So a file with thousands of waiting bios delays no other file by
//! more than that. Flushes go first: they cover completed writes and wait for nothing. Pure: no
//! time, no device.

use std::collections::VecDeque;

use forebay_block::Bio;
use forebay_block::limits::{PAGE, REQUEST_BYTES};

/// Waiting bios.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    flushes: VecDeque<Bio>,
    /// Lines by the number of their target.
    lines: Vec<Line>,
    /// Lines that are not empty, in the order of their turns.
    order: VecDeque<usize>,
}

#[derive(Debug, Default)]
struct Line {
    bios: VecDeque<Bio>,
    /// Bytes left of its turn.
    left: u64,
}

impl Turns {
    /// Appends a bio to the line of its file.
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

    /// Appends a flush, which goes before all other bios.
    pub(crate) fn push_flush(&mut self, bio: Bio) {
        self.flushes.push_back(bio);
    }

    /// Removes and returns the next bio.
    pub(crate) fn pop(&mut self) -> Option<Bio> {
        if let Some(flush) = self.flushes.pop_front() {
            return Some(flush);
        }
        let number = *self.order.front()?;
        let line = &mut self.lines[number];
        let bio = line.bios.pop_front().expect("a line in the order is not empty");
        // A bio without bytes uses up part of the turn, too.
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
