//! A lane: the operations of one direct file, and which of them may start.
//!
//! The queue keeps bios that overlap in the order they came. What it cannot know is that a write of
//! part of a block is two of them, a read and a write, and nothing may come between: so the blocks
//! of such a write are held until its write is in the queue, and who overlaps them waits here, in
//! order. Held, too, is everything while the length is set, and the end of the file while a request
//! moves it: there the file system serves one at a time, and more of them would only stand in its
//! way. What touches in one pass moves the end together.
//!
//! A sync covers what came before it and waits for nothing that comes after: operations are counted
//! in epochs, which a sync closes. Pure: no time, no device.

use std::collections::VecDeque;
use std::ops::Range;

use forebay_block::limits::REQUEST_BYTES;

use crate::core::direct::shape::Span;
use crate::core::limits::GATE_WINDOW;

/// What an operation does to its file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Step {
    /// Whole blocks.
    pub(crate) blocks: Range<u64>,
    pub(crate) manner: Manner,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Manner {
    Reads,
    /// Bytes, whole blocks or not.
    Writes(Span),
    /// The length, and so everything.
    Sets,
}

impl Step {
    fn changes(&self) -> bool {
        self.manner != Manner::Reads
    }

    fn conflicts(&self, other: &Step) -> bool {
        overlap(&self.blocks, &other.blocks) && (self.changes() || other.changes())
    }

    /// Where it moves the end of a file of `size` bytes to.
    fn end_beyond(&self, size: u64) -> Option<u64> {
        match self.manner {
            Manner::Writes(span) => Some(span.end()).filter(|end| *end > size),
            _ => None,
        }
    }

    fn is_whole(&self) -> bool {
        matches!(self.manner, Manner::Writes(span) if span.offset == self.blocks.start && span.end() == self.blocks.end)
    }
}

/// The operations of one file; `T` is what stands for one.
#[derive(Debug)]
pub(crate) struct Lane<T> {
    size: u64,
    waiting: VecDeque<(Step, T)>,
    /// Blocks that nobody else may touch, and by whom they are held.
    held: Vec<(u64, Range<u64>)>,
    extension: Option<Extension>,
    epochs: VecDeque<Epoch<T>>,
    /// Number of the first epoch.
    first_epoch: u64,
}

/// Writes on their way that move the end of the file.
#[derive(Clone, Copy, Debug)]
struct Extension {
    pass: u64,
    end: u64,
    bytes: u64,
    writes: u32,
}

#[derive(Debug)]
struct Epoch<T> {
    /// Changes of it that have not ended.
    open: u64,
    /// Who waits for them.
    closers: Vec<T>,
}

impl<T> Epoch<T> {
    fn new() -> Self {
        Self { open: 0, closers: Vec::new() }
    }
}

impl<T> Lane<T> {
    pub(crate) fn new(size: u64) -> Self {
        let epochs = VecDeque::from([Epoch::new()]);
        Self {
            size,
            waiting: VecDeque::new(),
            held: Vec::new(),
            extension: None,
            epochs,
            first_epoch: 0,
        }
    }

    /// Bytes in the file, as far as writes have ended.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The size is another.
    pub(crate) fn set_size(&mut self, size: u64) {
        self.size = size;
    }

    /// A change has come; says the epoch to end it in.
    pub(crate) fn open(&mut self) -> u64 {
        self.epochs.back_mut().expect("there is always one").open += 1;
        self.first_epoch + self.epochs.len() as u64 - 1
    }

    /// A change has ended; who waited for it alone is appended.
    pub(crate) fn close(&mut self, epoch: u64, ready: &mut Vec<T>) {
        debug_assert!(epoch >= self.first_epoch, "an epoch ends once");
        let index = usize::try_from(epoch - self.first_epoch).expect("few epochs are open");
        debug_assert!(self.epochs[index].open > 0, "a change ends once");
        self.epochs[index].open -= 1;
        self.tell(ready);
    }

    /// Somebody waits for every change that came before.
    pub(crate) fn wait_for_all(&mut self, closer: T, ready: &mut Vec<T>) {
        self.epochs.back_mut().expect("there is always one").closers.push(closer);
        self.epochs.push_back(Epoch::new());
        self.tell(ready);
    }

    fn tell(&mut self, ready: &mut Vec<T>) {
        while self.epochs.len() > 1 && self.epochs[0].open == 0 {
            ready.append(&mut self.epochs.pop_front().expect("more than one").closers);
            self.first_epoch += 1;
        }
    }

    /// An operation has come: given back where it may start now.
    pub(crate) fn admit(&mut self, step: Step, operation: T, pass: u64) -> Option<T> {
        let is_behind = self.waiting.len() >= GATE_WINDOW
            || self.waiting.iter().any(|(first, _)| first.conflicts(&step));
        if is_behind || !self.may_start(&step, pass) {
            self.waiting.push_back((step, operation));
            return None;
        }
        self.note_start(&step, pass);
        Some(operation)
    }

    /// An operation has come that may not start now, whatever else is on its way.
    pub(crate) fn wait(&mut self, step: Step, operation: T) {
        self.waiting.push_back((step, operation));
    }

    /// The first of those that wait, in order, that may start now.
    pub(crate) fn next(&mut self, pass: u64) -> Option<T> {
        let window = self.waiting.len().min(GATE_WINDOW);
        let place = (0..window).find(|&place| {
            let step = &self.waiting[place].0;
            self.may_start(step, pass)
                && !self.waiting.range(..place).any(|(first, _)| first.conflicts(step))
        })?;
        let (step, operation) = self.waiting.remove(place).expect("just found there");
        self.note_start(&step, pass);
        Some(operation)
    }

    /// Nobody touches these blocks until they are released.
    pub(crate) fn hold(&mut self, holder: u64, blocks: Range<u64>) {
        let is_free = !self.held.iter().any(|(_, held)| overlap(held, &blocks));
        debug_assert!(is_free, "blocks are held by one write at a time");
        self.held.push((holder, blocks));
    }

    pub(crate) fn release(&mut self, holder: u64) {
        self.held.retain(|(by, _)| *by != holder);
    }

    /// A write that moved the end has ended, well or not; true for the last of those that did so
    /// together.
    pub(crate) fn end_extension(&mut self) -> bool {
        let extension = self.extension.as_mut().expect("what moves the end is counted");
        debug_assert!(extension.writes > 0, "a write ends once");
        extension.writes -= 1;
        let is_last = extension.writes == 0;
        if is_last {
            self.extension = None;
        }
        is_last
    }

    fn may_start(&self, step: &Step, pass: u64) -> bool {
        if self.held.iter().any(|(_, blocks)| overlap(blocks, &step.blocks)) {
            return false;
        }
        let Some(end) = step.end_beyond(self.size) else { return true };
        match self.extension {
            None => true,
            Some(extension) => {
                extension.pass == pass
                    && step.is_whole()
                    && step.blocks.start == extension.end
                    && extension.bytes + (end - step.blocks.start) <= REQUEST_BYTES
            }
        }
    }

    fn note_start(&mut self, step: &Step, pass: u64) {
        let Some(end) = step.end_beyond(self.size) else { return };
        let before = self.extension.map_or((0, 0), |extension| (extension.bytes, extension.writes));
        let bytes = before.0 + (end - step.blocks.start);
        self.extension = Some(Extension { pass, end, bytes, writes: before.1 + 1 });
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 512;

    fn write(offset: u64, length: u64) -> Step {
        let span = Span { offset, length, block: BLOCK };
        Step { blocks: span.blocks(), manner: Manner::Writes(span) }
    }

    fn read(offset: u64, length: u64) -> Step {
        Step { manner: Manner::Reads, ..write(offset, length) }
    }

    #[test]
    fn contract_15_who_overlaps_a_held_block_waits_in_order() {
        let mut lane = Lane::new(1 << 20);
        assert_eq!(lane.admit(write(100, 50), 'a', 0), Some('a'));
        lane.hold(1, 0..512);
        assert_eq!(lane.admit(write(200, 50), 'b', 0), None);
        assert_eq!(lane.admit(read(0, 1024), 'c', 0), None);
        assert_eq!(lane.admit(write(512, 512), 'd', 0), None, "behind the read that waits");
        assert_eq!(lane.admit(write(1024, 512), 'e', 0), Some('e'));
        assert_eq!(lane.next(0), None);
        lane.release(1);
        assert_eq!(lane.next(0), Some('b'));
        lane.hold(2, 0..512);
        assert_eq!(lane.next(0), None);
        lane.release(2);
        assert_eq!([lane.next(0), lane.next(0), lane.next(0)], [Some('c'), Some('d'), None]);
    }

    #[test]
    fn contract_08_one_request_moves_the_end() {
        let mut lane = Lane::new(0);
        assert_eq!(lane.admit(write(0, 512), 'a', 7), Some('a'));
        assert_eq!(lane.admit(write(512, 512), 'b', 7), Some('b'), "touches, in the same pass");
        assert_eq!(lane.admit(write(4096, 512), 'c', 7), None, "does not touch");
        assert_eq!(lane.admit(write(1024, 512), 'd', 8), None, "the others are on their way");
        assert!(!lane.end_extension() && lane.next(9).is_none());
        assert!(lane.end_extension());
        lane.set_size(1024);
        assert_eq!(lane.admit(write(0, 512), 'e', 9), Some('e'), "below the end");
        assert_eq!((lane.next(9), lane.next(9)), (Some('c'), None));
        assert!(lane.end_extension());
        lane.set_size(4608);
        assert_eq!(lane.next(10), Some('d'), "not beyond the end any more");
    }

    #[test]
    fn contract_01_a_sync_waits_for_what_came_before_and_no_more() {
        let (mut lane, mut ready) = (Lane::<char>::new(0), Vec::new());
        lane.wait_for_all('a', &mut ready);
        assert_eq!(ready, ['a'], "nothing to wait for");
        let first = lane.open();
        lane.wait_for_all('b', &mut ready);
        let second = lane.open();
        lane.wait_for_all('c', &mut ready);
        lane.wait_for_all('d', &mut ready);
        let third = lane.open();
        lane.close(second, &mut ready);
        assert_eq!(ready, ['a'], "the first is still on its way");
        lane.close(first, &mut ready);
        assert_eq!(ready, ['a', 'b', 'c', 'd']);
        lane.close(third, &mut ready);
        lane.wait_for_all('e', &mut ready);
        assert_eq!(ready.last(), Some(&'e'));
    }
}
