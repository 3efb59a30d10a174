//! A lane: the way of operations to their files or device. One loop drives every lane, so that arms
//! differ in their lane and in nothing else.
//!
//! A lane has as many slots as it may have operations in flight, and a buffer for each. The driver
//! fills the buffer of a free slot, starts an operation on it, and reaps ended ones. Lanes are set
//! up before the clock starts (rings, buffers) and opened inside it (files, declared lengths,
//! space).

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;

use forebay::Stats;
use forebay_block::Moment;
use forebay_block::limits::PAGE;
use forebay_uring::{AlignedMemory, clock};

use super::content::Content;
use super::error::CellError;
use super::sequence::Operation;
use crate::detail::Holds;
use crate::job::FinalSync;
use crate::metric::put_ratio;

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
    fn each(self, other: Self, combine: fn(u64, u64) -> u64) -> Self {
        Self {
            doorbells: combine(self.doorbells, other.doorbells),
            requests: combine(self.requests, other.requests),
            runs: combine(self.runs, other.runs),
            completions: combine(self.completions, other.completions),
            bios: combine(self.bios, other.bios),
            merged: combine(self.merged, other.merged),
        }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        self.each(other, |one, other| one + other)
    }

    pub(crate) fn since(self, before: Self) -> Self {
        self.each(before, |now, before| now - before)
    }

    /// Adds what the counts mean for that number of operations. Nothing by nothing is left out.
    pub(crate) fn put(self, metrics: &mut BTreeMap<String, f64>, operations: u64) {
        if self.doorbells > 0 {
            put_ratio(metrics, "doorbells_per_io", self.doorbells, operations);
            put_ratio(metrics, "requests_per_doorbell", self.requests, self.doorbells);
        }
        put_ratio(metrics, "bios_per_run", self.completions, self.runs);
        put_ratio(metrics, "merged_share", self.merged, self.bios);
    }
}

impl From<&Stats> for LaneCounters {
    fn from(stats: &Stats) -> Self {
        Self {
            doorbells: stats.doorbells,
            requests: stats.requests,
            runs: stats.completion_runs,
            completions: stats.completed_bios,
            bios: stats.bios,
            merged: stats.merged_bios,
        }
    }
}

/// Returns the buffer of a slot, of at least `bytes`, aligned for direct I/O. All its pages are
/// present, so that they are part of the load generator's own memory and of nothing measured later.
pub(crate) fn buffer(slot: usize, bytes: usize) -> AlignedMemory {
    let mut buffer = AlignedMemory::new(bytes.max(1).next_multiple_of(PAGE));
    let offset = (slot * buffer.len()) as u64;
    // Nothing that a device could make smaller than it is.
    Content::new(0, Path::new("")).fill(offset, &mut buffer);
    buffer
}

/// Files that do one operation after the other.
pub(crate) trait Serial {
    /// Moves all bytes of an operation. The buffer may be longer.
    fn transfer(&mut self, operation: Operation, buffer: &mut [u8]) -> Result<(), CellError>;

    fn sync(&mut self, _file: usize, _how: FinalSync) -> Result<(), CellError> {
        Ok(())
    }

    fn close(self) -> Result<(), CellError>
    where
        Self: Sized,
    {
        Ok(())
    }
}

/// A lane that does a call at a time, all with one buffer.
pub(crate) struct SerialLane<F> {
    buffer: AlignedMemory,
    files: F,
    slots: usize,
    ended: Vec<usize>,
}

impl<F: Serial> SerialLane<F> {
    /// Makes a lane that is reaped after this many calls.
    pub(crate) fn new(slots: usize, buffer: AlignedMemory, files: F) -> Self {
        assert!(slots > 0, "a lane without a slot");
        Self { buffer, files, slots, ended: Vec::with_capacity(slots) }
    }

    /// Does one operation with what `fill` puts into the buffer.
    pub(crate) fn transfer(
        &mut self,
        operation: Operation,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), CellError> {
        fill(&mut self.buffer);
        self.files.transfer(operation, &mut self.buffer)
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
        &mut self.buffer
    }

    #[inline]
    fn start(&mut self, slot: usize, operation: Operation) -> Result<(), CellError> {
        self.files.transfer(operation, &mut self.buffer)?;
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
}
