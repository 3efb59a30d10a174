//! Counters that threads add to and [`Stats`](crate::Stats) reads.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters beside those of the queue, which its context publishes after each pass.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) accepted_bytes: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) reserved_bytes: AtomicU64,
    pub(crate) bounced: AtomicU64,
    pub(crate) plugged: AtomicU64,
    pub(crate) bypassed_bytes: AtomicU64,
    queue: Mutex<forebay_block::Counters>,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Ordering::Relaxed);
    }

    pub(crate) fn set_queue(&self, counters: forebay_block::Counters) {
        *self.queue.lock().unwrap_or_else(PoisonError::into_inner) = counters;
    }

    pub(crate) fn queue(&self) -> forebay_block::Counters {
        *self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
