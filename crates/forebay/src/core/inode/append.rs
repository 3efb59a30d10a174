//! The exclusive right to append.

use std::task::{Context, Poll};

use super::Inode;
use crate::core::user_code;

impl Inode {
    /// Takes the exclusive right to append, or to set the length. An append looks up the end and
    /// writes there before another one moves it. Also waits for a change of length whose caller was
    /// dropped.
    pub(crate) fn poll_append(&self, context: &Context<'_>) -> Poll<()> {
        let waker = context.waker().clone();
        let mut state = self.lock();
        if state.appending && !state.is_orphan {
            state.append_wakers.push(waker);
            return Poll::Pending;
        }
        if state.cache.is_being_cut() && !state.is_orphan {
            state.page_wakers.push(waker);
            return Poll::Pending;
        }
        state.appending = true;
        Poll::Ready(())
    }

    /// Gives up the right to append. Wakes only other appends. Otherwise an append that gives up
    /// its turn to wait for a page would wake itself, and others like it.
    pub(crate) fn end_append(&self) {
        let mut state = self.lock();
        state.appending = false;
        let wakers = state.append_wakers.take();
        drop(state);
        user_code::wake_all(wakers);
    }
}
