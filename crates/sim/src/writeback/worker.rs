//! Worker: converts the blocks of a file when their I/O has ended, all that have ended at once,
//! neighbours together.

use std::collections::VecDeque;

use super::file::Piece;
use super::space::Address;

/// Step of a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// No I/O has ended.
    Idle,
    /// It was woken and is about to begin.
    Waking,
    /// It waits for the lock of a group.
    Locking(usize),
    /// It holds that lock and converts.
    Converting(usize),
}

/// The worker of one file.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) step: Step,
    /// Pieces with I/O that ended since the last batch.
    ended: Vec<(Piece, Address)>,
    /// Pieces that it converts now.
    batch: VecDeque<(Piece, Address)>,
}

impl Worker {
    /// Creates an idle worker.
    pub(super) fn new() -> Self {
        Self { step: Step::Idle, ended: Vec::new(), batch: VecDeque::new() }
    }

    /// Adds a piece with I/O that has ended, and its place.
    pub(super) fn put(&mut self, piece: Piece, place: Address) {
        self.ended.push((piece, place));
    }

    /// Returns the group of the next piece to convert.
    pub(super) fn next(&mut self) -> Option<usize> {
        if self.batch.is_empty() {
            self.ended.sort_unstable_by_key(|(piece, _)| piece.first);
            for (piece, place) in self.ended.drain(..) {
                match self.batch.back_mut() {
                    Some((last, start))
                        if last.first + last.pages == piece.first
                            && start.plus(last.pages) == place =>
                    {
                        last.pages += piece.pages;
                    }
                    _ => self.batch.push_back((piece, place)),
                }
            }
        }
        self.batch.front().map(|(_, place)| place.group())
    }

    /// Removes the piece that was converted.
    pub(super) fn take(&mut self) -> Piece {
        self.batch.pop_front().expect("a converted piece is in the batch").0
    }

    /// Returns whether no piece is left to convert.
    pub(super) fn is_empty(&self) -> bool {
        self.ended.is_empty() && self.batch.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writeback::space::Space;

    #[test]
    fn neighbours_in_file_and_device_are_one_conversion() {
        let (mut worker, mut space) = (Worker::new(), Space::new(2));
        let places = [space.allocate(0, 1), space.allocate(0, 1), space.allocate(1, 1)];
        for (first, place) in [(5, places[1]), (4, places[0]), (6, places[2])] {
            worker.put(Piece { file: 0, first, pages: 1 }, place);
        }
        assert_eq!(
            (worker.next(), worker.take()),
            (Some(0), Piece { file: 0, first: 4, pages: 2 })
        );
        assert_eq!(
            (worker.next(), worker.take()),
            (Some(1), Piece { file: 0, first: 6, pages: 1 })
        );
        assert_eq!(worker.next(), None);
        assert!(worker.is_empty());
    }
}
