//! Counters that threads add to and [`Stats`](crate::Stats) reads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_block::Latency;
use forebay_cache::ReservedFor;
use forebay_cache::samples::Reported;

use crate::platform::sync::Mutex;

/// Counters beside those of the queue, which its context publishes after each pass.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) accepted_bytes: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) rewrites: AtomicU64,
    pub(crate) reserved_dense_bytes: AtomicU64,
    pub(crate) reserved_stream_bytes: AtomicU64,
    pub(crate) reserved_declared_bytes: AtomicU64,
    pub(crate) reserved_scarce_bytes: AtomicU64,
    pub(crate) given_back_bytes: AtomicU64,
    pub(crate) unreserved_scarce: AtomicU64,
    pub(crate) unreserved_unmarked: AtomicU64,
    pub(crate) unreserved_failed: AtomicU64,
    pub(crate) bounced: AtomicU64,
    pub(crate) plugged: AtomicU64,
    pub(crate) readahead_bytes: AtomicU64,
    pub(crate) evicted_pages: AtomicU64,
    pub(crate) bypassed_bytes: AtomicU64,
    pub(crate) peak_flight: AtomicU64,
    pub(crate) handovers: AtomicU64,
    latencies: Mutex<Latencies>,
    /// Queues by the number of their context.
    queues: Mutex<Vec<OfQueue>>,
    /// Of the requests that callers have made themselves.
    of_callers: Mutex<forebay_block::Counters>,
}

/// Latencies of sampled writes.
#[derive(Clone, Default, Debug)]
pub(crate) struct Latencies {
    /// From acceptance until the device had written them.
    pub(crate) written: Latency,
    /// From acceptance until they were durable.
    pub(crate) durable: Latency,
}

/// Counters of a queue.
#[derive(Clone, Default, Debug)]
pub(crate) struct OfQueue {
    pub(crate) counters: forebay_block::Counters,
    /// Times that completions were held.
    pub(crate) holds: Latency,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Ordering::Relaxed);
    }

    /// Counts bytes reserved ahead of data.
    pub(crate) fn add_reserved(&self, purpose: ReservedFor, bytes: u64) {
        let counter = match purpose {
            ReservedFor::Dense => &self.reserved_dense_bytes,
            ReservedFor::Stream => &self.reserved_stream_bytes,
            ReservedFor::Declared => &self.reserved_declared_bytes,
        };
        Self::add(counter, bytes);
    }

    /// Notes the number of requests of background writeback in flight to a file system. Only
    /// contexts call this.
    pub(crate) fn note_flight(&self, requests: usize) {
        if requests as u64 > self.peak_flight.load(Ordering::Relaxed) {
            self.peak_flight.store(requests as u64, Ordering::Relaxed);
        }
    }

    /// Sets the counters of a context's queue. `held` is the time that its last completions were
    /// held.
    pub(crate) fn set_queue(
        &self,
        context: usize,
        counters: forebay_block::Counters,
        held: Duration,
    ) {
        let mut queues = self.queues.lock();
        if queues.len() <= context {
            queues.resize(context + 1, OfQueue::default());
        }
        let queue = &mut queues[context];
        debug_assert!(counters.completions >= queue.counters.completions, "counters only rise");
        let ended = counters.completions - queue.counters.completions;
        queue.holds.add(held.as_nanos() as u64, ended);
        queue.counters = counters;
    }

    /// Adds the counters of requests that a caller has made itself.
    pub(crate) fn add_of_caller(&self, counters: forebay_block::Counters) {
        *self.of_callers.lock() += counters;
    }

    /// Returns the bytes written by all contexts and callers.
    pub(crate) fn written_bytes(&self) -> u64 {
        let queues = self.queues.lock();
        let of_contexts: u64 = queues.iter().map(|queue| queue.counters.written_bytes).sum();
        drop(queues);
        of_contexts + self.of_callers.lock().written_bytes
    }

    /// Returns the counters of all contexts and callers together.
    pub(crate) fn queue(&self) -> OfQueue {
        let mut all = OfQueue { counters: *self.of_callers.lock(), ..OfQueue::default() };
        for queue in self.queues.lock().iter() {
            all.counters += queue.counters;
            all.holds += &queue.holds;
        }
        all
    }

    pub(crate) fn add_latencies(&self, reported: &mut Reported) {
        let mut latencies = self.latencies.lock();
        reported.written.drain(..).for_each(|nanoseconds| latencies.written.add(nanoseconds, 1));
        reported.durable.drain(..).for_each(|nanoseconds| latencies.durable.add(nanoseconds, 1));
    }

    pub(crate) fn latencies(&self) -> Latencies {
        self.latencies.lock().clone()
    }
}
