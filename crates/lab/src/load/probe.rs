//! The sync probe: a small writer that wants its bytes durable while the load is running.
//!
//! Every 10 ms it writes 4 KiB to a file of its own beside those of the load, through the arm's own
//! path, and syncs it, as a log would. The file is a megabyte laid out beforehand and written round
//! and round, so that the probe asks for no space. One probe is in flight at a time; when a sync
//! takes longer than its turn, the missed turns are skipped, and the time of the syncs is recorded,
//! not the wait of a queue behind them. If the small writer itself is measured, one sync follows
//! the other without a pause.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::CellError;
use super::driver::Tally;
use super::lane::Lane;
use super::layout::JobPlan;
use super::sequence::{Kind, Operation};
use crate::cell::SyncProbe;
use crate::job::{Access, Amount, Direction, FinalSync, Job, Order, YesNo};

const EVERY: Duration = Duration::from_millis(10);
const BLOCK: u32 = 4096;
const LENGTH: u64 = 1 << 20;

/// Name of its file in the directory of the cell.
pub(crate) const FILE_NAME: &str = "sync-probe";

/// Its job, as far as opening files goes.
pub(crate) fn job() -> Job {
    Job {
        name: "sync probe".into(),
        access: Access { direction: Direction::Write, order: Order::Sequential },
        files: vec![PathBuf::from(FILE_NAME)],
        size: Some(Amount::Bytes(LENGTH)),
        overwrite: YesNo::Yes,
        ..Job::default()
    }
}

#[derive(Debug)]
pub(crate) struct ProbeOutcome {
    /// Of a write and its sync together, in nanoseconds.
    pub(crate) latencies: Histogram<u64>,
    /// How many there were.
    pub(crate) operations: u64,
}

/// Probes until told to stop. The last one may end after that; it is not counted.
pub(crate) fn run(
    plan: &JobPlan,
    lane: &mut dyn Lane,
    how: SyncProbe,
    stop: &AtomicBool,
) -> Result<ProbeOutcome, CellError> {
    let file = &plan.files[0];
    let every = if how == SyncProbe::Always { Duration::ZERO } else { EVERY };
    let mut outcome = ProbeOutcome { latencies: Tally::new().latencies, operations: 0 };
    let mut ended = Vec::new();
    let mut due = Instant::now() + every;
    for turn in 0.. {
        while Instant::now() < due {
            if stop.load(Ordering::Acquire) {
                return Ok(outcome);
            }
            std::thread::park_timeout(due.saturating_duration_since(Instant::now()));
        }
        let offset = turn * u64::from(BLOCK) % LENGTH;
        file.content.fill(offset, &mut lane.buffer(0)[..BLOCK as usize]);
        let began = Instant::now();
        lane.start(0, Operation { kind: Kind::Write, file: 0, offset, bytes: BLOCK })?;
        lane.reap(1, &mut ended)?;
        lane.sync(0, FinalSync::Data)?;
        if stop.load(Ordering::Acquire) {
            return Ok(outcome);
        }
        ended.clear();
        outcome.latencies.saturating_record(began.elapsed().as_nanos() as u64);
        outcome.operations += 1;
        let now = Instant::now();
        while due <= now && !every.is_zero() {
            due += every;
        }
    }
    Ok(outcome)
}
