//! What came out of a run.

use super::lock::Tally;

/// Until the clock stopped.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Figures {
    /// Virtual time.
    pub seconds: f64,
    /// Bytes settled.
    pub bytes: u64,
    /// What contexts asked of the locks.
    pub submission: Side,
    /// What the end of I/O asked of them.
    pub completion: Side,
    /// Share of the time that the lock held longest was held.
    pub busiest_lock: f64,
    /// Share of the cores that worked.
    pub cores: f64,
    /// Share of the time that the device had something to write.
    pub device: f64,
    /// Requests at the device on the average.
    pub in_flight: f64,
    /// Bytes of a request on the average.
    pub request_bytes: f64,
    /// Extents in a GiB of blocks.
    pub extents_per_gib: f64,
}

/// One side's use of the locks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Side {
    /// Times one was taken.
    pub taken: u64,
    /// Of these, times it had to be waited for.
    pub waited: u64,
    /// Seconds waited, of all together.
    pub wait_seconds: f64,
}

impl Side {
    pub(super) fn of(tally: Tally) -> Self {
        Self { taken: tally.taken, waited: tally.waited, wait_seconds: tally.wait.as_secs_f64() }
    }

    /// Waits for each thousand times taken.
    #[must_use]
    pub fn waits_per_thousand(&self) -> f64 {
        if self.taken == 0 { 0.0 } else { self.waited as f64 * 1000.0 / self.taken as f64 }
    }

    /// Microseconds of a wait on the average.
    #[must_use]
    pub fn mean_wait_micros(&self) -> f64 {
        if self.waited == 0 { 0.0 } else { self.wait_seconds * 1e6 / self.waited as f64 }
    }
}

impl Figures {
    /// MiB settled in a second.
    #[must_use]
    pub fn mib_per_second(&self) -> f64 {
        self.bytes as f64 / f64::from(1 << 20) / self.seconds
    }
}
