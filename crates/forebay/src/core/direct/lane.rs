//! A lane: the operations of one direct file, and the order of their starts.
//!
//! The queue keeps the order of overlapping bios. But a write of part of a block is a read and a
//! write, and nothing may come between them. So three things are held:
//!
//! - The blocks of such a write, until its write is in the queue. Overlapping operations wait here,
//!   in order.
//! - The whole file, while the length is set.
//! - The end of the file, while a request moves it. The file system serves one such request at a
//!   time, and more of them would only delay it. Adjacent writes of one pass move the end together.
//!
//! A sync covers earlier operations and does not wait for later ones. Operations are counted in
//! epochs, and a sync closes an epoch. Pure: no time, no device.

use std::collections::VecDeque;
use std::ops::Range;

use forebay_block::limits::REQUEST_BYTES;

use crate::core::direct::shape::Span;
use crate::core::limits::GATE_WINDOW;

/// Access of an operation to its file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Step {
    /// Whole blocks.
    pub(crate) blocks: Range<u64>,
    pub(crate) manner: Manner,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Manner {
    Reads,
    /// Writes these bytes, whole blocks or not.
    Writes(Span),
    /// Sets the length, which affects the whole file.
    Sets,
}

impl Step {
    fn changes(&self) -> bool {
        self.manner != Manner::Reads
    }

    fn conflicts(&self, other: &Step) -> bool {
        overlap(&self.blocks, &other.blocks) && (self.changes() || other.changes())
    }

    /// Returns the new end if it moves the end of a file of `size` bytes.
    fn end_beyond(&self, size: u64) -> Option<u64> {
        match self.manner {
            Manner::Writes(span) => Some(span.end()).filter(|end| *end > size),
            _ => None,
        }
    }

    fn is_whole(&self) -> bool {
        matches!(
            self.manner,
            Manner::Writes(span)
                if span.offset == self.blocks.start && span.end() == self.blocks.end
        )
    }
}

/// Operations of one file. `T` represents an operation.
#[derive(Debug)]
pub(crate) struct Lane<T> {
    size: u64,
    waiting: VecDeque<(Step, T)>,
    /// Held blocks, with the number of their holder.
    held: Vec<(u64, Range<u64>)>,
    extension: Option<Extension>,
    epochs: VecDeque<Epoch<T>>,
    /// Number of the first epoch.
    first_epoch: u64,
}

/// Writes in progress that move the end of the file.
#[derive(Clone, Copy, Debug)]
struct Extension {
    pass: u64,
    end: u64,
    bytes: u64,
    writes: u32,
}

#[derive(Debug)]
struct Epoch<T> {
    /// Number of its changes that have not ended.
    open: u64,
    /// Operations that wait for them.
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

    /// Returns the length of the file in bytes, with the writes that have ended.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Sets the length of the file.
    pub(crate) fn set_size(&mut self, size: u64) {
        self.size = size;
    }

    /// Counts a new change. Returns its epoch, for [`Lane::close`].
    pub(crate) fn open(&mut self) -> u64 {
        self.epochs.back_mut().expect("a lane has an epoch").open += 1;
        self.first_epoch + self.epochs.len() as u64 - 1
    }

    /// Ends a change. Appends the operations that now have nothing to wait for.
    pub(crate) fn close(&mut self, epoch: u64, ready: &mut Vec<T>) {
        debug_assert!(epoch >= self.first_epoch, "an epoch ends once");
        let index = usize::try_from(epoch - self.first_epoch).expect("few epochs are open");
        assert!(self.epochs[index].open > 0, "a change ends once");
        self.epochs[index].open -= 1;
        self.report(ready);
    }

    /// Adds an operation that waits for every earlier change.
    pub(crate) fn wait_for_all(&mut self, closer: T, ready: &mut Vec<T>) {
        self.epochs.back_mut().expect("a lane has an epoch").closers.push(closer);
        self.epochs.push_back(Epoch::new());
        self.report(ready);
    }

    fn report(&mut self, ready: &mut Vec<T>) {
        while self.epochs.len() > 1 && self.epochs[0].open == 0 {
            ready.append(&mut self.epochs.pop_front().expect("the lane has two epochs").closers);
            self.first_epoch += 1;
        }
    }

    /// Takes an operation. Returns it if it may start now.
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

    /// Takes an operation that may not start now in any case.
    pub(crate) fn wait(&mut self, step: Step, operation: T) {
        self.waiting.push_back((step, operation));
    }

    /// Removes and returns the first waiting operation, in order, that may start now.
    pub(crate) fn next(&mut self, pass: u64) -> Option<T> {
        let window = self.waiting.len().min(GATE_WINDOW);
        let place = (0..window).find(|&place| {
            let step = &self.waiting[place].0;
            self.may_start(step, pass)
                && !self.waiting.range(..place).any(|(first, _)| first.conflicts(step))
        })?;
        let (step, operation) = self.waiting.remove(place).expect("the place was found above");
        self.note_start(&step, pass);
        Some(operation)
    }

    /// Holds blocks until they are released.
    pub(crate) fn hold(&mut self, holder: u64, blocks: Range<u64>) {
        let is_free = !self.held.iter().any(|(_, held)| overlap(held, &blocks));
        debug_assert!(is_free, "blocks are held by one write at a time");
        self.held.push((holder, blocks));
    }

    pub(crate) fn release(&mut self, holder: u64) {
        self.held.retain(|(by, _)| *by != holder);
    }

    /// Ends a write that moved the end, successful or not. Returns true for the last of the writes
    /// that did so together.
    pub(crate) fn end_extension(&mut self) -> bool {
        let extension = self.extension.as_mut().expect("a write that moves the end is counted");
        assert!(extension.writes > 0, "a write ends once");
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
        let is_one = self.extension.is_none_or(|extension| extension.pass == pass);
        debug_assert!(is_one, "two requests would move the end");
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
    fn contract_15_operations_that_overlap_a_held_block_wait_in_order() {
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
        assert_eq!(lane.admit(write(512, 512), 'b', 7), Some('b'), "adjacent, in the same pass");
        assert_eq!(lane.admit(write(4096, 512), 'c', 7), None, "not adjacent");
        assert_eq!(lane.admit(write(1024, 512), 'd', 8), None, "the others have not ended");
        assert!(!lane.end_extension() && lane.next(9).is_none());
        assert!(lane.end_extension());
        lane.set_size(1024);
        assert_eq!(lane.admit(write(0, 512), 'e', 9), Some('e'), "below the end");
        assert_eq!((lane.next(9), lane.next(9)), (Some('c'), None));
        assert!(lane.end_extension());
        lane.set_size(4608);
        assert_eq!(lane.next(10), Some('d'), "no longer beyond the end");
    }

    #[test]
    fn contract_01_a_sync_waits_only_for_earlier_operations() {
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
        assert_eq!(ready, ['a'], "the first has not ended");
        lane.close(first, &mut ready);
        assert_eq!(ready, ['a', 'b', 'c', 'd']);
        lane.close(third, &mut ready);
        lane.wait_for_all('e', &mut ready);
        assert_eq!(ready.last(), Some(&'e'));
    }
}
