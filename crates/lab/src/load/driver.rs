//! Drives one job through its lane, and counts.
//!
//! One loop for every lane: fill the free slots, reap what ended, again. The clock is read once per
//! operation that starts and once per batch that has ended. The time of an operation runs from
//! before it is handed to the lane until its end was seen, or, where the job has a rate to keep,
//! from when it was due ([`super::pace`]). Filling buffers is not part of it, neither its own nor
//! those of the operations that are handed over with it. Operations started during the ramp are not
//! counted. The last thing inside the clock is always the sync of every file the job wrote.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::CellError;
use super::lane::{Lane, LaneCounters};
use super::layout::{Filling, JobPlan};
use super::pace::{Kept, Pacer};
use super::sequence::{Kind, Operation, Sequence};
use crate::detail::Course;
use crate::job::FinalSync;

/// A wait for a point in time looks this often whether another job has failed.
pub(crate) const LOOK_FOR_STOP: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct JobOutcome {
    pub(crate) reads: Tally,
    pub(crate) writes: Tally,
    pub(crate) began: Instant,
    /// When its last operation, or its final sync, had ended.
    pub(crate) ended: Instant,
    /// Operations taken from its sequence, counted or not: what verification replays.
    pub(crate) issued: u64,
    /// Of its lane, since counting began.
    pub(crate) counters: LaneCounters,
    /// How its schedule was kept, if it had one.
    pub(crate) kept: Option<Kept>,
}

#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub(crate) operations: u64,
    pub(crate) bytes: u64,
    /// In nanoseconds.
    pub(crate) latencies: Histogram<u64>,
    /// Since counting began.
    pub(crate) course: Course,
}

impl JobOutcome {
    /// Whether it had not ended when its counting began.
    pub(crate) fn is_counted(&self) -> bool {
        self.began < self.ended
    }
}

impl Tally {
    pub(crate) fn new() -> Self {
        const LONGEST_NS: u64 = 3_600_000_000_000;
        let latencies =
            Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("these bounds make a histogram");
        Self { operations: 0, bytes: 0, latencies, course: Course::new() }
    }

    /// Adds the tally of another job that began counting `later`.
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
    if drive.pacer.is_some() {
        // A wait for the next operation should not end up to 50 us late. It does if this cannot be
        // set.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    }
    let ended = drive.run(stop);
    let Drive { reads, writes, counts_from, issued, counters_before, pacer, .. } = drive;
    let ended = ended?;
    let mut counters = lane.counters();
    counters -= counters_before;
    let kept = pacer.and_then(Pacer::kept);
    Ok(JobOutcome { reads, writes, began: counts_from, ended, issued, counters, kept })
}

struct Drive<'a> {
    plan: &'a JobPlan,
    lane: &'a mut dyn Lane,
    sequence: Sequence,
    /// Taken from the sequence, the buffers of their slots filled, not started.
    ready: VecDeque<(usize, Operation)>,
    pacer: Option<Pacer>,
    counts_from: Instant,
    ends_at: Option<Instant>,
    flights: Vec<Option<Flight>>,
    free: Vec<usize>,
    in_flight: usize,
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
    from: Instant,
}

#[derive(Default)]
struct WritesSince {
    fsync: u32,
    fdatasync: u32,
}

/// Why the loop stopped filling slots.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pause {
    Full,
    /// The next operation is not due before then.
    NotDue(Instant),
    /// Everything in flight has to end, then this file has to be synced.
    Sync(usize, FinalSync),
    Done,
}

impl<'a> Drive<'a> {
    fn new(plan: &'a JobPlan, lane: &'a mut dyn Lane, began: Instant) -> Self {
        let slots = lane.slots();
        let job = &plan.job;
        let counts_from = began + Duration::from_micros(job.ramp_us);
        Self {
            sequence: plan.sequence(),
            ready: VecDeque::with_capacity(slots),
            pacer: Pacer::new(job, began),
            counts_from,
            ends_at: job
                .runtime_us
                .map(|runtime_us| counts_from + Duration::from_micros(runtime_us)),
            flights: vec![None; slots],
            free: (0..slots).rev().collect(),
            in_flight: 0,
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

    fn run(&mut self, stop: &AtomicBool) -> Result<Instant, CellError> {
        loop {
            let pause = self.fill_slots(stop)?;
            match pause {
                Pause::Full => self.reap(self.plan.job.complete_batch.max(1) as usize)?,
                Pause::NotDue(due) => self.wait_until(due, stop)?,
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
        loop {
            self.prepare();
            let Some(&(slot, operation)) = self.ready.front() else {
                return Ok(if self.free.is_empty() { Pause::Full } else { Pause::Done });
            };
            let now = Instant::now();
            if self.is_over(now, stop) {
                self.issued -= self.ready.len() as u64;
                self.count_overdue(now);
                return Ok(Pause::Done);
            }
            let mut from = now;
            if let Some(pacer) = &mut self.pacer {
                let due = pacer.due(&operation);
                if due > now {
                    return Ok(Pause::NotDue(due));
                }
                from = pacer.started(&operation, now);
            }
            if self.ramping && now >= self.counts_from {
                self.ramping = false;
                self.counters_before = self.lane.counters();
            }
            self.ready.pop_front();
            self.flights[slot] = Some(Flight { operation, from });
            self.in_flight += 1;
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
    }

    /// Takes the next operation and fills the buffer of its slot; where the lane hands over what
    /// was started together, does so for every free slot, so that none of them waits for the
    /// filling of others.
    fn prepare(&mut self) {
        let most = if self.lane.hands_over_together() { self.flights.len() } else { 1 };
        while self.ready.len() < most
            && let Some(&slot) = self.free.last()
            && let Some(operation) = self.sequence.next()
        {
            self.free.pop();
            self.issued += 1;
            if operation.kind == Kind::Write {
                let content = self.plan.files[operation.file].content;
                let buffer = &mut self.lane.buffer(slot)[..operation.bytes as usize];
                match self.plan.filling {
                    Filling::Whole => content.fill(operation.offset, buffer),
                    Filling::Marked => content.mark(operation.offset, buffer),
                }
            }
            self.ready.push_back((slot, operation));
        }
    }

    /// An operation that was due before the end and was not started has waited at least until then.
    /// Leaving it out would hide the worst of a device that stalled.
    fn count_overdue(&mut self, now: Instant) {
        // A rate that nothing could keep would be counted for minutes.
        const MOST: usize = 1 << 24;
        let (Some(pacer), Some(end)) =
            (&mut self.pacer, self.ends_at.filter(|ends_at| *ends_at <= now))
        else {
            return;
        };
        let ready = self.ready.drain(..).map(|(_, operation)| operation);
        let operations = ready.chain(std::iter::from_fn(|| self.sequence.next()));
        for operation in operations.take(MOST) {
            let Some(waited) = pacer.overdue(&operation, end) else { return };
            let tally = match operation.kind {
                Kind::Read => &mut self.reads,
                Kind::Write => &mut self.writes,
            };
            tally.latencies.saturating_record(waited.as_nanos() as u64);
        }
    }

    /// A job does one operation at least, however late it opened its files.
    fn is_over(&self, now: Instant, stop: &AtomicBool) -> bool {
        let has_begun = self.issued > self.ready.len() as u64;
        has_begun && self.ends_at.is_some_and(|ends_at| now >= ends_at)
            || stop.load(Ordering::Relaxed)
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
        self.tell_ended();
        Ok(())
    }

    fn tell_ended(&mut self) {
        if self.ended.is_empty() {
            return;
        }
        let now = Instant::now();
        let after = now.saturating_duration_since(self.counts_from);
        for slot in self.ended.drain(..) {
            let Flight { operation, from } =
                self.flights[slot].take().expect("what ended was in flight");
            self.free.push(slot);
            self.in_flight -= 1;
            if from >= self.counts_from {
                let tally = match operation.kind {
                    Kind::Read => &mut self.reads,
                    Kind::Write => &mut self.writes,
                };
                tally.record(operation.bytes, now - from, after);
            }
        }
    }

    fn drain(&mut self) -> Result<(), CellError> {
        while self.in_flight > 0 {
            self.reap(self.in_flight)?;
        }
        Ok(())
    }

    /// Ends what ends meanwhile at once: its time counts.
    fn wait_until(&mut self, due: Instant, stop: &AtomicBool) -> Result<(), CellError> {
        let until = self.ends_at.map_or(due, |ends_at| due.min(ends_at));
        loop {
            // At least once: operations started before may still have to be handed over.
            let look = until.min(Instant::now() + LOOK_FOR_STOP);
            self.lane.reap_until(look, &mut self.ended)?;
            self.tell_ended();
            if Instant::now() >= until || stop.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests;
