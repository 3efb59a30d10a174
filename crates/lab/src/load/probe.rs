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
use std::time::Duration;

use forebay_uring::clock;

use super::driver::Tally;
use super::error::CellError;
use super::lane::{Lane, Wait};
use super::layout::JobPlan;
use super::sequence::{Kind, Operation};
use super::steps::{self, Pace};
use crate::cell::SyncProbe;
use crate::job::{Access, Amount, Direction, FinalSync, Job, Order, YesNo};

const EVERY: Duration = Duration::from_millis(10);
const BLOCK: u32 = 4096;
const LENGTH: u64 = 1 << 20;

/// Name of its file in the directory of the cell.
pub(crate) const FILE_NAME: &str = "sync-probe";

/// Returns its job, as far as opening files goes.
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

/// Probes until `stop` is set. Returns writes, each with its sync. The last may end after that.
pub(crate) fn run(
    plan: &JobPlan,
    lane: &mut dyn Lane,
    how: SyncProbe,
    stop: &AtomicBool,
) -> Result<Tally, CellError> {
    let content = plan.files[0].content;
    let every = if how == SyncProbe::Always { Duration::ZERO } else { EVERY };
    let pace = Pace { bytes: BLOCK, every, first: clock::now() + every };
    let mut ended = Vec::new();
    let step = |turn: u64| {
        let offset = turn * u64::from(BLOCK) % LENGTH;
        content.fill(offset, &mut lane.buffer(0)[..BLOCK as usize]);
        lane.start(0, Operation { kind: Kind::Write, file: 0, offset, bytes: BLOCK })?;
        lane.reap(Wait::For(1), &mut ended)?;
        assert_eq!(ended.len(), 1, "one write is in flight");
        ended.clear();
        lane.sync(0, FinalSync::Data)
    };
    steps::run(pace, |_| stop.load(Ordering::Acquire), step)
}
