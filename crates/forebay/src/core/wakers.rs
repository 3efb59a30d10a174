//! Wakers of tasks that wait for a change of a file's pages.

use std::task::Waker;

use forebay_cache::Rare;

use crate::core::user_code;

/// Wakers of one file.
#[derive(Debug, Default)]
pub(crate) struct Wakers(Rare<Vec<Waker>>);

impl Wakers {
    pub(crate) fn push(&mut self, waker: Waker) {
        self.0.push(waker);
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Moves all wakers to `wakers`, for the caller to wake.
    pub(crate) fn drain_into(&mut self, wakers: &mut Vec<Waker>) {
        if !self.is_empty() {
            wakers.append(&mut self.0);
            self.0.tidy();
        }
    }
}

/// A dropped future leaves its waker behind. Its waker is woken, not dropped, so that no waiting
/// task is forgotten. A panic of it is caught.
impl Drop for Wakers {
    fn drop(&mut self) {
        user_code::wake_all(self.0.take());
    }
}
