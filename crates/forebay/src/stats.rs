//! What an engine has done, in numbers. Counters that only grow, unless said otherwise.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_block::Latency;
use forebay_cache::limits::PAGE;

use crate::counters::OfQueue;
use crate::shared::Shared;

/// The numbers, and their names: a number is told by its field and by [`Stats::named`], and nowhere
/// else.
macro_rules! numbers {
    ($($(#[$doc:meta])+ $name:ident,)+) => {
        /// Counters of an engine since it was made.
        ///
        /// What ends in `_bytes` is in bytes, in `_us` in microseconds, in `_pages` in pages of
        /// 4096 bytes; the others are counts. They are read one after the other, while the engine
        /// goes on.
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        #[non_exhaustive]
        pub struct Stats {
            $($(#[$doc])+ pub $name: u64,)+
        }

        impl Stats {
            /// Every number with its name, which is that of its field.
            pub fn named(&self) -> impl ExactSizeIterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name),)+].into_iter()
            }
        }
    };
}

numbers! {
    /// Bytes accepted by writes.
    accepted_bytes,
    /// Bytes the device has written, zeroes over known holes included.
    written_bytes,
    /// Of them, bytes of zeroes written over known holes, to keep a write in one piece.
    zero_bytes,
    /// Bytes the device has read.
    read_bytes,
    /// Bios submitted.
    bios,
    /// Requests made of them, for the device; less than `bios` by what merged.
    requests,
    /// Bios that joined a neighbour's request.
    merged_bios,
    /// Calls that handed a batch to the device.
    doorbells,
    /// Times a batch was put off because more was expected to come.
    plug_holds,
    /// Times completions were ended in one go, and were not empty.
    completion_runs,
    /// Times a completion run was put off because more was expected to come.
    completion_holds,
    /// Bios ended in completion runs, well or not.
    completed_bios,
    /// Requests sent again because they ended short, interrupted, would have blocked, or failed
    /// with others.
    resubmitted,
    /// Syncs asked for.
    syncs,
    /// Flushes of a file that reached the device.
    flushes,
    /// Times a flush failed on a file that another program has mapped, and what it covered was
    /// written once more, through the kernel's cache.
    rewrites,
    /// Times a writer waited for room.
    throttle_waits,
    /// Bytes dirty or being written now (a level, not a counter).
    dirty_bytes,
    /// The most bytes that level has been.
    peak_dirty_bytes,
    /// The most requests of background writeback that were in flight to one file system at a time.
    peak_flight,
    /// Writeback contexts that files are spread among now (a level, not a counter).
    contexts,
    /// Times a file went from one context to another.
    handovers,
    /// Bios that went through another context than their file's, which had no room for them:
    /// overwrites.
    lent,
    /// Bytes of space asked for ahead of data: the next three together.
    reserved_bytes,
    /// Of them, bytes for files whose dirty pages are here and there, and becoming dense ...
    reserved_dense_bytes,
    /// ... for streams, which grow at their end ...
    reserved_stream_bytes,
    /// ... and for lengths that were declared.
    reserved_declared_bytes,
    /// Bytes of space allocated before a write was accepted, because the file system was nearly
    /// full.
    reserved_scarce_bytes,
    /// Bytes of reserved space given back, counted as reserved: some of them a file system may have
    /// had none for.
    given_back_bytes,
    /// Times no space was asked for ahead of data because the file system was nearly full ...
    unreserved_scarce,
    /// ... because the file could not be marked, so that nobody would have given it back after a
    /// crash ...
    unreserved_unmarked,
    /// ... and times it was asked for in vain.
    unreserved_failed,
    /// Direct operations that were not aligned: copied, or a block read for a part of it.
    bounced,
    /// Direct operations held by an explicit plug.
    plugged,
    /// Bytes of the arena (fixed).
    arena_bytes,
    /// How long completions were held so that they end together, in microseconds: the 99th
    /// percentile.
    hold_p99_us,
    /// From a write's acceptance until the device had written it, in microseconds: the median ...
    written_latency_p50_us,
    /// ... and the 99th percentile, in microseconds.
    written_latency_p99_us,
    /// From a write's acceptance until it was durable, in microseconds, of what syncs covered: the
    /// median ...
    writeback_latency_p50_us,
    /// ... and the 99th percentile, in microseconds.
    writeback_latency_p99_us,
    /// The longest a writer waited for room, in microseconds (a maximum).
    throttle_wait_max_us,
    /// Bytes asked of the device before anybody asked for them.
    readahead_bytes,
    /// Bytes written from the caller's own buffer, past the cache.
    bypassed_bytes,
    /// Clean pages dropped for others' sake.
    evicted_pages,
}

impl Shared {
    /// How long completions were held.
    pub(crate) fn holds(&self) -> Vec<(Duration, u64)> {
        self.counters.queue().holds.told().collect()
    }

    /// What has been done so far.
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
            lent: load(&counters.lent),
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
