//! A layer that counts what reaches a device.
//!
//! The latency of a request is the time from the doorbell that submitted it to the reap that found
//! it completed, as the caller sees it. That costs one clock read per doorbell that submits
//! something and one per reap that finds something.
//!
//! Latencies are counted in buckets of powers of two, and a quantile is interpolated within its
//! bucket. So it is off by at most a factor of two.

use alloc::vec::Vec;
use core::time::Duration;

use super::{Fraction, Notes, OPERATIONS, place};
use crate::bio::{Bio, Errno, Operation};
use crate::device::{Completion, Device, Refused, Tag, Wait};
use crate::time::Moment;

/// Histogram with one bucket per power of two: bucket 0 for 0, bucket n for numbers from 2^(n-1) to
/// 2^n - 1.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Histogram {
    buckets: [u64; BUCKETS],
    count: u64,
    sum: u128,
    least: u64,
    most: u64,
}

const BUCKETS: usize = u64::BITS as usize + 1;

impl Histogram {
    /// Creates an empty histogram.
    #[must_use]
    pub const fn new() -> Self {
        Self { buckets: [0; BUCKETS], count: 0, sum: 0, least: u64::MAX, most: 0 }
    }

    /// Adds a number.
    pub fn add(&mut self, number: u64) {
        self.buckets[bucket(number)] += 1;
        self.count += 1;
        self.sum += u128::from(number);
        self.least = self.least.min(number);
        self.most = self.most.max(number);
    }

    /// Returns how many numbers were added.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the mean, rounded down, or `None` if the histogram is empty.
    #[must_use]
    pub fn mean(&self) -> Option<u64> {
        (self.count > 0).then(|| (self.sum / u128::from(self.count)) as u64)
    }

    /// Returns the exact minimum and maximum, or `None` if the histogram is empty.
    #[must_use]
    pub fn range(&self) -> Option<(u64, u64)> {
        (self.count > 0).then_some((self.least, self.most))
    }

    /// Returns a quantile, such as `Fraction::percent(99)` for the 99th percentile, by nearest rank
    /// and interpolated within its bucket. Returns `None` if the histogram is empty.
    #[must_use]
    pub fn quantile(&self, part: Fraction) -> Option<u64> {
        let rank = part.of(self.count).max(1);
        let mut before = 0;
        for (bucket, &count) in self.buckets.iter().enumerate() {
            if before + count >= rank && count > 0 {
                let (first, last) = bounds(bucket);
                let (first, last) = (first.max(self.least), last.min(self.most));
                let span = u128::from(last - first);
                // Split into as many equal parts as there are numbers, the middle of the part.
                let place = u128::from(2 * (rank - before) - 1);
                return Some(first + (span * place / (2 * u128::from(count))) as u64);
            }
            before += count;
        }
        None
    }

    /// Returns the first number, the last number and the count of each bucket that is not empty.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        let filled = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.map(|(bucket, &count)| {
            let (first, last) = bounds(bucket);
            (first, last, count)
        })
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

fn bucket(number: u64) -> usize {
    (u64::BITS - number.leading_zeros()) as usize
}

/// Returns the first and the last number of a bucket.
fn bounds(bucket: usize) -> (u64, u64) {
    match bucket {
        0 => (0, 0),
        _ => (1 << (bucket - 1), u64::MAX >> (u64::BITS as usize - bucket)),
    }
}

/// Counters of one operation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PerOperation {
    /// Requests that the device took.
    pub requests: u64,
    /// Bytes transferred by successful requests, including short ones.
    pub bytes: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Requests that were interrupted or would have blocked; not counted as failed.
    pub passing: u64,
    /// Requests that transferred fewer bytes than asked.
    pub short: u64,
    /// Time from doorbell to reap of all completed requests, in nanoseconds.
    pub latency: Histogram,
}

/// Counters of a device.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    operations: [PerOperation; OPERATIONS],
    /// Doorbell calls.
    pub doorbells: u64,
    /// Requests that the device refused.
    pub refused: u64,
    /// Requests at the device at each doorbell, including those that it submits.
    pub depth: Histogram,
}

impl Statistics {
    /// Returns the counters of one operation.
    #[must_use]
    pub fn of(&self, operation: Operation) -> &PerOperation {
        &self.operations[place(operation)]
    }

    /// Returns the number of requests that the device took.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.operations.iter().map(|operation| operation.requests).sum()
    }

    /// Returns the number of requests that completed.
    #[must_use]
    pub fn completed(&self) -> u64 {
        self.operations.iter().map(|operation| operation.latency.count()).sum()
    }
}

/// Data of a request in flight, until it completes.
#[derive(Clone, Copy, Debug)]
struct Note {
    operation: Operation,
    asked: u64,
    rung: Moment,
}

/// Layer that counts requests, bytes, errors and latencies.
///
/// ```
/// use forebay_block::layers::{Delay, Fraction, Latency, NullLayer, Stats};
/// use forebay_block::{Bio, Class, Device, Operation, Segments, Source, Tag, Target, Wait};
/// use std::time::Duration;
///
/// let flush = Bio {
///     operation: Operation::FlushData, target: Target(0), offset: 0, length: 0,
///     segments: Segments::new(), class: Class::Waited, source: Source(0), owner: 0,
/// };
/// let latency = Latency { fixed: Duration::from_micros(80), spread: Duration::ZERO };
/// let mut device = Stats::new(Delay::new(NullLayer::new(), latency, 7));
/// device.prepare(Tag(0), &flush).expect("room");
/// device.doorbell(Wait::Something(None))?;
/// device.reap(&mut Vec::new());
///
/// let flushes = device.statistics().of(Operation::FlushData);
/// assert_eq!(flushes.requests, 1);
/// assert_eq!(flushes.latency.quantile(Fraction::percent(99)), Some(80_000));
/// # Ok::<(), forebay_block::Errno>(())
/// ```
#[derive(Debug)]
pub struct Stats<D> {
    inner: D,
    statistics: Statistics,
    /// Requests taken and not submitted by a doorbell yet: tag, operation, bytes.
    staged: Vec<(Tag, Operation, u64)>,
    flying: Notes<Note>,
    in_flight: u64,
}

impl<D: Device> Stats<D> {
    /// Wraps a device, with all counters at 0.
    pub fn new(inner: D) -> Self {
        Self {
            inner,
            statistics: Statistics::default(),
            staged: Vec::new(),
            flying: Notes::new(),
            in_flight: 0,
        }
    }

    /// Returns the counters.
    #[must_use]
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Returns the counters and resets them. Requests in flight are counted when they end.
    pub fn take(&mut self) -> Statistics {
        core::mem::take(&mut self.statistics)
    }

    /// Returns the inner device.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Returns the inner device, to change its settings.
    pub fn inner_mut(&mut self) -> &mut D {
        &mut self.inner
    }
}

impl<D: Device> Device for Stats<D> {
    fn now(&mut self) -> Moment {
        self.inner.now()
    }

    fn prepare(&mut self, tag: Tag, request: &Bio) -> Result<(), Refused> {
        let taken = self.inner.prepare(tag, request);
        match taken {
            Ok(()) => {
                self.statistics.operations[place(request.operation)].requests += 1;
                self.staged.push((tag, request.operation, request.bytes()));
            }
            Err(Refused) => self.statistics.refused += 1,
        }
        taken
    }

    fn doorbell(&mut self, wait: Wait) -> Result<(), Errno> {
        if !self.staged.is_empty() {
            let rung = self.inner.now();
            self.in_flight += self.staged.len() as u64;
            for (tag, operation, asked) in self.staged.drain(..) {
                self.flying.put(tag, Note { operation, asked, rung });
            }
        }
        self.statistics.doorbells += 1;
        self.statistics.depth.add(self.in_flight);
        self.inner.doorbell(wait)
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        let before = completions.len();
        self.inner.reap(completions);
        if completions.len() == before {
            return;
        }
        let now = self.inner.now();
        for &Completion { tag, result } in &completions[before..] {
            let note = self.flying.take(tag);
            let Note { operation, asked, rung } =
                note.unwrap_or_else(|| panic!("{tag:?} completed but was not in flight"));
            assert!(self.in_flight > 0, "{tag:?} is not counted as in flight");
            self.in_flight -= 1;
            let of = &mut self.statistics.operations[place(operation)];
            of.latency.add(nanoseconds(now.since(rung)));
            match result {
                Ok(bytes) if operation.moves_bytes() => {
                    of.bytes += bytes;
                    of.short += u64::from(bytes < asked);
                }
                Ok(_) => {}
                Err(errno) if errno.is_passing() => of.passing += 1,
                Err(_) => of.errors += 1,
            }
        }
    }
}

fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
