//! Interface of a device: a ring over real files, or a simulated disk.
//!
//! A batch is: `prepare` each request, then one `doorbell`, then `reap`. A device never keeps a
//! request that it refused.

use alloc::vec::Vec;
use core::time::Duration;

use crate::bio::{Bio, Errno};
use crate::time::Moment;

/// Number of a request in flight, from a fixed set. Without a free tag no request is submitted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tag(pub u16);

/// Error of [`Device::prepare`]: the queue of the device is full. Ring the doorbell, reap, and try
/// again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused;

/// How long [`Device::doorbell`] waits for completions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Returns at once.
    Not,
    /// Returns when a request has completed, when the device was woken, or after this time (`None`:
    /// no limit).
    Something(Option<Duration>),
    /// As `Something`, but waits for several completions, because no caller waits for them. A
    /// device that was woken may return only after `within`, unless that is the limit.
    Batch {
        /// Returns as soon as this many requests have completed (at least 1).
        want: u32,
        /// Returns after this time if at least one request has completed.
        within: Duration,
        /// Returns after this time if no request has completed (`None`: no limit).
        limit: Option<Duration>,
    },
}

/// End of one request at the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// Tag of the request.
    pub tag: Tag,
    /// Bytes transferred (0 if the operation transfers none), or the error.
    pub result: Result<u64, Errno>,
}

/// Device that takes requests and ends them.
pub trait Device {
    /// Returns the current time of the device's clock. It is read once per batch; no other part
    /// reads a clock.
    fn now(&mut self) -> Moment;

    /// Stages one request under a tag. It reaches the device with the next doorbell.
    ///
    /// # Errors
    /// `Refused` if the queue is full; the request was not taken.
    fn prepare(&mut self, tag: Tag, request: &Bio) -> Result<(), Refused>;

    /// Submits all staged requests in one call, and waits as `wait` says.
    ///
    /// # Errors
    /// The error if the device itself is broken. Interrupted and busy calls are handled inside.
    fn doorbell(&mut self, wait: Wait) -> Result<(), Errno>;

    /// Appends the requests that have completed, in the order of completion.
    fn reap(&mut self, completions: &mut Vec<Completion>);
}
