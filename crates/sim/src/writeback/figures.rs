//! Results of a run.

use super::lock::Tally;

/// Results of a run until the clock stopped.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Figures {
    /// Virtual time, in seconds.
    pub seconds: f64,
    /// Bytes settled.
    pub bytes: u64,
    /// Use of the locks by contexts.
    pub submission: Side,
    /// Use of the locks at the end of I/O.
    pub completion: Side,
    /// Share of the time that the most used lock was held.
    pub busiest_lock: f64,
    /// Share of the CPU time used.
    pub cores: f64,
    /// Share of the time that the device was writing.
    pub device: f64,
    /// Mean number of requests at the device.
    pub in_flight: f64,
    /// Mean bytes per request.
    pub request_bytes: f64,
    /// Extents per GiB of blocks.
    pub extents_per_gib: f64,
}

/// Use of the locks by one kind of actor.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Side {
    /// Times that a lock was taken.
    pub taken: u64,
    /// Times that the actor had to wait for it.
    pub waited: u64,
    /// Seconds waited, summed over all actors.
    pub wait_seconds: f64,
}

impl Side {
    pub(super) fn of(tally: Tally) -> Self {
        Self { taken: tally.taken, waited: tally.waited, wait_seconds: tally.wait.as_secs_f64() }
    }

    /// Returns the waits per thousand times taken.
    #[must_use]
    pub fn waits_per_thousand(&self) -> f64 {
        if self.taken == 0 { 0.0 } else { self.waited as f64 * 1000.0 / self.taken as f64 }
    }

    /// Returns the mean wait in microseconds.
    #[must_use]
    pub fn mean_wait_micros(&self) -> f64 {
        if self.waited == 0 { 0.0 } else { self.wait_seconds * 1e6 / self.waited as f64 }
    }
}

impl Figures {
    /// Returns the MiB settled per second.
    #[must_use]
    pub fn mib_per_second(&self) -> f64 {
        self.bytes as f64 / f64::from(1 << 20) / self.seconds
    }
}
