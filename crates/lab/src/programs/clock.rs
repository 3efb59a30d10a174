//! The clock of a program: its threads, its latencies, and what the process used meanwhile.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::Stage;
use super::spec::ProgramCell;
use crate::batching::{self, Counter};
use crate::load::CellError;
use crate::load::memory::resident_bytes;
use crate::load::usage::Usage;

const LONGEST_NS: u64 = 3_600_000_000_000;

/// When a thread ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Limit {
    Operations(u64),
    Time(Duration),
}

impl Limit {
    /// The limit of each thread of a cell.
    pub(super) fn of(cell: &ProgramCell) -> Self {
        let operations = (cell.load.probe.operations)(&cell.load);
        operations.map_or_else(
            || Self::Time(Duration::from_secs_f64(cell.seconds)),
            |all| Self::Operations((all / u64::from(cell.load.threads)).max(1)),
        )
    }

    /// Whether a thread that began then and has done `turn` operations does another. It does one at
    /// least.
    pub(super) fn allows(self, turn: u64, began: Instant) -> bool {
        match self {
            Self::Operations(all) => turn < all,
            Self::Time(time) => turn == 0 || began.elapsed() < time,
        }
    }
}

pub(super) struct Measured {
    pub(super) operations: u64,
    /// Of each operation by itself, if they end one by one.
    pub(super) latencies: Histogram<u64>,
    pub(super) elapsed: Duration,
    /// Bytes written, by the bulk writer if there is one.
    pub(super) bytes: u64,
    /// Bytes written by a bulk writer in another process, if there is one.
    pub(super) beside_bytes: Option<u64>,
    pub(super) usage: Usage,
    /// System calls, commits of the journal, and flushes of the disk, if they are counted.
    pub(super) counted: [Option<u64>; 3],
    /// Bytes of the process above its baseline, before and after the last sync: the larger.
    pub(super) resident_bytes: u64,
}

pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("these bounds make a histogram")
}

pub(super) fn record(latencies: &mut Histogram<u64>, began: Instant) {
    latencies.saturating_record(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
}

/// The process at the start of the clock.
pub(super) struct Meter {
    usage: Usage,
    counted: [Option<u64>; 3],
    began: Instant,
}

/// The counters that a program has to itself.
pub(super) const COUNTERS: [Counter; 3] =
    [Counter::SystemCalls, Counter::Commits, Counter::Flushes];

impl Meter {
    pub(super) fn start() -> Self {
        Self {
            usage: Usage::now(),
            counted: COUNTERS.map(batching::counted_alone),
            began: Instant::now(),
        }
    }

    /// Ends the clock after `finish`, the last sync.
    pub(super) fn stop(
        self,
        stage: &Stage<'_>,
        latencies: Histogram<u64>,
        finish: impl FnOnce() -> Result<(), CellError>,
    ) -> Result<Measured, CellError> {
        // Reading it is not part of the program, but takes microseconds.
        let resident = resident_bytes();
        finish()?;
        let elapsed = self.began.elapsed();
        let mut counted = COUNTERS.map(batching::counted_alone);
        for (now, before) in counted.iter_mut().zip(self.counted) {
            *now = now.zip(before).map(|(now, before)| now - before);
        }
        let usage = Usage::now().since(self.usage);
        let resident = resident.max(resident_bytes());
        Ok(Measured {
            operations: latencies.len(),
            latencies,
            elapsed,
            bytes: 0,
            beside_bytes: None,
            usage,
            counted,
            resident_bytes: resident.saturating_sub(stage.baseline_bytes),
        })
    }
}

/// Runs a program on its threads. `prepare` runs on each, before the clock starts, and returns a
/// closure for one operation, which returns when the operation began.
pub(super) fn clocked<O>(
    stage: &Stage<'_>,
    prepare: impl Fn(u32) -> Result<O, CellError> + Sync,
    finish: impl FnOnce() -> Result<(), CellError>,
) -> Result<Measured, CellError>
where
    O: FnMut(u64) -> Result<Instant, CellError>,
{
    let (threads, limit) = (stage.cell.load.threads, Limit::of(stage.cell));
    // Once when all are ready, once when the clock runs.
    let barrier = Barrier::new(threads as usize + 1);
    let thread = |index| {
        let prepared = prepare(index);
        barrier.wait();
        barrier.wait();
        let (mut operation, mut latencies) = (prepared?, histogram());
        let began = Instant::now();
        for turn in 0.. {
            if !limit.allows(turn, began) {
                break;
            }
            record(&mut latencies, operation(turn)?);
        }
        Ok(latencies)
    };
    thread::scope(|scope| {
        let thread = &thread;
        let running: Vec<_> =
            (0..threads).map(|index| scope.spawn(move || thread(index))).collect();
        barrier.wait();
        let meter = Meter::start();
        barrier.wait();
        let mut latencies = histogram();
        let ended: Vec<Result<_, CellError>> = running
            .into_iter()
            .map(|thread| thread.join().expect("a thread of a program does not panic"))
            .collect();
        for of_thread in ended {
            latencies.add(of_thread?).expect("all have the same bounds");
        }
        meter.stop(stage, latencies, finish)
    })
}
