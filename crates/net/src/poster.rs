//! Work from other threads: a list, first in first out, and one wake per batch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_lists::{WasEmpty, fifo};
use forebay_uring::Waker;

/// Handle that posts work to the polling thread. Cheap to clone.
///
/// Posted work arrives as [`What::Posted`](super::What::Posted), in order. The queue is unbounded.
/// Work posted after the sockets are dropped is dropped with the last poster.
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
    /// Appends work to the queue and wakes the polling thread. Does not block. Makes a system call
    /// only if the queue was empty and the thread was asleep.
    pub fn post(&self, work: W) {
        self.counts.posts.fetch_add(1, Ordering::Relaxed);
        if self.queue.push(work) == WasEmpty::Yes {
            self.counts.wakes.fetch_add(1, Ordering::Relaxed);
            self.waker.wake();
        }
    }

    pub(crate) fn new(waker: Waker) -> (Self, fifo::Receiver<W>) {
        let (queue, receiver) = fifo();
        (Self { queue, waker, counts: Arc::default() }, receiver)
    }

    /// Number of posted items, and of wakes.
    pub(crate) fn counts(&self) -> (u64, u64) {
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
