//! The loop: keeps so many bios on their way, and counts those that ended.
//!
//! ```text
//! turn:  submit into free places --> dispatch (waits where no place is free) --> run --> read the clock --> tell
//! ```
//!
//! One clock read per turn: the moment after a run is when its bios were told, and when the bios of
//! the next turn are submitted. Nothing is allocated per bio, and bios of one run that were
//! submitted in one turn are counted as one entry of the histogram, for they took equally long.
//!
//! Every bio is told once: each has a place, a place that is told twice is the generator's or the
//! queue's bug and stops the cell, and the loop ends only when every place is free again.

use std::mem;
use std::time::Duration;

use forebay_block::Counters;
use forebay_block::limits::{DEVICE_HOLD, PLUG_BIOS};
use forebay_block::{
    Bio, Class, Ended, Errno, Frame, Moment, Operation, Segment, Segments, Source, Target, Wait,
};
use hdrhistogram::Histogram;

use super::offsets::Offsets;
use super::way::Way;
use crate::detail::Holds;
use crate::load::usage::Usage;
use crate::load::{CellError, Spans, system_error};
use crate::request::{self, RequestSpec};

/// The file's number at the device.
pub(crate) const TARGET: Target = Target(0);

/// Longest latency that is recorded: a minute.
const LONGEST_NS: u64 = 60_000_000_000;

/// A place without a bio: no moment of a clock that runs is its start.
const NOT_THERE: Moment = Moment::from_nanoseconds(0);

/// Counts while the clock ran.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// Bios told.
    pub(crate) bios: u64,
    /// For how long.
    pub(crate) elapsed: Duration,
    /// From submission to completion, in nanoseconds.
    pub(crate) latencies: Histogram<u64>,
    /// Counters at the start of the clock.
    pub(crate) before: Counters,
    /// Counters at the end of the clock.
    pub(crate) after: Counters,
    /// How long it held completions in between.
    pub(crate) holds: Holds,
    /// Resources used in between.
    pub(crate) usage: Usage,
}

/// State of the loop.
#[derive(Debug)]
pub(crate) struct Drive {
    blocks: Blocks,
    batch: Batch,
    /// Places without a bio.
    free: Vec<u32>,
    /// Submission time of the bio of each place, or [`NOT_THERE`].
    submitted: Vec<Moment>,
    ended: Vec<Ended>,
    latencies: Histogram<u64>,
    bios: u64,
}

/// How many bios are submitted between two dispatches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch {
    /// Fewer are waited for.
    pub(crate) least: usize,
    /// More are left for the next.
    pub(crate) most: usize,
}

impl Batch {
    /// Exactly what was asked for, that a ladder of batches is one on devices that end one at a
    /// time; but not more than there are places or a queue has room for.
    pub(crate) fn of(spec: &RequestSpec) -> Self {
        match spec.batch {
            Some(batch) => {
                let exactly = (batch.min(spec.depth) as usize).min(PLUG_BIOS);
                Self { least: exactly, most: exactly }
            }
            None => Self { least: 1, most: usize::MAX },
        }
    }

    fn is_exact(self) -> bool {
        self.least == self.most
    }
}

/// Makes bios, a place's memory for each.
#[derive(Clone, Debug)]
pub(crate) struct Blocks {
    offsets: Offsets,
    operation: Operation,
    block_bytes: u32,
    frames_per_place: u32,
}

impl Blocks {
    pub(crate) fn new(spec: &RequestSpec) -> Self {
        let operation = match spec.operation {
            request::Operation::Read => Operation::Read,
            request::Operation::Write => Operation::Write,
        };
        let frames_per_place = frames_per_place(spec.block_bytes);
        Self {
            offsets: Offsets::new(spec),
            operation,
            block_bytes: spec.block_bytes,
            frames_per_place,
        }
    }

    /// The next bio, with the memory of one place.
    #[inline]
    pub(crate) fn next(&mut self, place: u32) -> Bio {
        let first = Frame(place * self.frames_per_place);
        Bio {
            operation: self.operation,
            target: TARGET,
            offset: self.offsets.next(),
            length: u64::from(self.block_bytes),
            segments: Segments::from([Segment::frames(first, self.block_bytes)]),
            class: Class::Waited,
            source: Source(0),
            owner: u64::from(place),
        }
    }

    /// Why a bio did not end as it should have.
    #[inline]
    pub(crate) fn check(&self, ended: &Ended) -> Result<(), CellError> {
        if ended.result == Ok(u64::from(self.block_bytes)) {
            Ok(())
        } else {
            Err(self.wrong(ended))
        }
    }

    #[cold]
    fn wrong(&self, ended: &Ended) -> CellError {
        let (offset, asked) = (ended.bio.offset, self.block_bytes);
        let what = format!("{asked} bytes at {offset}");
        match ended.result {
            Ok(moved) => CellError::Process { what: format!("{what}: only {moved} of them moved") },
            Err(errno) => CellError::failed(what, &system_error(errno)),
        }
    }
}

/// Whole frames for each place's block.
pub(crate) fn frames_per_place(block_bytes: u32) -> u32 {
    block_bytes.div_ceil(forebay_block::limits::PAGE as u32)
}

impl Drive {
    pub(crate) fn new(spec: &RequestSpec) -> Self {
        let depth = spec.depth as usize;
        Self {
            blocks: Blocks::new(spec),
            batch: Batch::of(spec),
            free: (0..spec.depth).rev().collect(),
            submitted: vec![NOT_THERE; depth],
            ended: Vec::with_capacity(depth),
            latencies: Histogram::new_with_bounds(1, LONGEST_NS, 3)
                .expect("these bounds make a histogram"),
            bios: 0,
        }
    }

    /// Runs for the given time and counts, then waits until nothing is in flight. That last wait is
    /// not counted.
    pub(crate) fn count<W: Way>(
        &mut self,
        way: &mut W,
        spans: Spans,
    ) -> Result<Outcome, CellError> {
        let ramp_began = way.now();
        self.turns(way, ramp_began, ramp_began + spans.ramp)?;
        self.latencies.reset();
        self.bios = 0;
        let (before, held_before) = (way.counters(), way.holds());
        // The clock is read inside the two readings of the usage, so that these are not timed.
        let used_before = Usage::now();
        let began = way.now();
        let stopped = self.turns(way, began, began + spans.counted)?;
        let usage = Usage::now().since(used_before);
        let (bios, latencies, after) = (self.bios, self.latencies.clone(), way.counters());
        let holds = way.holds().since(&held_before);
        self.finish(way)?;
        Ok(Outcome { bios, elapsed: stopped - began, latencies, before, after, holds, usage })
    }

    /// Takes turns until `end`, and until at least one bio has ended. Returns the end of the last
    /// turn.
    fn turns<W: Way>(
        &mut self,
        way: &mut W,
        mut now: Moment,
        end: Moment,
    ) -> Result<Moment, CellError> {
        while now < end || self.bios == 0 {
            let count = self.free.len().min(self.batch.most).min(way.room());
            if count >= self.batch.least {
                for place in self.free.drain(self.free.len() - count..).rev() {
                    self.submitted[place as usize] = now;
                    way.submit(self.blocks.next(place));
                }
            }
            let wait = self.wait(way.room());
            way.dispatch(wait).map_err(broken)?;
            now = self.tell(way)?;
        }
        Ok(now)
    }

    /// Until the next batch can be submitted; not at all where it can.
    fn wait(&self, room: usize) -> Wait {
        match self.batch.least.saturating_sub(self.free.len().min(room)) as u32 {
            // A complete batch goes at once; without one the policy decides.
            0 if self.batch.is_exact() => Wait::Something(Some(Duration::ZERO)),
            0 => Wait::Not,
            1 => Wait::Something(None),
            want => Wait::Batch { want, within: DEVICE_HOLD, limit: None },
        }
    }

    /// Waits for bios in flight.
    fn finish<W: Way>(&mut self, way: &mut W) -> Result<(), CellError> {
        while self.free.len() < self.submitted.len() {
            way.dispatch(Wait::Something(None)).map_err(broken)?;
            self.tell(way)?;
        }
        Ok(())
    }

    /// Frees the places of ended bios, and returns the time.
    #[inline]
    fn tell<W: Way>(&mut self, way: &mut W) -> Result<Moment, CellError> {
        way.run(&mut self.ended);
        let now = way.now();
        let mut alike = Alike { since: now, count: 0 };
        for ended in &self.ended {
            self.blocks.check(ended)?;
            let place = ended.bio.owner;
            let since = mem::replace(&mut self.submitted[place as usize], NOT_THERE);
            assert!(since != NOT_THERE, "the bio of place {place} ended twice");
            self.free.push(place as u32);
            if since != alike.since {
                alike.record(now, &mut self.latencies);
                alike = Alike { since, count: 0 };
            }
            alike.count += 1;
        }
        self.bios += self.ended.len() as u64;
        self.ended.clear();
        alike.record(now, &mut self.latencies);
        Ok(now)
    }
}

/// Bios of one run that were submitted in one turn.
struct Alike {
    since: Moment,
    count: u64,
}

impl Alike {
    #[inline]
    fn record(&self, now: Moment, latencies: &mut Histogram<u64>) {
        if self.count > 0 {
            let took = now.since(self.since).as_nanos() as u64;
            latencies.record_n(took.clamp(1, LONGEST_NS), self.count).expect("within the bounds");
        }
    }
}

pub(crate) fn broken(errno: Errno) -> CellError {
    CellError::failed("the device is broken", &system_error(errno))
}
