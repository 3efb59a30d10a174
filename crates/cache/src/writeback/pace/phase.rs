//! Phases of the trials of a flight.

/// Phase of the trials.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Phase {
    /// A new device that may take longer than the set time for a request by itself: the flight
    /// doubles as long as that pays. The rate before the last step.
    First { before: f64 },
    /// Normal flight; the number of windows until the next trial.
    Rest(u32),
    /// The same, measured before a trial of this step.
    Before(f64),
    /// A trial of this step; the rate before.
    Trial { step: f64, before: f64 },
    /// As it should be, measured again; the rates before and in the trial.
    After { step: f64, before: f64, tried: f64 },
}
