//! Slowing a job down to the rate it asks for, and saying from when its operations count.
//!
//! A rate is an open loop. Each direction has a schedule: an operation is due when all before it,
//! at the rate asked for, would have been started, whether possible or not; its latency counts from
//! then. Operations that a stall delays wait as well, and a clock that began at the start would
//! hide that (coordinated omission). Late operations are started at once; early ones wait.
//! Operations that are due and not started are the backlog: its size and the delays are reported
//! beside the latencies. Operations still in it at the end are not started and count as having
//! waited until then.
//!
//! Thinking is part of a closed loop: a pause after some operations, while nobody waits.

use std::time::Duration;

use forebay_block::Moment;
use hdrhistogram::Histogram;

use super::driver::histogram;
use super::sequence::{Kind, Operation};
use crate::job::{Job, Pace, Rate};

/// When the next operation of a job may start.
#[derive(Debug)]
pub(crate) struct Pacer {
    pace: Pace,
    began: Moment,
    counts_from: Moment,
    issued: [Issued; 2],
    since_thought: u32,
    thinks_until: Option<Moment>,
    kept: Kept,
}

#[derive(Clone, Copy, Debug, Default)]
struct Issued {
    bytes: u64,
    operations: u64,
}

/// How a schedule was kept.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    /// How late operations were started, in nanoseconds.
    pub(crate) late: Histogram<u64>,
    /// Most operations that were due at a moment and not started.
    pub(crate) backlog_peak: u64,
    /// Operations that were due before the end and never started.
    pub(crate) never_started: u64,
}

impl Kept {
    pub(crate) fn add(&mut self, other: &Self) {
        self.late.add(&other.late).expect("histograms of the same bounds add");
        self.backlog_peak = self.backlog_peak.max(other.backlog_peak);
        self.never_started += other.never_started;
    }
}

impl Pacer {
    /// Returns the pace of a job; `None` if it has none to keep.
    pub(crate) fn new(job: &Job, began: Moment) -> Option<Self> {
        let idle = Pace { think_operations: job.pace.think_operations, ..Pace::default() };
        (job.pace != idle).then(|| Self {
            pace: job.pace,
            began,
            counts_from: began + Duration::from_micros(job.ramp_us),
            issued: [Issued::default(); 2],
            since_thought: 0,
            thinks_until: None,
            kept: Kept { late: histogram(), backlog_peak: 0, never_started: 0 },
        })
    }

    /// Returns when this operation is due.
    pub(crate) fn due(&self, operation: &Operation) -> Moment {
        let issued = self.issued[operation.kind as usize];
        let due = self.began + self.rate(operation).time_for(issued);
        self.thinks_until.map_or(due, |until| until.max(due))
    }

    /// Notes that an operation is started now. Returns from when its latency counts: from when it
    /// was due, if it had a rate to keep.
    pub(crate) fn started(&mut self, operation: &Operation, now: Moment) -> Moment {
        let has_schedule = self.rate(operation) != Rate::default();
        let due = self.due(operation);
        debug_assert!(now >= self.began, "an operation is started before its job");
        if has_schedule && due >= self.counts_from {
            self.kept.late.saturating_record((now - due).as_nanos() as u64);
            self.kept.backlog_peak = self.kept.backlog_peak.max(self.backlog(operation, now));
        }
        self.issue(operation);
        self.think(now);
        if has_schedule { due } else { now }
    }

    /// Notes that an operation was not started before the end. Returns how long it had been due;
    /// `None` if it was not, or had no rate to keep.
    pub(crate) fn overdue(&mut self, operation: &Operation, end: Moment) -> Option<Duration> {
        let due = self.due(operation);
        if self.rate(operation) == Rate::default() || due >= end {
            return None;
        }
        self.issue(operation);
        debug_assert!(self.counts_from <= end, "the end lies in the ramp");
        self.kept.never_started += 1;
        Some(end - due.max(self.counts_from))
    }

    pub(crate) fn kept(self) -> Option<Kept> {
        let rates = [self.pace.read, self.pace.write];
        rates.iter().any(|rate| *rate != Rate::default()).then_some(self.kept)
    }

    /// Counts operations such as this one that are due now and not started, this one among them.
    fn backlog(&self, operation: &Operation, now: Moment) -> u64 {
        let Issued { bytes, operations } = self.issued[operation.kind as usize];
        let elapsed = (now - self.began).as_secs_f64();
        let rate = self.rate(operation);
        let each = u64::from(operation.bytes.max(1));
        let due = |per_second: u64, one: u64, done: u64| match per_second {
            0 => u64::MAX,
            _ => ((elapsed * per_second as f64) as u64 / one + 1).saturating_sub(done / one),
        };
        due(rate.operations_per_s, 1, operations).min(due(rate.bytes_per_s, each, bytes))
    }

    fn issue(&mut self, operation: &Operation) {
        let issued = &mut self.issued[operation.kind as usize];
        issued.bytes += u64::from(operation.bytes);
        issued.operations += 1;
    }

    fn think(&mut self, now: Moment) {
        self.thinks_until = None;
        if self.pace.think_us == 0 {
            return;
        }
        self.since_thought += 1;
        if self.since_thought >= self.pace.think_operations.max(1) {
            self.since_thought = 0;
            self.thinks_until = Some(now + Duration::from_micros(self.pace.think_us));
        }
    }

    fn rate(&self, operation: &Operation) -> Rate {
        match operation.kind {
            Kind::Read => self.pace.read,
            Kind::Write => self.pace.write,
        }
    }
}

impl Rate {
    fn time_for(self, issued: Issued) -> Duration {
        let share = |done: u64, per_second: u64| {
            if per_second == 0 {
                Duration::ZERO
            } else {
                Duration::from_secs_f64(done as f64 / per_second as f64)
            }
        };
        share(issued.bytes, self.bytes_per_s).max(share(issued.operations, self.operations_per_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_uring::clock;

    const WRITE: Operation = Operation { kind: Kind::Write, file: 0, offset: 0, bytes: 4096 };
    const READ: Operation = Operation { kind: Kind::Read, ..WRITE };

    fn job(write: Rate) -> Job {
        Job { pace: Pace { write, ..Pace::default() }, ..Job::default() }
    }

    #[test]
    fn a_rate_spaces_operations() {
        let began = clock::now();
        let mut pacer =
            Pacer::new(&job(Rate { operations_per_s: 100, bytes_per_s: 0 }), began).unwrap();
        assert_eq!(pacer.due(&WRITE), began);
        pacer.started(&WRITE, began);
        pacer.started(&WRITE, began);
        assert_eq!(pacer.due(&WRITE), began + Duration::from_millis(20));
    }

    #[test]
    fn what_is_late_counts_from_when_it_was_due() {
        let began = clock::now();
        let mut pacer =
            Pacer::new(&job(Rate { operations_per_s: 100, bytes_per_s: 0 }), began).unwrap();
        let late = began + Duration::from_millis(35);
        let counts: Vec<_> = (0..4).map(|_| pacer.started(&WRITE, late)).collect();
        let due = |millis| began + Duration::from_millis(millis);
        assert_eq!(counts, [due(0), due(10), due(20), due(30)]);
        assert_eq!(pacer.due(&WRITE), due(40), "and what follows is on time again");
        assert_eq!(pacer.started(&READ, late), late, "reads have no rate to keep");
        let end = due(65);
        assert_eq!(pacer.overdue(&WRITE, end), Some(Duration::from_millis(25)));
        assert_eq!(pacer.overdue(&WRITE, end), Some(Duration::from_millis(15)));
        assert_eq!(pacer.overdue(&WRITE, end), Some(Duration::from_millis(5)));
        assert_eq!((pacer.overdue(&WRITE, end), pacer.overdue(&READ, end)), (None, None));
        let kept = pacer.kept().unwrap();
        assert_eq!((kept.backlog_peak, kept.never_started, kept.late.len()), (4, 3, 4));
        assert!(kept.late.max() >= 35_000_000 && kept.late.min() < 5_100_000);
    }

    #[test]
    fn a_rate_of_bytes_is_a_schedule_too() {
        let began = clock::now();
        let mut pacer =
            Pacer::new(&job(Rate { operations_per_s: 0, bytes_per_s: 409_600 }), began).unwrap();
        pacer.started(&WRITE, began);
        assert_eq!(pacer.due(&WRITE), began + Duration::from_millis(10));
        pacer.started(&WRITE, began + Duration::from_millis(55));
        assert_eq!(pacer.kept().unwrap().backlog_peak, 5);
    }

    #[test]
    fn what_was_due_in_the_ramp_is_not_reported() {
        let began = clock::now();
        let ramped = Job { ramp_us: 15_000, ..job(Rate { operations_per_s: 100, bytes_per_s: 0 }) };
        let mut pacer = Pacer::new(&ramped, began).unwrap();
        for _ in 0..3 {
            pacer.started(&WRITE, began + Duration::from_millis(25));
        }
        assert_eq!(pacer.kept().unwrap().late.len(), 1);
    }

    #[test]
    fn thinking_pauses_after_so_many() {
        let pace = Pace { think_us: 500, think_operations: 2, ..Pace::default() };
        let job = Job { pace, ..Job::default() };
        let began = clock::now();
        let mut pacer = Pacer::new(&job, began).unwrap();
        let late = began + Duration::from_micros(50);
        assert_eq!(pacer.started(&WRITE, late), late, "nobody waits while it thinks");
        assert_eq!(pacer.due(&WRITE), began);
        pacer.started(&WRITE, began);
        assert_eq!(pacer.due(&WRITE), began + Duration::from_micros(500));
        assert!(pacer.kept().is_none());
        assert!(Pacer::new(&Job::default(), began).is_none());
    }
}
