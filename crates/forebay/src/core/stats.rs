//! Counters and levels of an engine in one table. The fields of [`Stats`], their names and the
//! metrics of the feature `metrics` are made from it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_block::Latency;
use forebay_cache::limits::PAGE;

use crate::core::counters::OfQueue;
use crate::core::shared::Shared;

/// Makes [`Stats`] from the table of numbers. Each number has a kind (`counter` or `level`), a name
/// that ends in its unit, and a meaning. The meaning is its documentation and the help text of its
/// metric.
macro_rules! numbers {
    ($($(#[doc = $doc:literal])+ $kind:ident $name:ident,)+) => {
        /// Numbers of an engine since it was made, read with
        /// [`Engine::stats`](crate::Engine::stats).
        ///
        /// The unit is the end of a name: `_bytes`, `_us` (microseconds) or `_pages` (of 4096
        /// bytes); all others are counts. A number only grows unless its description calls it a
        /// level, a maximum or a percentile. The numbers are read one after the other while the
        /// engine runs, so sums may be off by what happened in between.
        ///
        /// ```
        /// use forebay::{Engine, Open};
        ///
        /// # fn main() -> forebay::Result<()> {
        /// # let directory = tempfile::tempdir_in(".").unwrap();
        /// # let path = directory.path().join("file");
        /// let engine = Engine::new()?;
        /// let file = engine.open(&path, Open::create())?;
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
    /// Bytes written by requests to devices, including the zeroes counted in `zero_bytes` but not
    /// the bytes counted in `bypassed_bytes`.
    counter written_bytes,
    /// Zero bytes written over known holes to keep a write contiguous.
    counter zero_bytes,
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
}

impl Shared {
    /// Returns how long completions were held, by duration.
    pub(crate) fn holds(&self) -> Vec<(Duration, u64)> {
        self.counters.queue().holds.reported().collect()
    }

    /// Returns the numbers of this engine.
    pub(crate) fn stats(&self) -> Stats {
        let OfQueue { counters: queue, holds } = self.counters.queue();
        let latencies = self.counters.latencies();
        let micros = |latency: &Latency, per_mille| latency.per_mille(per_mille).as_micros() as u64;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (counters, level) = (&self.counters, &self.level);
        let reserved = [
            &counters.reserved_dense_bytes,
            &counters.reserved_stream_bytes,
            &counters.reserved_declared_bytes,
        ];
        let reserved = reserved.map(load);
        Stats {
            accepted_bytes: load(&counters.accepted_bytes),
            written_bytes: queue.written_bytes,
            zero_bytes: queue.zero_bytes,
            read_bytes: queue.read_bytes,
            bios: queue.bios,
            requests: queue.requests,
            merged_bios: queue.merged_bios,
            doorbells: queue.doorbells,
            plug_holds: queue.plug_holds,
            completion_runs: queue.completion_runs,
            completion_holds: queue.completion_holds,
            completion_held_us: queue.completion_held_nanoseconds / 1000,
            completed_bios: queue.completed_bios,
            resubmitted: queue.resubmitted,
            syncs: load(&counters.syncs),
            flushes: load(&counters.flushes),
            rewrites: load(&counters.rewrites),
            throttle_waits: level.waits(),
            dirty_bytes: level.dirty() * PAGE,
            peak_dirty_bytes: level.peak() * PAGE,
            peak_flight: load(&counters.peak_flight),
            contexts: self.contexts.active() as u64,
            handovers: load(&counters.handovers),
            reserved_bytes: reserved.iter().sum(),
            reserved_dense_bytes: reserved[0],
            reserved_stream_bytes: reserved[1],
            reserved_declared_bytes: reserved[2],
            reserved_scarce_bytes: load(&counters.reserved_scarce_bytes),
            given_back_bytes: load(&counters.given_back_bytes),
            unreserved_scarce: load(&counters.unreserved_scarce),
            unreserved_unmarked: load(&counters.unreserved_unmarked),
            unreserved_failed: load(&counters.unreserved_failed),
            bounced: load(&counters.bounced),
            plugged: load(&counters.plugged),
            arena_bytes: u64::from(self.pool.arena().frames()) * PAGE,
            hold_p99_us: micros(&holds, 990),
            written_latency_p50_us: micros(&latencies.written, 500),
            written_latency_p99_us: micros(&latencies.written, 990),
            writeback_latency_p50_us: micros(&latencies.durable, 500),
            writeback_latency_p99_us: micros(&latencies.durable, 990),
            throttle_wait_max_us: level.longest_wait().as_micros() as u64,
            readahead_bytes: load(&counters.readahead_bytes),
            bypassed_bytes: load(&counters.bypassed_bytes),
            evicted_pages: load(&counters.evicted_pages),
        }
    }
}
