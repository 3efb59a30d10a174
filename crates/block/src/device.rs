//! What takes requests and ends them: a ring over real files, or the simulated disk.
//!
//! A batch is: `prepare` each request, then one `doorbell`, then `reap`. A device never keeps what
//! it refused.

use alloc::vec::Vec;
use core::time::Duration;

use crate::bio::{Bio, Errno};
use crate::time::Moment;

/// A number from a fixed set; no tag, no flight.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tag(pub u16);

/// The device's queue is full: ring the doorbell, reap, try again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused;

/// How long a doorbell may wait for completions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Submit, and return at once.
    Not,
    /// Submit, and return when something has completed, when somebody woke the device, or after
    /// this time (`None`: no limit).
    Something(Option<Duration>),
    /// As `Something`, but once something has completed wait on for more, as nobody waits for it.
    Batch {
        /// Return as soon as so many have completed; 1 at least.
        want: u32,
        /// From the start of the wait: return after this time where something has completed.
        within: Duration,
        /// Return after this time where nothing has (`None`: no limit).
        limit: Option<Duration>,
    },
}

/// The end of one request at the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// Which request.
    pub tag: Tag,
    /// Bytes moved (0 where the operation moves none), or what went wrong.
    pub result: Result<u64, Errno>,
}

/// Takes requests and ends them.
pub trait Device {
    /// The moment it is, by the device's clock. Read once per batch, so that no other part needs a
    /// clock.
    fn now(&mut self) -> Moment;

    /// Stages one request under a tag. Nothing reaches the device before the doorbell.
    ///
    /// # Errors
    /// `Refused` when the queue is full; the request was not taken.
    fn prepare(&mut self, tag: Tag, request: &Bio) -> Result<(), Refused>;

    /// Hands everything staged to the device in one costly call, and waits as told.
    ///
    /// # Errors
    /// Only when the device itself is broken; interrupted and busy are handled within.
    fn doorbell(&mut self, wait: Wait) -> Result<(), Errno>;

    /// Appends what has completed, in the order it completed.
    fn reap(&mut self, completions: &mut Vec<Completion>);
}
