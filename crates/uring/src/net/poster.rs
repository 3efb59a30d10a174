//! How other threads reach the one that has the sockets: a list, first in first out, and one wake
//! for each batch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_lists::{WasEmpty, fifo};

use crate::waker::Waker;

/// Posts work to the thread that polls. Cheap to clone.
///
/// What is posted is told as [`What::Posted`](super::What::Posted), in the order it was posted.
/// Nothing bounds how much is queued but whoever posts. What is posted when the sockets are gone is
/// dropped with the last poster.
#[derive(Debug)]
pub struct Poster<W> {
    queue: fifo::Sender<W>,
    waker: Waker,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    posts: AtomicU64,
    wakes: AtomicU64,
}

impl<W> Poster<W> {
    /// Puts work behind all other work, and wakes the poll that waits. Does not block; a system
    /// call only where the list was empty and the thread asleep.
    pub fn post(&self, work: W) {
        self.counts.posts.fetch_add(1, Ordering::Relaxed);
        if self.queue.push(work) == WasEmpty::Yes {
            self.counts.wakes.fetch_add(1, Ordering::Relaxed);
            self.waker.wake();
        }
    }

    pub(super) fn new(waker: Waker) -> (Self, fifo::Receiver<W>) {
        let (queue, receiver) = fifo();
        (Self { queue, waker, counts: Arc::default() }, receiver)
    }

    /// What was posted, and how many wakes that took.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.counts.posts.load(Ordering::Relaxed), self.counts.wakes.load(Ordering::Relaxed))
    }
}

impl<W> Clone for Poster<W> {
    fn clone(&self) -> Self {
        Self {
            queue: self.queue.clone(),
            waker: self.waker.clone(),
            counts: Arc::clone(&self.counts),
        }
    }
}
