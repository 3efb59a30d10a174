//! A load that runs for a time, on the thread that counts it: requests and copies.
//!
//! Operations that end in the time are counted. No files are made in it, and none is synced: the
//! path of an operation is measured and not durability.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_block::Moment;
use forebay_uring::clock;

use super::driver::{Drive, Source, Tally};
use super::error::CellError;
use super::lane::{Lane, LaneCounters};
use super::usage::Usage;
use crate::detail::Holds;

/// How long a closed loop runs. Counting begins in the middle of it: nothing is waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spans {
    /// Uncounted, at the start: the ring fills and the device wakes up.
    pub(crate) ramp: Duration,
    pub(crate) counted: Duration,
}

impl Spans {
    /// Returns a ramp of a tenth, 100 ms at most, and the counted time.
    pub(crate) fn of(counted: Duration) -> Self {
        const LONGEST: Duration = Duration::from_millis(100);
        Self { ramp: (counted / 10).min(LONGEST), counted }
    }

    /// Returns a time that is counted from its start.
    pub(crate) fn without_ramp(counted: Duration) -> Self {
        Self { ramp: Duration::ZERO, counted }
    }
}

/// Sets a flag when it is dropped: however a load ends, others hear of it.
pub(crate) struct SetOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Counts of a load that ran.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    pub(crate) tally: Tally,
    /// Up to one turn longer than was asked for.
    pub(crate) elapsed: Duration,
    pub(crate) counters: LaneCounters,
    /// How long completions were held.
    pub(crate) holds: Holds,
    pub(crate) usage: Usage,
}

impl Counted {
    /// Returns the seconds of one operation.
    pub(crate) fn seconds_each(&self) -> f64 {
        self.elapsed.as_secs_f64() / self.tally.operations as f64
    }
}

/// Runs a load for its time and counts, then waits until nothing is in flight. That last wait is
/// not counted.
pub(crate) fn count<S: Source, L: Lane>(
    drive: &mut Drive<S>,
    lane: &mut L,
    spans: Spans,
) -> Result<Counted, CellError> {
    let ramp_began = clock::now();
    turns(drive, lane, ramp_began, ramp_began + spans.ramp)?;
    drive.tallies = [Tally::new(), Tally::new()];
    let (before, held_before) = (lane.counters(), lane.holds());
    // The clock is read inside the two readings of the usage, so that these are not timed.
    let used_before = Usage::now();
    let began = clock::now();
    let stopped = turns(drive, lane, began, began + spans.counted)?;
    let usage = Usage::now().since(used_before);
    let [mut tally, writes] = drive.tallies.each_mut().map(Tally::take);
    tally.add(&writes);
    assert!(tally.operations > 0, "a load ran and nothing ended");
    let counters = lane.counters().since(before);
    let holds = lane.holds().since(&held_before);
    drive.drain(lane)?;
    Ok(Counted { tally, elapsed: stopped - began, counters, holds, usage })
}

/// Takes turns until `end`, and until at least one operation has ended. Returns the end of the last
/// turn.
fn turns<S: Source, L: Lane>(
    drive: &mut Drive<S>,
    lane: &mut L,
    mut now: Moment,
    end: Moment,
) -> Result<Moment, CellError> {
    while now < end || drive.counted() == 0 {
        (now, _) = drive.turn(lane, now)?;
    }
    Ok(now)
}
