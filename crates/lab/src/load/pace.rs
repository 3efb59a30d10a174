//! Slowing a job down to the rate it asks for.
//!
//! Each direction has a schedule: an operation is due when all before it, at the rate asked for, would be done. Being
//! late is caught up with; being early waits. Thinking pauses after so many operations.

use std::time::{Duration, Instant};

use super::sequence::{Kind, Operation};
use crate::job::{Job, Pace, Rate};

/// When the next operation of a job may start.
#[derive(Debug)]
pub(crate) struct Pacer {
    pace: Pace,
    began: Instant,
    issued: [Issued; 2],
    since_thought: u32,
    thinks_until: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Issued {
    bytes: u64,
    operations: u64,
}

impl Pacer {
    /// None for a job in no need of slowing.
    pub(crate) fn new(job: &Job, began: Instant) -> Option<Self> {
        let idle = Pace { think_operations: job.pace.think_operations, ..Pace::default() };
        (job.pace != idle).then(|| Self {
            pace: job.pace,
            began,
            issued: [Issued::default(); 2],
            since_thought: 0,
            thinks_until: None,
        })
    }

    /// When this operation is due.
    pub(crate) fn due(&self, operation: &Operation) -> Instant {
        let issued = self.issued[operation.kind as usize];
        let rate = match operation.kind {
            Kind::Read => self.pace.read,
            Kind::Write => self.pace.write,
        };
        let due = self.began + rate.time_for(issued);
        self.thinks_until.map_or(due, |until| until.max(due))
    }

    /// It was started.
    pub(crate) fn started(&mut self, operation: &Operation, now: Instant) {
        let issued = &mut self.issued[operation.kind as usize];
        issued.bytes += u64::from(operation.bytes);
        issued.operations += 1;
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

    const WRITE: Operation = Operation { kind: Kind::Write, file: 0, offset: 0, bytes: 4096 };

    #[test]
    fn a_rate_spaces_operations() {
        let rate = Rate { operations_per_s: 100, bytes_per_s: 0 };
        let job = Job { pace: Pace { write: rate, ..Pace::default() }, ..Job::default() };
        let began = Instant::now();
        let mut pacer = Pacer::new(&job, began).unwrap();
        assert_eq!(pacer.due(&WRITE), began);
        pacer.started(&WRITE, began);
        pacer.started(&WRITE, began);
        assert_eq!(pacer.due(&WRITE), began + Duration::from_millis(20));
    }

    #[test]
    fn thinking_pauses_after_so_many() {
        let pace = Pace { think_us: 500, think_operations: 2, ..Pace::default() };
        let job = Job { pace, ..Job::default() };
        let began = Instant::now();
        let mut pacer = Pacer::new(&job, began).unwrap();
        pacer.started(&WRITE, began);
        assert_eq!(pacer.due(&WRITE), began);
        pacer.started(&WRITE, began);
        assert_eq!(pacer.due(&WRITE), began + Duration::from_micros(500));
        assert!(Pacer::new(&Job::default(), began).is_none());
    }
}
