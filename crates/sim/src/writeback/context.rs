//! A writeback context: its files in turn, one visit each, its plug, and its present step.

use std::collections::VecDeque;

use super::file::Piece;
use super::model::Merge;
use super::space::Address;

/// Maximum of pieces in a plug.
const PLUG: usize = 32;

/// Maximum of pages per request: 512 KiB.
const LARGEST: u32 = 128;

/// Step of a context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// No file of it is dirty.
    Idle,
    /// It was woken and is about to continue.
    Waking,
    /// It gathers the pages of a piece.
    Gathering,
    /// It waits for the lock of a group.
    Locking(usize),
    /// It holds that lock and allocates.
    Allocating(usize),
    /// The device has no room.
    Blocked,
}

/// Request to the device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Request {
    pub(super) start: Address,
    pub(super) pages: u32,
    pub(super) pieces: Vec<Piece>,
}

/// One writeback context.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) step: Step,
    /// The files bound to it.
    files: Vec<usize>,
    next: usize,
    /// Pieces left of the present visit.
    pub(super) visit: VecDeque<Piece>,
    plug: Vec<Request>,
    plugged: usize,
    /// Requests ready for the device.
    pub(super) ready: VecDeque<Request>,
}

impl Context {
    /// Creates an idle context with these files.
    pub(super) fn new(files: Vec<usize>) -> Self {
        Self {
            step: Step::Idle,
            files,
            next: 0,
            visit: VecDeque::new(),
            plug: Vec::new(),
            plugged: 0,
            ready: VecDeque::new(),
        }
    }

    /// Returns its next dirty file.
    pub(super) fn next_file(&mut self, is_dirty: impl Fn(usize) -> bool) -> Option<usize> {
        for _ in 0..self.files.len() {
            let file = self.files[self.next];
            self.next = (self.next + 1) % self.files.len();
            if is_dirty(file) {
                return Some(file);
            }
        }
        None
    }

    /// Adds a piece with its blocks to the plug. It joins the request before it if they are
    /// adjacent. A full plug is unplugged.
    pub(super) fn plug(&mut self, piece: Piece, start: Address, merge: Merge) {
        let before = self.plug.last_mut().filter(|_| merge == Merge::On);
        match before {
            Some(last)
                if last.start.plus(last.pages) == start && last.pages + piece.pages <= LARGEST =>
            {
                last.pages += piece.pages;
                last.pieces.push(piece);
            }
            _ => self.plug.push(Request { start, pages: piece.pages, pieces: vec![piece] }),
        }
        self.plugged += 1;
        if self.plugged == PLUG {
            self.unplug();
        }
    }

    /// Makes the plugged requests ready for the device. Returns whether any request is ready.
    pub(super) fn unplug(&mut self) -> bool {
        self.plugged = 0;
        self.ready.extend(self.plug.drain(..));
        !self.ready.is_empty()
    }

    /// Returns whether it holds no piece.
    pub(super) fn is_empty(&self) -> bool {
        self.visit.is_empty() && self.plug.is_empty() && self.ready.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writeback::space::Space;

    fn piece(first: u32, pages: u32) -> Piece {
        Piece { file: 0, first, pages }
    }

    #[test]
    fn pieces_adjacent_on_the_device_are_one_request_at_any_offset() {
        let (mut context, mut space) = (Context::new(vec![0]), Space::new(2));
        for (first, group) in [(7, 0), (3, 0), (4, 1), (0, 0)] {
            let start = space.allocate(group, 1);
            context.plug(piece(first, 1), start, Merge::On);
        }
        assert!(context.unplug());
        let pages: Vec<_> = context.ready.iter().map(|request| request.pages).collect();
        assert_eq!(pages, [2, 1, 1], "a piece merges only with the one before it");
        context.ready.clear();
        for first in 0..2 {
            context.plug(piece(first, 1), space.allocate(0, 1), Merge::Off);
        }
        assert!(context.unplug());
        assert_eq!(context.ready.len(), 2);
    }

    #[test]
    fn a_plug_and_a_request_have_bounds() {
        let (mut context, mut space) = (Context::new(vec![0]), Space::new(1));
        for first in 0..PLUG as u32 {
            assert!(context.ready.is_empty());
            context.plug(piece(first * 100, 100), space.allocate(0, 100), Merge::On);
        }
        assert_eq!(context.ready.len(), PLUG, "two of 100 pages are too large");
    }

    #[test]
    fn files_are_visited_in_turn() {
        let mut context = Context::new(vec![4, 5, 6]);
        let order: Vec<_> = (0..4).map(|_| context.next_file(|file| file != 5)).collect();
        assert_eq!(order, [Some(4), Some(6), Some(4), Some(6)]);
        assert_eq!(context.next_file(|_| false), None);
        assert_eq!(Context::new(Vec::new()).next_file(|_| true), None);
    }
}
