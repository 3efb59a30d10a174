//! Wakers of tasks that wait for a change of a file's pages. Each file system counts them: while it
//! has any, its completions are not held back.

use std::sync::Arc;
use std::task::Waker;

use crate::core::user_code;
use crate::core::volume::Volume;

/// Wakers of one file.
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

    /// Moves all wakers to `wakers`, for the caller to wake.
    pub(crate) fn drain_into(&mut self, wakers: &mut Vec<Waker>) {
        if !self.waiting.is_empty() {
            self.volume.waits(-(self.waiting.len() as isize));
            wakers.append(&mut self.waiting);
        }
    }
}

/// A dropped future leaves its waker behind. Its waker is woken, not dropped, so that no waiting
/// task is forgotten. A panic of it is caught.
impl Drop for Wakers {
    fn drop(&mut self) {
        let mut wakers = Vec::new();
        self.drain_into(&mut wakers);
        user_code::wake_all(wakers);
    }
}
