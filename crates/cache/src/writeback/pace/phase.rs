//! Phases of the trials of a flight.

/// One step while a far device is new, and how much more the device must do to have it.
pub(super) const FIRST_STEP: f64 = 2.0;
pub(super) const FIRST_WORTH: f64 = 1.4;

/// The largest stretch: some 50 ms of work at the default time.
pub(super) const MOST_STRETCH: f64 = 25.6;

/// A device must do this much more to have half as much again in flight.
pub(super) const WORTH: f64 = 1.08;

/// A device may do this much less with a third less in flight, and that is kept.
pub(super) const AS_GOOD: f64 = 0.97;

/// How much more, or less, a trial has in flight, and one step of the stretch is.
pub(super) const STEP: f64 = 1.5;

/// Windows between two trials, at first and at most.
pub(super) const FIRST_PAUSE: u32 = 8;
pub(super) const LONGEST_PAUSE: u32 = 256;

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
