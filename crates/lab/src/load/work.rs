//! The work of one job: its operations at their pace, its syncs, its end.
//!
//! Operations started during the ramp are not counted. The last thing inside the clock is always
//! the sync of every file the job wrote.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_block::Moment;
use forebay_uring::clock;

use super::driver::{Batch, Drive, Pause, Source, Tally};
use super::error::CellError;
use super::lane::{Lane, LaneCounters};
use super::layout::{Filling, JobPlan};
use super::pace::{Kept, Pacer};
use super::sequence::{Kind, Operation, Sequence};
use crate::job::FinalSync;

/// A wait for a point in time looks this often whether another job has failed.
pub(crate) const LOOK_FOR_STOP: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct JobOutcome {
    /// Of reads and of writes.
    pub(crate) tallies: [Tally; 2],
    pub(crate) began: Moment,
    /// When its last operation, or its final sync, had ended.
    pub(crate) ended: Moment,
    /// Operations that were started, counted or not: what verification replays.
    pub(crate) issued: u64,
    /// Of its lane, since counting began.
    pub(crate) counters: LaneCounters,
    /// How its schedule was kept, if it had one.
    pub(crate) kept: Option<Kept>,
}

impl JobOutcome {
    /// Whether it had not ended when its counting began.
    pub(crate) fn is_counted(&self) -> bool {
        self.began < self.ended
    }

    pub(crate) fn operations(&self) -> u64 {
        self.tallies.iter().map(|tally| tally.operations).sum()
    }
}

/// Runs a job to its end, or until `stop` is set.
pub(crate) fn drive<L: Lane + ?Sized>(
    plan: &JobPlan,
    lane: &mut L,
    began: Moment,
    stop: &AtomicBool,
) -> Result<JobOutcome, CellError> {
    let job = &plan.job;
    let counts_from = began + Duration::from_micros(job.ramp_us);
    let work = Work::new(plan, began, counts_from, stop);
    if work.pacer.is_some() {
        // Otherwise a wait for the next operation ends up to 50 us late, as it does if this fails.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    }
    let (slots, complete) = (lane.slots(), job.complete_batch.max(1) as usize);
    let batch = Batch { least: 1, most: lane.together(), complete };
    let mut drive = Drive::new(work, slots, batch);
    drive.counts_from = counts_from;
    let mut counters_before = lane.counters();
    let mut ramping = job.ramp_us > 0;
    let mut now = clock::now();
    loop {
        if ramping && now >= counts_from {
            ramping = false;
            counters_before = lane.counters();
        }
        let (end, pause) = drive.turn(lane, now)?;
        now = end;
        match pause {
            None | Some(Pause::NotDue(_)) => {}
            Some(Pause::Sync(file, how)) => {
                drive.drain(lane)?;
                lane.sync(file, how)?;
            }
            Some(Pause::Done) => break,
        }
    }
    let not_started = drive.take_ready();
    drive.drain(lane)?;
    let written = (0..plan.files.len()).filter(|file| drive.source.written[*file]);
    written.into_iter().try_for_each(|file| lane.sync(file, job.final_sync))?;
    let ended = clock::now();
    let Drive { mut source, mut tallies, .. } = drive;
    source.count_overdue(not_started, ended, &mut tallies);
    let (issued, counters) = (source.issued, lane.counters().since(counters_before));
    let kept = source.pacer.and_then(Pacer::kept);
    let outcome = JobOutcome { tallies, began: counts_from, ended, issued, counters, kept };
    assert!(issued >= outcome.operations(), "more ended than were started");
    Ok(outcome)
}

/// The operations of a job.
struct Work<'a> {
    plan: &'a JobPlan,
    sequence: Sequence,
    pacer: Option<Pacer>,
    ends_at: Option<Moment>,
    stop: &'a AtomicBool,
    issued: u64,
    /// Writes since the last fsync, and since the last fdatasync.
    writes_since: [u32; 2],
    written: Vec<bool>,
}

impl<'a> Work<'a> {
    fn new(plan: &'a JobPlan, began: Moment, counts_from: Moment, stop: &'a AtomicBool) -> Self {
        let runtime_us = plan.job.runtime_us;
        Self {
            plan,
            sequence: plan.sequence(),
            pacer: Pacer::new(&plan.job, began),
            ends_at: runtime_us.map(|micros| counts_from + Duration::from_micros(micros)),
            stop,
            issued: 0,
            writes_since: [0; 2],
            written: vec![false; plan.files.len()],
        }
    }

    /// A job does one operation at least, however late it opened its files.
    fn is_over(&self, now: Moment) -> bool {
        self.issued > 0 && self.ends_at.is_some_and(|ends_at| now >= ends_at)
            || self.stop.load(Ordering::Relaxed)
    }

    fn sync_due(&mut self) -> Option<FinalSync> {
        let job = &self.plan.job;
        let syncs = [(job.fsync_every, FinalSync::All), (job.fdatasync_every, FinalSync::Data)];
        self.writes_since = self.writes_since.map(|since| since + 1);
        for (since, (every, how)) in self.writes_since.iter_mut().zip(syncs) {
            if every > 0 && *since >= every {
                *since = 0;
                return Some(how);
            }
        }
        None
    }

    /// Counts operations that were due before the end and not started: they waited at least until
    /// then. Leaving them out would hide the worst of a device that stalled.
    fn count_overdue(
        &mut self,
        not_started: Vec<Operation>,
        now: Moment,
        tallies: &mut [Tally; 2],
    ) {
        // A rate that nothing could keep would be counted for minutes.
        const MOST: usize = 1 << 24;
        let Some(end) = self.ends_at.filter(|ends_at| *ends_at <= now) else { return };
        let Some(pacer) = &mut self.pacer else { return };
        let left = not_started.into_iter().chain(std::iter::from_fn(|| self.sequence.next()));
        for operation in left.take(MOST) {
            let Some(waited) = pacer.overdue(&operation, end) else { return };
            tallies[operation.kind as usize].latencies.saturating_record(waited.as_nanos() as u64);
        }
    }
}

impl Source for Work<'_> {
    const FILLS: bool = true;

    fn next(&mut self) -> Option<Operation> {
        self.sequence.next()
    }

    fn fill(&mut self, operation: &Operation, buffer: &mut [u8]) {
        let content = self.plan.files[operation.file].content;
        let buffer = &mut buffer[..operation.bytes as usize];
        match self.plan.filling {
            Filling::Whole => content.fill(operation.offset, buffer),
            Filling::Marked => content.mark(operation.offset, buffer),
        }
    }

    fn admit(&mut self, operation: &Operation, now: Moment) -> Result<Moment, Pause> {
        if self.is_over(now) {
            return Err(Pause::Done);
        }
        let Some(pacer) = &mut self.pacer else { return Ok(now) };
        let due = pacer.due(operation);
        if due > now {
            let until = self.ends_at.map_or(due, |ends_at| due.min(ends_at));
            return Err(Pause::NotDue(until.min(now + LOOK_FOR_STOP)));
        }
        Ok(pacer.started(operation, now))
    }

    fn started(&mut self, operation: &Operation) -> Option<Pause> {
        self.issued += 1;
        if operation.kind == Kind::Read {
            return None;
        }
        self.written[operation.file] = true;
        self.sync_due().map(|how| Pause::Sync(operation.file, how))
    }
}

#[cfg(test)]
mod tests;
