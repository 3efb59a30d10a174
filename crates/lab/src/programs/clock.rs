//! The clock of a program: its threads, its latencies, and what the process used meanwhile.

use std::thread;
use std::time::{Duration, Instant};

use forebay_block::Moment;
use forebay_uring::clock;
use hdrhistogram::Histogram;

pub(crate) use super::program::Measured;
use super::stage::Stage;
use crate::batching::{self, Counter};
use crate::load::driver::Tally;
use crate::load::error::CellError;
use crate::load::memory::resident_bytes;
use crate::load::start::{Runner, StartLine};
use crate::load::steps::{self, Pace};
use crate::load::usage::Usage;

/// When a thread ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    Operations(u64),
    Time(Duration),
}

impl Limit {
    /// Returns the limit of each thread of a cell.
    pub(crate) fn of(stage: &Stage<'_>) -> Self {
        let load = &stage.load;
        assert!(load.threads > 0, "a program without a thread");
        let operations = (load.probe.operations)(load);
        operations.map_or_else(
            || Self::Time(Duration::from_secs_f64(stage.cell.seconds)),
            |all| Self::Operations((all / u64::from(load.threads)).max(1)),
        )
    }

    /// Returns whether a thread that began then and has done `turn` operations does another. It
    /// does one at least.
    pub(crate) fn allows(self, turn: u64, began: Moment) -> bool {
        match self {
            Self::Operations(all) => turn < all,
            Self::Time(time) => turn == 0 || clock::now() - began < time,
        }
    }
}

/// The process at the start of the clock.
pub(crate) struct Meter {
    usage: Usage,
    counted: [Option<u64>; 3],
    began: Instant,
}

/// The counters that a program has to itself.
pub(crate) const COUNTERS: [Counter; 3] =
    [Counter::SystemCalls, Counter::Commits, Counter::Flushes];

impl Meter {
    pub(crate) fn start() -> Self {
        Self {
            usage: Usage::now(),
            counted: COUNTERS.map(batching::counted_alone),
            began: Instant::now(),
        }
    }

    /// Ends the clock after `finish`, the last sync.
    pub(crate) fn stop(
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

/// Runs a program on its threads, as the other loads are run. `prepare` runs on each, before the
/// clock starts, and returns a closure for one operation, which takes its number and writes
/// `bytes`.
pub(crate) fn clocked<O: FnMut(u64) -> Result<(), CellError>>(
    stage: &Stage<'_>,
    bytes: u32,
    prepare: impl Fn(u32) -> Result<O, CellError> + Sync,
    finish: impl FnOnce() -> Result<(), CellError>,
) -> Result<Measured, CellError> {
    paced(stage, bytes, Duration::ZERO, prepare, finish)
}

/// Runs a program whose operations have their times, `every` so long. Missed times are skipped.
pub(crate) fn paced<O: FnMut(u64) -> Result<(), CellError>>(
    stage: &Stage<'_>,
    bytes: u32,
    every: Duration,
    prepare: impl Fn(u32) -> Result<O, CellError> + Sync,
    finish: impl FnOnce() -> Result<(), CellError>,
) -> Result<Measured, CellError> {
    let limit = Limit::of(stage);
    let warm = u64::from(stage.load.warm);
    let warmed = |index| {
        let mut step = prepare(index)?;
        (0..warm).try_for_each(&mut step)?;
        Ok(step)
    };
    let run = |index: u32, runner: Runner<()>| {
        let (mut step, ()) = runner.wait(warmed(index))?;
        let began = clock::now();
        let pace = Pace { bytes, every, first: began };
        steps::run(pace, |turn| !limit.allows(turn, began), |turn| step(warm + turn))
    };
    thread::scope(|scope| {
        let (mut line, run) = (StartLine::new(), &run);
        let mut running = Vec::new();
        for index in 0..stage.load.threads {
            let runner = line.runner();
            running.push(scope.spawn(move || run(index, runner)));
        }
        let open_gates = line.all_ready()?;
        let meter = Meter::start();
        open_gates(&());
        let ended: Vec<Result<_, CellError>> = running
            .into_iter()
            .map(|thread| thread.join().expect("a thread of a program does not panic"))
            .collect();
        let mut all = Tally::new();
        for of_thread in ended {
            all.add(&of_thread?);
        }
        assert!(all.operations > 0, "each thread does one operation at least");
        let bytes = all.bytes;
        Ok(Measured { bytes, ..meter.stop(stage, all.latencies, finish)? })
    })
}
