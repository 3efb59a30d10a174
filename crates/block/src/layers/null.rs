//! A device that completes every request at once without doing anything, as the bottom of a stack
//! of layers.
//!
//! Requests complete with the doorbell, in order. Reads leave memory unchanged. The clock is its
//! own: it only advances in a doorbell that waits with nothing completed, which ends at its limit,
//! and in [`advance`](NullLayer::advance).

use alloc::vec::Vec;
use core::time::Duration;

use crate::bio::{Bio, Errno};
use crate::device::{Completion, Device, Refused, Tag, Wait};
use crate::time::Moment;

/// Device that completes every request at once without doing anything.
///
/// ```
/// use forebay_block::layers::NullLayer;
/// use forebay_block::{Device, Moment, Wait};
/// use std::time::Duration;
///
/// let mut device = NullLayer::new();
/// device.doorbell(Wait::Something(Some(Duration::from_nanos(5))))?;
/// assert_eq!(device.now(), Moment::from_nanoseconds(5));
/// # Ok::<(), forebay_block::Errno>(())
/// ```
#[derive(Debug, Default)]
pub struct NullLayer {
    now: Moment,
    staged: Vec<Completion>,
    completed: Vec<Completion>,
}

impl NullLayer {
    /// Creates a device whose clock is at 0.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Advances the clock.
    pub fn advance(&mut self, span: Duration) {
        self.now = self.now + span;
    }
}

impl Device for NullLayer {
    fn now(&mut self) -> Moment {
        self.now
    }

    fn prepare(&mut self, tag: Tag, request: &Bio) -> Result<(), Refused> {
        self.staged.push(Completion { tag, result: Ok(request.bytes()) });
        Ok(())
    }

    fn doorbell(&mut self, wait: Wait) -> Result<(), Errno> {
        self.completed.append(&mut self.staged);
        if let (true, Wait::Something(Some(limit)) | Wait::Batch { limit: Some(limit), .. }) =
            (self.completed.is_empty(), wait)
        {
            self.advance(limit);
        }
        Ok(())
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        completions.append(&mut self.completed);
    }
}
