//! A lane: one job's way to its files. The load is driven the same through every lane, so that arms
//! differ in their lane and in nothing else.
//!
//! A lane has as many slots as it may have operations in flight, and a buffer for each. The driver
//! fills the buffer of a free slot, starts an operation on it, and reaps what has ended. A lane
//! that does one call at a time has one slot and has ended what it started by the time it says so;
//! so may one with more, and then it is reaped at once. Lanes are set up before the clock starts
//! (rings, buffers) and opened inside it (files, declared lengths, space).

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::path::Path;
use std::ptr::NonNull;
use std::thread;
use std::time::Instant;

use super::CellError;
use super::content::Content;
use super::sequence::Operation;
use crate::job::FinalSync;

/// One job's way to its files.
pub(crate) trait Lane: Send {
    /// The most operations in flight.
    fn slots(&self) -> usize;

    /// The buffer of a free slot.
    fn buffer(&mut self, slot: usize) -> &mut [u8];

    /// Starts an operation on a free slot and its buffer.
    fn start(&mut self, slot: usize, operation: Operation) -> Result<(), CellError>;

    /// Whether what was started has ended already, so that it can be reaped without a call.
    fn has_ended(&self) -> bool {
        false
    }

    /// Whether what is started goes out only when the next is reaped, all of it together.
    fn hands_over_together(&self) -> bool {
        false
    }

    /// Adds the slots that have ended, having waited until there are `least` of them.
    fn reap(&mut self, least: usize, ended: &mut Vec<usize>) -> Result<(), CellError>;

    /// Adds the slots that have ended, having waited until there is one, or until then. A lane in
    /// which everything has ended once it is started has nothing to look after meanwhile.
    fn reap_until(&mut self, until: Instant, ended: &mut Vec<usize>) -> Result<(), CellError> {
        let had = ended.len();
        self.reap(0, ended)?;
        if ended.len() == had {
            thread::sleep(until.saturating_duration_since(Instant::now()));
        }
        Ok(())
    }

    /// Makes what was written to a file durable. Nothing is in flight.
    fn sync(&mut self, file: usize, how: FinalSync) -> Result<(), CellError>;

    /// Lets go of the files, hearing a last error if there is one.
    fn close(self: Box<Self>) -> Result<(), CellError>;

    fn counters(&self) -> LaneCounters {
        LaneCounters::default()
    }
}

/// Counts of lanes over a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct LaneCounters {
    /// Enters that handed over requests.
    pub(crate) doorbells: u64,
    /// Requests handed over.
    pub(crate) requests: u64,
    /// Times completions were found.
    pub(crate) runs: u64,
    /// Completions found.
    pub(crate) completions: u64,
    /// Those enters, by how many requests each handed over.
    pub(crate) batches: Batches,
}

/// Batches by their size: of one, of two or three, of four to seven, and so on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Batches([u64; 16]);

impl Batches {
    /// Counts one batch of `size`, unless it is empty.
    pub(crate) fn count(&mut self, size: usize) {
        if let Some(doubling) = size.checked_ilog2() {
            let last = self.0.len() - 1;
            self.0[(doubling as usize).min(last)] += 1;
        }
    }

    /// The least of each range, and how many were in it; ranges without any at both ends are left
    /// out.
    pub(crate) fn told(&self) -> Vec<(u64, u64)> {
        let ranges = self.0.iter().enumerate().map(|(doubling, count)| (1 << doubling, *count));
        let first = ranges.clone().position(|(_, count)| count > 0);
        let last = ranges.clone().rposition(|(_, count)| count > 0);
        let Some((first, last)) = first.zip(last) else { return Vec::new() };
        ranges.skip(first).take(last + 1 - first).collect()
    }
}

impl LaneCounters {
    fn each(&mut self, other: Self, combine: fn(&mut u64, u64)) {
        combine(&mut self.doorbells, other.doorbells);
        combine(&mut self.requests, other.requests);
        combine(&mut self.runs, other.runs);
        combine(&mut self.completions, other.completions);
        self.batches.0.iter_mut().zip(other.batches.0).for_each(|(own, other)| combine(own, other));
    }
}

impl std::ops::AddAssign for LaneCounters {
    fn add_assign(&mut self, other: Self) {
        self.each(other, |own, other| *own += other);
    }
}

impl std::ops::SubAssign for LaneCounters {
    fn sub_assign(&mut self, other: Self) {
        self.each(other, |own, other| *own -= other);
    }
}

const ALIGNMENT: usize = 4096;

/// Buffers of one size, aligned for direct I/O, all their pages present from the start so that they
/// are part of the load generator's own memory and of nothing measured later.
#[derive(Debug)]
pub(crate) struct Buffers {
    start: NonNull<u8>,
    layout: Layout,
    each: usize,
    count: usize,
}

// SAFETY: the memory is owned, and reached through `&mut self` or, by the kernel, through addresses
// whose use ends before the owner goes.
unsafe impl Send for Buffers {}

impl Buffers {
    /// Makes `count` buffers of at least `bytes`.
    pub(crate) fn new(count: usize, bytes: usize) -> Self {
        let each = bytes.max(1).next_multiple_of(ALIGNMENT);
        let total = each.checked_mul(count.max(1)).expect("buffers fit in the address space");
        let layout =
            Layout::from_size_align(total, ALIGNMENT).expect("buffers fit in the address space");
        // SAFETY: the layout is not of zero size.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        let mut buffers = Self { start, layout, each, count };
        // Nothing that a device could make smaller than it is.
        let content = Content::new(0, Path::new(""));
        for slot in 0..count {
            content.fill((slot * each) as u64, buffers.slot(slot));
        }
        buffers
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// One of them.
    pub(crate) fn slot(&mut self, slot: usize) -> &mut [u8] {
        let address = self.address(slot);
        // SAFETY: the address begins `each` bytes inside our allocation, initialized when it was
        // made, and `&mut self` keeps other slices away.
        unsafe { std::slice::from_raw_parts_mut(address, self.each) }
    }

    /// Where one of them is, for the kernel.
    pub(crate) fn address(&self, slot: usize) -> *mut u8 {
        assert!(slot < self.count, "slot {slot} of {}", self.count);
        // SAFETY: below `count` slots of `each` bytes is inside the allocation.
        unsafe { self.start.as_ptr().add(slot * self.each) }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, given back once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// Files that do one operation after the other.
pub(crate) trait Serial: Send {
    /// Moves all bytes of an operation.
    fn transfer(&mut self, operation: Operation, buffer: &mut [u8]) -> Result<(), CellError>;

    fn sync(&mut self, file: usize, how: FinalSync) -> Result<(), CellError>;

    fn close(self) -> Result<(), CellError>;
}

/// A lane of one slot: a call at a time.
pub(crate) struct SerialLane<F> {
    buffers: Buffers,
    files: F,
    ended: bool,
}

impl<F: Serial> SerialLane<F> {
    pub(crate) fn new(buffers: Buffers, files: F) -> Self {
        Self { buffers, files, ended: false }
    }
}

impl<F: Serial> Lane for SerialLane<F> {
    fn slots(&self) -> usize {
        1
    }

    fn buffer(&mut self, slot: usize) -> &mut [u8] {
        self.buffers.slot(slot)
    }

    fn start(&mut self, slot: usize, operation: Operation) -> Result<(), CellError> {
        let buffer = &mut self.buffers.slot(slot)[..operation.bytes as usize];
        self.files.transfer(operation, buffer)?;
        self.ended = true;
        Ok(())
    }

    fn reap(&mut self, _least: usize, ended: &mut Vec<usize>) -> Result<(), CellError> {
        if std::mem::take(&mut self.ended) {
            ended.push(0);
        }
        Ok(())
    }

    fn sync(&mut self, file: usize, how: FinalSync) -> Result<(), CellError> {
        self.files.sync(file, how)
    }

    fn close(self: Box<Self>) -> Result<(), CellError> {
        self.files.close()
    }
}

/// No files: what driving the load costs by itself.
pub(crate) struct Nothing;

impl Serial for Nothing {
    fn transfer(&mut self, _operation: Operation, _buffer: &mut [u8]) -> Result<(), CellError> {
        Ok(())
    }

    fn sync(&mut self, _file: usize, _how: FinalSync) -> Result<(), CellError> {
        Ok(())
    }

    fn close(self) -> Result<(), CellError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_told_by_doubling() {
        let mut batches = Batches::default();
        assert_eq!(batches.told(), []);
        [0, 2, 3, 9, usize::MAX].iter().for_each(|size| batches.count(*size));
        assert_eq!(batches.told()[..3], [(2, 2), (4, 0), (8, 1)]);
        assert_eq!(batches.told().last(), Some(&(1 << 15, 1)));
    }

    #[test]
    fn buffers_are_aligned_and_apart() {
        let mut buffers = Buffers::new(3, 5000);
        for slot in 0..3 {
            assert_eq!(buffers.address(slot) as usize % ALIGNMENT, 0);
            buffers.slot(slot).fill(slot as u8);
        }
        assert_eq!(buffers.slot(0).len(), 8192);
        assert!((0..3).all(|slot| buffers.slot(slot).iter().all(|&byte| byte == slot as u8)));
    }
}
