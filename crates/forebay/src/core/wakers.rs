//! Who waits for a change of a file's pages, and how many that are on a file system: while there
//! are any, its completions are not held back.

use std::sync::Arc;
use std::task::Waker;

use crate::core::user_code;
use crate::core::volume::Volume;

/// Those of one file.
#[derive(Debug)]
pub(crate) struct Wakers {
    waiting: Vec<Waker>,
    volume: Arc<Volume>,
}

impl Wakers {
    pub(crate) fn new(volume: Arc<Volume>) -> Self {
        Self { waiting: Vec::new(), volume }
    }

    pub(crate) fn push(&mut self, waker: Waker) {
        self.waiting.push(waker);
        self.volume.waits(1);
    }

    /// Hands all of them over, to be woken.
    pub(crate) fn drain_into(&mut self, wakers: &mut Vec<Waker>) {
        if !self.waiting.is_empty() {
            self.volume.waits(-(self.waiting.len() as isize));
            wakers.append(&mut self.waiting);
        }
    }
}

/// A future that was dropped leaves its waker behind. It is woken rather than dropped: nothing ends
/// that is not answered, and a panic is caught.
impl Drop for Wakers {
    fn drop(&mut self) {
        let mut wakers = Vec::new();
        self.drain_into(&mut wakers);
        user_code::wake_all(wakers);
    }
}
