//! The loop of every load: it keeps operations in flight on a lane, and counts those that ended.
//!
//! ```text
//! turn:  fill buffers --> read the clock --> start --> reap (waits) --> read the clock --> count
//! ```
//!
//! The clock is read once before the operations of a turn are started, and once after the reap. So
//! the time of an operation runs from before it is handed to the lane until its end was seen, or,
//! if there is a rate to keep, from when it was due ([`super::pace`]). Filling buffers is not part
//! of it: a lane that hands over operations together has all of them filled first. Without data to
//! fill the end of a turn is the start of the next. Nothing is allocated for an operation, and
//! those of a reap that started together are one entry of the histogram.

use std::collections::VecDeque;
use std::time::Duration;

use forebay_block::Moment;
use forebay_uring::clock;
use hdrhistogram::Histogram;

use super::error::CellError;
use super::lane::{Lane, Wait};
use super::sequence::{Kind, Operation};
use crate::job::FinalSync;

/// The operations of a load: the next one, its data, and when it may start.
pub(crate) trait Source {
    /// Whether operations carry data that is made before they start.
    const FILLS: bool = false;

    /// Returns the next operation, if one is there now.
    fn next(&mut self) -> Option<Operation>;

    /// Fills the buffer of an operation, which is at least as long.
    fn fill(&mut self, _operation: &Operation, _buffer: &mut [u8]) {}

    /// Returns the moment from which the latency of an operation counts that starts now, or why it
    /// may not start.
    #[inline]
    fn admit(&mut self, _operation: &Operation, now: Moment) -> Result<Moment, Pause> {
        Ok(now)
    }

    /// Notes that an operation was started. Returns why no other may start yet.
    #[inline]
    fn started(&mut self, _operation: &Operation) -> Option<Pause> {
        None
    }

    /// Notes the number of operations that have ended.
    #[inline]
    fn ended(&mut self, _count: usize) {}
}

/// Why a turn ended with free slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pause {
    /// The next operation may not start before then.
    NotDue(Moment),
    /// Everything in flight has to end, then this file has to be synced.
    Sync(usize, FinalSync),
    /// There is no operation, or the time is over.
    Done,
}

/// How many operations are started between two reaps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Batch {
    /// Fewer free slots are waited for.
    pub(crate) least: usize,
    /// More are left for the next turn.
    pub(crate) most: usize,
    /// Ends that are waited for, if it has to wait.
    pub(crate) complete: usize,
}

impl Batch {
    pub(crate) fn exactly(size: usize) -> Self {
        Self { least: size, most: size, complete: 1 }
    }

    fn is_exact(self) -> bool {
        self.least == self.most
    }
}

#[derive(Debug)]
pub(crate) struct Drive<S> {
    pub(crate) source: S,
    batch: Batch,
    free: Vec<usize>,
    /// Taken from the source, the buffers of their slots filled, not started.
    ready: VecDeque<(usize, Operation)>,
    flights: Vec<Option<Flight>>,
    ended: Vec<usize>,
    /// Of reads and of writes.
    pub(crate) tallies: [Tally; 2],
    /// Operations that count from before are not counted.
    pub(crate) counts_from: Moment,
}

/// An operation in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Flight {
    from: Moment,
    bytes: u32,
    kind: Kind,
}

impl<S: Source> Drive<S> {
    pub(crate) fn new(source: S, slots: usize, batch: Batch) -> Self {
        assert!(slots > 0 && batch.least <= slots, "{batch:?} of {slots} slots");
        Self {
            source,
            batch,
            free: (0..slots).rev().collect(),
            ready: VecDeque::with_capacity(if S::FILLS { slots } else { 0 }),
            flights: vec![None; slots],
            ended: Vec::with_capacity(slots),
            tallies: [Tally::new(), Tally::new()],
            counts_from: Moment::from_nanoseconds(0),
        }
    }

    /// Takes one turn. Returns its end, and why it did not start all it could.
    #[inline]
    pub(crate) fn turn<L: Lane + ?Sized>(
        &mut self,
        lane: &mut L,
        now: Moment,
    ) -> Result<(Moment, Option<Pause>), CellError> {
        let count = self.unused().min(self.batch.most).min(lane.room());
        let pause = if count >= self.batch.least { self.start(lane, now, count)? } else { None };
        lane.reap(self.wait(pause, lane.room()), &mut self.ended)?;
        Ok((self.count_ended(), pause))
    }

    /// Takes turns until the source is done, and waits for the rest.
    pub(crate) fn run<L: Lane + ?Sized>(&mut self, lane: &mut L) -> Result<(), CellError> {
        let mut now = clock::now();
        loop {
            let (end, pause) = self.turn(lane, now)?;
            now = end;
            if pause == Some(Pause::Done) {
                return self.drain(lane);
            }
        }
    }

    /// Waits until nothing is in flight.
    pub(crate) fn drain<L: Lane + ?Sized>(&mut self, lane: &mut L) -> Result<(), CellError> {
        while self.in_flight() > 0 {
            lane.reap(Wait::For(self.in_flight()), &mut self.ended)?;
            self.count_ended();
        }
        Ok(())
    }

    /// Returns how many operations were counted.
    pub(crate) fn counted(&self) -> u64 {
        self.tallies.iter().map(|tally| tally.operations).sum()
    }

    /// Returns and forgets the operations that were taken from the source and not started.
    pub(crate) fn take_ready(&mut self) -> Vec<Operation> {
        let (slots, operations): (Vec<_>, Vec<_>) = self.ready.drain(..).unzip();
        self.free.extend(slots);
        operations
    }

    fn unused(&self) -> usize {
        self.free.len() + self.ready.len()
    }

    fn in_flight(&self) -> usize {
        self.flights.len() - self.unused()
    }

    #[inline]
    fn start<L: Lane + ?Sized>(
        &mut self,
        lane: &mut L,
        mut now: Moment,
        count: usize,
    ) -> Result<Option<Pause>, CellError> {
        if S::FILLS {
            self.fill(lane, count);
            now = clock::now();
        }
        for _ in 0..count {
            let Some((slot, operation)) = self.take() else { return Ok(Some(Pause::Done)) };
            let from = match self.source.admit(&operation, now) {
                Ok(from) => from,
                Err(pause) => {
                    self.ready.push_front((slot, operation));
                    return Ok(Some(pause));
                }
            };
            let Operation { kind, bytes, .. } = operation;
            let before = self.flights[slot].replace(Flight { from, bytes, kind });
            debug_assert!(before.is_none(), "slot {slot} is in flight");
            lane.start(slot, operation)?;
            if let Some(pause) = self.source.started(&operation) {
                return Ok(Some(pause));
            }
        }
        Ok(None)
    }

    /// Takes operations from the source and fills their buffers, until `count` are ready.
    fn fill<L: Lane + ?Sized>(&mut self, lane: &mut L, count: usize) {
        while self.ready.len() < count
            && let Some(&slot) = self.free.last()
            && let Some(operation) = self.source.next()
        {
            self.free.pop();
            if operation.kind == Kind::Write {
                self.source.fill(&operation, lane.buffer(slot));
            }
            self.ready.push_back((slot, operation));
        }
    }

    #[inline]
    fn take(&mut self) -> Option<(usize, Operation)> {
        if S::FILLS {
            return self.ready.pop_front();
        }
        let operation = self.source.next()?;
        let slot = self.free.pop().expect("no more are started than slots are free");
        Some((slot, operation))
    }

    /// Until the next batch can be started; not at all if it can.
    #[inline]
    fn wait(&self, pause: Option<Pause>, room: usize) -> Wait {
        match pause {
            Some(Pause::NotDue(due)) => return Wait::Until(due),
            Some(Pause::Sync(..) | Pause::Done) => return Wait::Not,
            None => {}
        }
        match self.batch.least.saturating_sub(self.unused().min(room)) {
            // A complete batch goes at once; without one the policy decides.
            0 if self.batch.is_exact() => Wait::Flush,
            0 => Wait::Not,
            want => Wait::For(want.max(self.batch.complete)),
        }
    }

    /// Frees the slots of ended operations, and returns the time.
    #[inline]
    fn count_ended(&mut self) -> Moment {
        let now = clock::now();
        let mut alike: Option<(Flight, u64)> = None;
        for index in 0..self.ended.len() {
            let slot = self.ended[index];
            // Checked in every build: a slot that ended twice would be used twice.
            let flight = self.flights[slot].take().expect("an operation ends once");
            self.free.push(slot);
            match &mut alike {
                Some((first, count)) if *first == flight => *count += 1,
                _ => {
                    if let Some((flight, count)) = alike.replace((flight, 1)) {
                        self.record(flight, count, now);
                    }
                }
            }
        }
        if let Some((flight, count)) = alike {
            self.record(flight, count, now);
        }
        self.source.ended(self.ended.len());
        self.ended.clear();
        now
    }

    #[inline]
    fn record(&mut self, flight: Flight, count: u64, now: Moment) {
        if flight.from >= self.counts_from {
            let took = now - flight.from;
            self.tallies[flight.kind as usize].record(flight.bytes, count, took);
        }
    }
}

/// The longest latency that is recorded as it is, in nanoseconds: an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Counts of operations that have ended.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub(crate) operations: u64,
    pub(crate) bytes: u64,
    /// In nanoseconds.
    pub(crate) latencies: Histogram<u64>,
}

/// Returns an empty histogram of latencies in nanoseconds. All have the same bounds.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("these bounds make a histogram")
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self { operations: 0, bytes: 0, latencies: histogram() }
    }

    /// Adds the tally of another job.
    pub(crate) fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.latencies.add(&other.latencies).expect("histograms of the same bounds add");
    }

    /// Counts `count` operations of `bytes` bytes each that took equally long.
    #[inline]
    pub(crate) fn record(&mut self, bytes: u32, count: u64, took: Duration) {
        debug_assert!(count > 0, "nothing ended");
        self.operations += count;
        self.bytes += u64::from(bytes) * count;
        self.latencies.saturating_record_n((took.as_nanos() as u64).max(1), count);
    }

    /// Returns what was counted and begins anew. The memory of a new histogram is not touched yet,
    /// so that it is in no figure.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_that_are_alike_count_one_by_one() {
        let (mut together, mut alone) = (Tally::new(), Tally::new());
        let took = Duration::from_micros(5);
        together.record(4096, 3, took);
        (0..3).for_each(|_| alone.record(4096, 1, took));
        assert_eq!((together.operations, together.bytes), (3, 3 * 4096));
        assert_eq!((together.latencies.len(), &together.latencies), (3, &alone.latencies));
        assert_eq!(together.take().operations, 3);
        assert_eq!((together.operations, together.latencies.len()), (0, 0));
    }
}
