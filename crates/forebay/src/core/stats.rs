//! Counters and levels of an engine in one table. The fields of [`Stats`], their names and the
//! metrics of the feature `metrics` are made from it.
//!
//! [`Counters`] are those that threads add to and `Stats` reads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_block::Latency;
use forebay_cache::ReservedFor;
use forebay_cache::samples::Reported;

use crate::platform::sync::Mutex;

/// Makes [`Stats`] from the table of numbers. Each number has a kind (`counter` or `level`), a name
/// that ends in its unit, and a meaning. The meaning is its documentation and the help text of its
/// metric.
macro_rules! numbers {
    ($($(#[doc = $doc:literal])+ $kind:ident $name:ident,)+) => {
        /// Numbers of an engine since it was made, read with
        /// [`Engine::stats`](crate::Engine::stats).
        ///
        /// The unit is the end of a name: `_bytes`, `_us` (microseconds), `_pages` (of 4096 bytes)
        /// or `_per_second`; all others are counts. A number only grows unless its description
        /// calls it a level, a maximum or a percentile. The numbers are read one after the other
        /// while the engine runs, so sums may be off by what happened in between.
        ///
        /// ```
        /// use forebay::{Engine, OpenOptions};
        ///
        /// # fn main() -> forebay::Result<()> {
        /// # let directory = tempfile::tempdir_in(".").unwrap();
        /// # let path = directory.path().join("file");
        /// let engine = Engine::new()?;
        /// let file = engine.open(&path, OpenOptions::new().read(true).write(true).create(true))?;
        /// file.write_at(b"twelve bytes", 0)?;
        /// file.sync_data()?;
        /// let stats = engine.stats();
        /// assert_eq!((stats.accepted_bytes, stats.syncs), (12, 1));
        /// for (name, number) in stats.named() {
        ///     println!("{name} {number}");
        /// }
        /// # file.close()
        /// # }
        /// ```
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl Stats {
            /// Returns every number with the name of its field, in the order of the fields.
            pub fn named(&self) -> impl ExactSizeIterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name),)+].into_iter()
            }
        }

        /// Every number, in the order of the fields.
        #[cfg(feature = "metrics")]
        pub(crate) const NUMBERS: &[Number] = &[$(
            Number {
                name: stringify!($name),
                kind: numbers!(@kind $kind),
                meaning: concat!($($doc),+),
            },
        )+];
    };
    (@kind counter) => { Kind::Counter };
    (@kind level) => { Kind::Level };
}

/// One number of [`Stats`].
#[cfg(feature = "metrics")]
#[derive(Debug)]
pub(crate) struct Number {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// Starts with a space, as a doc comment does.
    pub(crate) meaning: &'static str,
}

/// Kind of a number.
#[cfg(feature = "metrics")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A number that only grows.
    Counter,
    /// A level, a maximum or a percentile.
    Level,
}

numbers! {
    /// Bytes accepted by writes and appends, cached and direct.
    counter accepted_bytes,
    /// Bytes written by requests to devices, including the bytes counted in `zero_bytes` and
    /// `clean_bytes` but not those counted in `bypassed_bytes`.
    counter written_bytes,
    /// Zero bytes written over known holes to keep a write contiguous.
    counter zero_bytes,
    /// Bytes of clean pages written once more between dirty ones, where a request costs more.
    counter clean_bytes,
    /// Bytes read by requests to devices.
    counter read_bytes,
    /// Bios submitted; a bio is one operation on one range of one file.
    counter bios,
    /// Requests made of bios; one request holds one or more adjacent bios.
    counter requests,
    /// Bios merged into the request of an adjacent bio.
    counter merged_bios,
    /// Calls that handed a batch of requests to the kernel, mostly `io_uring_enter`.
    counter doorbells,
    /// Batches delayed because more requests were expected.
    counter plug_holds,
    /// Runs that ended at least one completed request.
    counter completion_runs,
    /// Completion runs that were held back (knob `completion`).
    counter completion_holds,
    /// Time that completion runs were held back, in microseconds (sum).
    counter completion_held_us,
    /// Bios ended, successfully or not.
    counter completed_bios,
    /// Requests submitted again because they were short, interrupted, would have blocked, or
    /// failed after a merge.
    counter resubmitted,
    /// Syncs called, including those that shared a flush.
    counter syncs,
    /// Flushes (`fdatasync` or `fsync`) sent to a file.
    counter flushes,
    /// Syncs that a record of the intent log made durable.
    counter logged_syncs,
    /// Bytes of files in records of the intent log.
    counter logged_bytes,
    /// Writes of the intent log, each with a flush.
    counter log_batches,
    /// Times a file was brought into place because the intent log had records of it, or to give it
    /// its first mark.
    counter emptied_files,
    /// Bytes of the intent log in use (level).
    level log_bytes,
    /// Failed flushes of files mapped by another program that were repaired by writing the data
    /// again through the page cache of the kernel.
    counter rewrites,
    /// Times a writer waited because of the dirty limit.
    counter throttle_waits,
    /// Bytes dirty or being written now (level).
    level dirty_bytes,
    /// Largest value of `dirty_bytes` so far (maximum).
    level peak_dirty_bytes,
    /// Most requests of background writeback in flight to one file system at a time (maximum).
    level peak_flight,
    /// Writeback contexts in use now (level).
    level contexts,
    /// Files moved from one writeback context to another.
    counter handovers,
    /// Bytes of space reserved ahead of data: the sum of `reserved_dense_bytes`,
    /// `reserved_stream_bytes` and `reserved_declared_bytes`.
    counter reserved_bytes,
    /// Bytes of space reserved in files written at scattered places that are becoming dense.
    counter reserved_dense_bytes,
    /// Bytes of space reserved for files that grow at their end.
    counter reserved_stream_bytes,
    /// Bytes of space reserved for lengths declared with `set_len`.
    counter reserved_declared_bytes,
    /// Bytes of space allocated before a write was accepted because the file system was nearly
    /// full.
    counter reserved_scarce_bytes,
    /// Bytes of reserved space given back.
    counter given_back_bytes,
    /// Reservations skipped because the file system was nearly full.
    counter unreserved_scarce,
    /// Reservations skipped because the file could not be marked, so that a crash would have lost
    /// the space.
    counter unreserved_unmarked,
    /// Reservations refused by the file system.
    counter unreserved_failed,
    /// Direct operations that were not aligned and cost a copy or a read of a block.
    counter bounced,
    /// Direct operations held by an explicit plug.
    counter plugged,
    /// Bytes of memory of the cache (fixed).
    level arena_bytes,
    /// Time that completions were held so that they end together, in microseconds (99th
    /// percentile).
    level hold_p99_us,
    /// Time from the acceptance of a write until its data was at the device, in microseconds
    /// (median of a sample of one write in 64).
    level written_latency_p50_us,
    /// Time from the acceptance of a write until its data was at the device, in microseconds (99th
    /// percentile of a sample of one write in 64).
    level written_latency_p99_us,
    /// Time from the acceptance of a write until a sync made it durable, in microseconds (median of
    /// a sample of one write in 64).
    level writeback_latency_p50_us,
    /// Time from the acceptance of a write until a sync made it durable, in microseconds (99th
    /// percentile of a sample of one write in 64).
    level writeback_latency_p99_us,
    /// Longest time that a writer waited because of the dirty limit, in microseconds (maximum).
    level throttle_wait_max_us,
    /// Bytes read ahead of the reader.
    counter readahead_bytes,
    /// Bytes of cached writes that went straight from the caller's memory to the device.
    counter bypassed_bytes,
    /// Clean pages dropped to make room.
    counter evicted_pages,
    /// Requests that the disk makes in a second while more of them wait, as the completions of the
    /// last seconds of such work show; of several file systems the least, and 0 while unknown
    /// (level).
    level disk_requests_per_second,
    /// Bytes that the disk takes in a second, likewise (level).
    level disk_bytes_per_second,
    /// Time that a flush of one file takes, in microseconds (level; the least of the last seconds
    /// with a small sync, of several file systems the longest, and 0 while unknown).
    level flush_us,
}

/// Counters beside those of the queue, which its context publishes after each pass.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) accepted_bytes: AtomicU64,
    pub(crate) clean_bytes: AtomicU64,
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
        assert!(counters.completions >= queue.counters.completions, "counters only rise");
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
