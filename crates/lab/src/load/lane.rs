//! A lane: the way of operations to their files or device. One loop drives every lane, so that arms
//! differ in their lane and in nothing else.
//!
//! A lane has as many slots as it may have operations in flight, and a buffer for each. The driver
//! fills the buffer of a free slot, starts an operation on it, and reaps ended ones. Lanes are set
//! up before the clock starts (rings, buffers) and opened inside it (files, declared lengths,
//! space).

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::path::Path;
use std::ptr::NonNull;
use std::thread;

use forebay_block::Moment;
use forebay_uring::clock;

use super::content::Content;
use super::error::CellError;
use super::sequence::Operation;
use crate::detail::Holds;
use crate::job::FinalSync;

/// How long a lane waits for ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// Not at all.
    Not,
    /// Not at all, but hands over everything that was started, also if it would wait for more.
    Flush,
    /// Until about as many operations have ended.
    For(usize),
    /// Until an operation has ended, or until then.
    Until(Moment),
}

impl Wait {
    /// Returns the number of ends that it waits for.
    pub(crate) fn least(self) -> usize {
        match self {
            Wait::Not | Wait::Flush => 0,
            Wait::For(least) => least,
            Wait::Until(_) => 1,
        }
    }
}

/// Blocks until a moment.
pub(crate) fn sleep_until(moment: Moment) {
    thread::sleep(moment - clock::now());
}

/// The way of operations to their files or device.
pub(crate) trait Lane {
    /// Returns the most operations in flight.
    fn slots(&self) -> usize;

    /// Returns how many operations it takes now.
    #[inline]
    fn room(&self) -> usize {
        usize::MAX
    }

    /// Returns how many operations go out together, when they are reaped, and not as each is
    /// started.
    fn together(&self) -> usize {
        1
    }

    /// Returns the buffer of a free slot.
    fn buffer(&mut self, slot: usize) -> &mut [u8];

    /// Starts an operation on a free slot and its buffer.
    fn start(&mut self, slot: usize, operation: Operation) -> Result<(), CellError>;

    /// Hands over started operations, waits, and appends the slots that have ended.
    fn reap(&mut self, wait: Wait, ended: &mut Vec<usize>) -> Result<(), CellError>;

    /// Makes the data written to a file durable. No operation is in flight.
    fn sync(&mut self, _file: usize, _how: FinalSync) -> Result<(), CellError> {
        Ok(())
    }

    /// Closes the files. Returns their last error.
    fn close(self: Box<Self>) -> Result<(), CellError> {
        Ok(())
    }

    fn counters(&self) -> LaneCounters {
        LaneCounters::default()
    }

    /// Returns how long completions were held so far.
    fn holds(&self) -> Holds {
        Holds::default()
    }
}

/// Counts of lanes over a ring or a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct LaneCounters {
    /// Calls that handed over requests.
    pub(crate) doorbells: u64,
    /// Requests handed over.
    pub(crate) requests: u64,
    /// Times completions were found.
    pub(crate) runs: u64,
    /// Operations that these ended.
    pub(crate) completions: u64,
    /// Operations that a queue took.
    pub(crate) bios: u64,
    /// Operations merged into the request of another.
    pub(crate) merged: u64,
}

impl LaneCounters {
    fn each(&mut self, other: Self, combine: fn(&mut u64, u64)) {
        combine(&mut self.doorbells, other.doorbells);
        combine(&mut self.requests, other.requests);
        combine(&mut self.runs, other.runs);
        combine(&mut self.completions, other.completions);
        combine(&mut self.bios, other.bios);
        combine(&mut self.merged, other.merged);
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

    /// Returns the bytes of each.
    pub(crate) fn slot_bytes(&self) -> usize {
        self.each
    }

    /// Returns one of them.
    pub(crate) fn slot(&mut self, slot: usize) -> &mut [u8] {
        let address = self.address(slot);
        // SAFETY: the address begins `each` bytes inside our allocation, initialized when it was
        // made, and `&mut self` keeps other slices away.
        unsafe { std::slice::from_raw_parts_mut(address, self.each) }
    }

    /// Returns the address of one of them, for the kernel.
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

    fn sync(&mut self, _file: usize, _how: FinalSync) -> Result<(), CellError> {
        Ok(())
    }

    fn close(self) -> Result<(), CellError>;
}

/// A lane that does a call at a time, all with one buffer.
pub(crate) struct SerialLane<F> {
    buffers: Buffers,
    files: F,
    slots: usize,
    ended: Vec<usize>,
}

impl<F: Serial> SerialLane<F> {
    /// Makes a lane of one slot.
    pub(crate) fn new(buffers: Buffers, files: F) -> Self {
        Self::of_slots(1, buffers, files)
    }

    /// Makes a lane that is reaped after this many calls.
    pub(crate) fn of_slots(slots: usize, buffers: Buffers, files: F) -> Self {
        assert_eq!(buffers.count(), 1, "calls share a buffer");
        Self { buffers, files, slots, ended: Vec::with_capacity(slots) }
    }

    /// Does one operation with what `fill` puts into the buffer.
    pub(crate) fn transfer(
        &mut self,
        operation: Operation,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), CellError> {
        let buffer = &mut self.buffers.slot(0)[..operation.bytes as usize];
        fill(buffer);
        self.files.transfer(operation, buffer)
    }
}

impl<F: Serial> Lane for SerialLane<F> {
    fn slots(&self) -> usize {
        self.slots
    }

    fn together(&self) -> usize {
        self.slots
    }

    fn buffer(&mut self, _slot: usize) -> &mut [u8] {
        self.buffers.slot(0)
    }

    #[inline]
    fn start(&mut self, slot: usize, operation: Operation) -> Result<(), CellError> {
        self.transfer(operation, |_| {})?;
        self.ended.push(slot);
        Ok(())
    }

    #[inline]
    fn reap(&mut self, wait: Wait, ended: &mut Vec<usize>) -> Result<(), CellError> {
        if let Wait::Until(until) = wait
            && self.ended.is_empty()
        {
            sleep_until(until);
        }
        ended.append(&mut self.ended);
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

    fn close(self) -> Result<(), CellError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
