//! Drives one job through its lane, and counts.
//!
//! One loop for every lane: fill the free slots, reap what ended, again. The clock is read twice per operation of a
//! one-call lane and twice per batch of a ring. The time of an operation runs from before it is handed to the lane
//! until its end was seen; filling its buffer is not part of it. What started before the ramp was over is not
//! counted. The last thing inside the clock is the sync of every file the job wrote, whatever the job says.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::CellError;
use super::lane::{Lane, LaneCounters};
use super::layout::JobPlan;
use super::pace::Pacer;
use super::sequence::{Kind, Operation, Sequence};
use crate::detail::Course;
use crate::job::FinalSync;

/// What one job did.
#[derive(Debug)]
pub(crate) struct JobOutcome {
    pub(crate) reads: Tally,
    pub(crate) writes: Tally,
    /// When counting began.
    pub(crate) began: Instant,
    /// When its last operation, or its final sync, had ended.
    pub(crate) ended: Instant,
    /// Operations taken from its sequence, counted or not: what verification replays.
    pub(crate) issued: u64,
    /// Of its lane, since counting began.
    pub(crate) counters: LaneCounters,
}

/// Operations of one direction.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub(crate) operations: u64,
    pub(crate) bytes: u64,
    /// In nanoseconds.
    pub(crate) latencies: Histogram<u64>,
    /// Since counting began.
    pub(crate) course: Course,
}

impl Tally {
    pub(crate) fn new() -> Self {
        const LONGEST_NS: u64 = 3_600_000_000_000;
        let latencies = Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("these bounds make a histogram");
        Self { operations: 0, bytes: 0, latencies, course: Course::new() }
    }

    /// Adds that of another job, whose counting began so much later.
    pub(crate) fn add(&mut self, other: &Self, later: Duration) {
        self.operations += other.operations;
        self.bytes += other.bytes;
        self.latencies.add(&other.latencies).expect("histograms of the same bounds add");
        self.course.add(&other.course, later.as_nanos() as u64);
    }

    fn record(&mut self, bytes: u32, took: Duration, after: Duration) {
        self.operations += 1;
        self.bytes += u64::from(bytes);
        self.latencies.saturating_record(took.as_nanos() as u64);
        self.course.record(after.as_nanos() as u64, u64::from(bytes));
    }
}

/// Runs a job to its end, or until told to stop.
pub(crate) fn drive(
    plan: &JobPlan,
    lane: &mut dyn Lane,
    began: Instant,
    stop: &AtomicBool,
) -> Result<JobOutcome, CellError> {
    let mut drive = Drive::new(plan, lane, began);
    let ended = drive.run(stop);
    let Drive { reads, writes, counts_from, issued, counters_before, .. } = drive;
    let ended = ended?;
    let mut counters = lane.counters();
    counters -= counters_before;
    Ok(JobOutcome { reads, writes, began: counts_from, ended, issued, counters })
}

struct Drive<'a> {
    plan: &'a JobPlan,
    lane: &'a mut dyn Lane,
    sequence: Sequence,
    /// Taken from the sequence, not yet due.
    waiting: Option<Operation>,
    pacer: Option<Pacer>,
    counts_from: Instant,
    ends_at: Option<Instant>,
    flights: Vec<Option<Flight>>,
    free: Vec<usize>,
    ended: Vec<usize>,
    reads: Tally,
    writes: Tally,
    issued: u64,
    counters_before: LaneCounters,
    ramping: bool,
    writes_since: WritesSince,
    written: Vec<bool>,
}

#[derive(Clone, Copy)]
struct Flight {
    operation: Operation,
    started: Instant,
}

#[derive(Default)]
struct WritesSince {
    fsync: u32,
    fdatasync: u32,
}

/// Why the loop stopped filling slots.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pause {
    /// No slot is free.
    Full,
    /// The next operation is not due before then.
    NotDue(Instant),
    /// Everything in flight has to end, then this file has to be synced.
    Sync(usize, FinalSync),
    /// There is no next operation.
    Done,
}

impl<'a> Drive<'a> {
    fn new(plan: &'a JobPlan, lane: &'a mut dyn Lane, began: Instant) -> Self {
        let slots = lane.slots();
        let job = &plan.job;
        let counts_from = began + Duration::from_micros(job.ramp_us);
        Self {
            sequence: plan.sequence(),
            waiting: None,
            pacer: Pacer::new(job, began),
            counts_from,
            ends_at: job.runtime_us.map(|runtime_us| counts_from + Duration::from_micros(runtime_us)),
            flights: vec![None; slots],
            free: (0..slots).rev().collect(),
            ended: Vec::with_capacity(slots),
            reads: Tally::new(),
            writes: Tally::new(),
            issued: 0,
            counters_before: lane.counters(),
            ramping: job.ramp_us > 0,
            writes_since: WritesSince::default(),
            written: vec![false; plan.files.len()],
            plan,
            lane,
        }
    }

    /// When it ended.
    fn run(&mut self, stop: &AtomicBool) -> Result<Instant, CellError> {
        loop {
            let pause = self.fill_slots(stop)?;
            match pause {
                Pause::Full => self.reap(self.plan.job.complete_batch.max(1) as usize)?,
                Pause::NotDue(due) => self.wait_until(due)?,
                Pause::Sync(file, how) => {
                    self.drain()?;
                    self.lane.sync(file, how)?;
                }
                Pause::Done => break,
            }
        }
        self.drain()?;
        for file in 0..self.written.len() {
            if self.written[file] {
                self.lane.sync(file, self.plan.job.final_sync)?;
            }
        }
        Ok(Instant::now())
    }

    fn fill_slots(&mut self, stop: &AtomicBool) -> Result<Pause, CellError> {
        while let Some(&slot) = self.free.last() {
            let next = self.waiting.take().or_else(|| {
                let next = self.sequence.next();
                self.issued += u64::from(next.is_some());
                next
            });
            let Some(operation) = next else { return Ok(Pause::Done) };
            if operation.kind == Kind::Write {
                let content = self.plan.files[operation.file].content;
                let buffer = self.lane.buffer(slot);
                content.fill(operation.offset, &mut buffer[..operation.bytes as usize]);
            }
            let now = Instant::now();
            if self.is_over(now, stop) {
                self.issued -= 1;
                return Ok(Pause::Done);
            }
            if let Some(pacer) = &mut self.pacer {
                let due = pacer.due(&operation);
                if due > now {
                    self.waiting = Some(operation);
                    return Ok(Pause::NotDue(due));
                }
                pacer.started(&operation, now);
            }
            if self.ramping && now >= self.counts_from {
                self.ramping = false;
                self.counters_before = self.lane.counters();
            }
            self.free.pop();
            self.flights[slot] = Some(Flight { operation, started: now });
            self.lane.start(slot, operation)?;
            if self.lane.has_ended() {
                self.reap(0)?;
            }
            if operation.kind == Kind::Write {
                self.written[operation.file] = true;
                if let Some(how) = self.sync_due() {
                    return Ok(Pause::Sync(operation.file, how));
                }
            }
        }
        Ok(Pause::Full)
    }

    fn is_over(&self, now: Instant, stop: &AtomicBool) -> bool {
        self.ends_at.is_some_and(|ends_at| now >= ends_at) || stop.load(Ordering::Relaxed)
    }

    fn sync_due(&mut self) -> Option<FinalSync> {
        let (every, since) = (&self.plan.job, &mut self.writes_since);
        since.fsync += 1;
        since.fdatasync += 1;
        if every.fsync_every > 0 && since.fsync >= every.fsync_every {
            since.fsync = 0;
            return Some(FinalSync::All);
        }
        if every.fdatasync_every > 0 && since.fdatasync >= every.fdatasync_every {
            since.fdatasync = 0;
            return Some(FinalSync::Data);
        }
        None
    }

    fn reap(&mut self, least: usize) -> Result<(), CellError> {
        self.lane.reap(least, &mut self.ended)?;
        if self.ended.is_empty() {
            return Ok(());
        }
        let now = Instant::now();
        let after = now.saturating_duration_since(self.counts_from);
        for slot in self.ended.drain(..) {
            let Flight { operation, started } = self.flights[slot].take().expect("what ended was in flight");
            self.free.push(slot);
            if started >= self.counts_from {
                let tally = match operation.kind {
                    Kind::Read => &mut self.reads,
                    Kind::Write => &mut self.writes,
                };
                tally.record(operation.bytes, now - started, after);
            }
        }
        Ok(())
    }

    fn drain(&mut self) -> Result<(), CellError> {
        while self.free.len() < self.flights.len() {
            self.reap(self.flights.len() - self.free.len())?;
        }
        Ok(())
    }

    /// Looks after what is in flight at least every 50 us, so that its ends are seen in time.
    fn wait_until(&mut self, due: Instant) -> Result<(), CellError> {
        const LOOK_AGAIN: Duration = Duration::from_micros(50);
        loop {
            let busy = self.free.len() < self.flights.len();
            if busy {
                self.reap(0)?;
            }
            let now = Instant::now();
            let due = self.ends_at.map_or(due, |ends_at| due.min(ends_at));
            if now >= due {
                return Ok(());
            }
            let left = due - now;
            std::thread::sleep(if busy { left.min(LOOK_AGAIN) } else { left });
        }
    }
}
