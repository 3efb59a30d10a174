//! A device that does nothing, at once: what lies under a stack of layers when the layers, or the
//! way above them, are what is looked at.
//!
//! Every request completes whole with the doorbell, in order. Reads leave memory as it is. The time
//! is its own: it stands still but for a doorbell that waits with nothing completed, which ends at
//! its limit, and for [`advance`](Null::advance). No memory is asked for once its lists have grown.

use alloc::vec::Vec;
use core::time::Duration;

use crate::bio::{Bio, Errno};
use crate::device::{Completion, Device, Refused, Tag, Wait};
use crate::time::Moment;

/// Takes everything, does nothing.
///
/// ```
/// use forebay_block::layers::Null;
/// use forebay_block::{Device, Moment, Wait};
/// use std::time::Duration;
///
/// let mut device = Null::new();
/// device.doorbell(Wait::Something(Some(Duration::from_nanos(5))))?;
/// assert_eq!(device.now(), Moment::from_nanoseconds(5));
/// # Ok::<(), forebay_block::Errno>(())
/// ```
#[derive(Debug, Default)]
pub struct Null {
    now: Moment,
    staged: Vec<Completion>,
    completed: Vec<Completion>,
}

impl Null {
    /// At the start of time.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets time pass.
    pub fn advance(&mut self, span: Duration) {
        self.now = self.now + span;
    }
}

impl Device for Null {
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
