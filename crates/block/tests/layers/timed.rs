//! A device with known times: virtual time, a latency per request from the test, and a record of
//! every call.

use std::collections::VecDeque;
use std::time::Duration;

use forebay_block::{
    Bio, Class, Completion, Device, Errno, Frame, Moment, Operation, Refused, Segment, Segments,
    Source, Tag, Target, Wait,
};
use proptest::prelude::*;

/// All operations.
pub(crate) const OPERATIONS: [Operation; 12] = [
    Operation::Read,
    Operation::Write,
    Operation::WriteBuffered,
    Operation::WriteFua,
    Operation::WriteZeroes,
    Operation::Discard,
    Operation::FlushData,
    Operation::FlushAll,
    Operation::FlushDirectory,
    Operation::Allocate,
    Operation::Punch,
    Operation::SetLength,
];

pub(crate) fn operation() -> impl Strategy<Value = Operation> {
    proptest::sample::select(&OPERATIONS[..])
}

/// Any wait of at most some hundred nanoseconds, or without a limit.
pub(crate) fn wait() -> impl Strategy<Value = Wait> {
    let span = || (0..400u64).prop_map(Duration::from_nanos);
    let limit = || prop::option::of(span());
    prop_oneof![
        Just(Wait::Not),
        limit().prop_map(Wait::Something),
        (1..6u32, span(), limit()).prop_map(|(want, within, limit)| Wait::Batch {
            want,
            within,
            limit
        }),
    ]
}

pub(crate) fn bio(operation: Operation, offset: u64, length: u64) -> Bio {
    let segments: Segments = match operation.moves_bytes() {
        true => [Segment::frames(Frame(0), length as u32)].into_iter().collect(),
        false => Segments::new(),
    };
    let (target, class, source) = (Target(0), Class::Waited, Source(0));
    Bio { operation, target, offset, length, segments, class, source, owner: 0 }
}

/// Device in virtual time.
#[derive(Debug, Default)]
pub(crate) struct Timed {
    now: u64,
    /// Latencies of the next requests, in nanoseconds; 0 after the last.
    latencies: VecDeque<u64>,
    /// Number of requests above which it refuses; 0 means no limit.
    capacity: usize,
    pub(crate) clock_reads: u64,
    pub(crate) doorbells: u64,
    /// Requests taken, in order.
    pub(crate) taken: Vec<(Tag, Bio)>,
    /// Completions of each reap, and its time.
    pub(crate) reaped: Vec<(Moment, Completion)>,
    staged: Vec<(Tag, u64)>,
    flying: Vec<(u64, Completion)>,
    completed: Vec<Completion>,
}

impl Timed {
    pub(crate) fn with_latencies(latencies: &[u64]) -> Self {
        Self { latencies: latencies.iter().copied().collect(), ..Self::default() }
    }

    pub(crate) fn with_capacity(self, capacity: usize) -> Self {
        Self { capacity, ..self }
    }

    /// Returns the time without counting a clock read.
    pub(crate) fn moment(&self) -> Moment {
        Moment::from_nanoseconds(self.now)
    }

    /// Returns the number of requests taken that have not completed.
    pub(crate) fn unfinished(&self) -> usize {
        self.staged.len() + self.flying.len()
    }

    pub(crate) fn pass(&mut self, span: Duration) {
        self.advance_to(self.now + span.as_nanos() as u64);
    }

    /// Advances to `now` and completes requests that are due by then, in order.
    fn advance_to(&mut self, now: u64) {
        self.now = now;
        self.flying.sort_by_key(|(due, _)| *due);
        let due = self.flying.partition_point(|(due, _)| *due <= now);
        self.completed.extend(self.flying.drain(..due).map(|(_, completion)| completion));
    }
}

impl Device for Timed {
    fn now(&mut self) -> Moment {
        self.clock_reads += 1;
        self.moment()
    }

    fn prepare(&mut self, tag: Tag, request: &Bio) -> Result<(), Refused> {
        if self.capacity > 0 && self.unfinished() >= self.capacity {
            return Err(Refused);
        }
        self.staged.push((tag, request.bytes()));
        self.taken.push((tag, request.clone()));
        Ok(())
    }

    fn doorbell(&mut self, wait: Wait) -> Result<(), Errno> {
        self.doorbells += 1;
        for (tag, bytes) in std::mem::take(&mut self.staged) {
            let due = self.now + self.latencies.pop_front().unwrap_or(0);
            self.flying.push((due, Completion { tag, result: Ok(bytes) }));
        }
        self.advance_to(self.now);
        let (want, within, limit) = match wait {
            Wait::Not => return Ok(()),
            Wait::Something(limit) => (1, Duration::MAX, limit),
            Wait::Batch { want, within, limit } => (want.max(1) as usize, within, limit),
        };
        let start = self.now;
        let after = |span: Duration| {
            start.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
        };
        while self.completed.len() < want {
            let end =
                if self.completed.is_empty() { limit.map(after) } else { Some(after(within)) };
            let next = self.flying.iter().map(|(due, _)| *due).min();
            match (next, end) {
                (Some(next), end) if end.is_none_or(|end| next <= end) => self.advance_to(next),
                (_, Some(u64::MAX) | None) => break,
                (_, Some(end)) => {
                    self.advance_to(end);
                    break;
                }
            }
        }
        Ok(())
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        let now = self.moment();
        self.reaped.extend(self.completed.iter().map(|&completion| (now, completion)));
        completions.append(&mut self.completed);
    }
}
