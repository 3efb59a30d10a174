//! What an engine has done, in numbers. Monotonic counters unless said otherwise.

/// Counters of an engine since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// Bytes accepted by writes.
    pub accepted_bytes: u64,
    /// Bytes the device was asked to write, zeroes over known holes included.
    pub written_bytes: u64,
    /// Of them zeroes written over known holes, to keep a write in one piece.
    pub zero_bytes: u64,
    /// Bytes the device was asked to read.
    pub read_bytes: u64,
    /// Bios submitted.
    pub bios: u64,
    /// Requests that reached the device; less than `bios` by what merged.
    pub requests: u64,
    /// Bios that joined a neighbour's request.
    pub merged_bios: u64,
    /// Calls that handed a batch to the device.
    pub doorbells: u64,
    /// Times completions were ended in one go, and were not empty.
    pub completion_runs: u64,
    /// Bios ended in those runs.
    pub completed_bios: u64,
    /// Requests sent again because they ended short, interrupted or would have blocked.
    pub resubmitted: u64,
    /// Syncs asked for.
    pub syncs: u64,
    /// Flushes of a file that reached the device.
    pub flushes: u64,
    /// Times a flush failed on a file that another program has mapped, and what it covered was written once more,
    /// through the kernel's cache.
    pub rewrites: u64,
    /// Times a writer waited for room.
    pub throttle_waits: u64,
    /// Bytes dirty or being written now (a level, not a counter).
    pub dirty_bytes: u64,
    /// The most that level has been.
    pub peak_dirty_bytes: u64,
    /// The most requests of background writeback that were in flight to one file system at a time.
    pub peak_flight: u64,
    /// Bytes of space asked for ahead of data.
    pub reserved_bytes: u64,
    /// Direct operations that were not aligned: copied, or a block read for a part of it.
    pub bounced: u64,
    /// Direct operations held by an explicit plug.
    pub plugged: u64,
    /// Bytes of the arena (fixed).
    pub arena_bytes: u64,
    /// How long completions were held so that they end together, in microseconds: the 99th percentile.
    pub hold_p99_us: u64,
    /// From a write's acceptance until the device had written it, in microseconds: the median ...
    pub written_latency_p50_us: u64,
    /// ... and the 99th percentile.
    pub written_latency_p99_us: u64,
    /// From a write's acceptance until it was durable, in microseconds, of what syncs covered: the median ...
    pub writeback_latency_p50_us: u64,
    /// ... and the 99th percentile.
    pub writeback_latency_p99_us: u64,
    /// The longest a writer waited for room, in microseconds.
    pub throttle_wait_max_us: u64,
    /// Bytes asked of the device before anybody asked for them.
    pub readahead_bytes: u64,
    /// Bytes written from the caller's own buffer, past the cache.
    pub bypassed_bytes: u64,
    /// Clean pages dropped for others' sake.
    pub evicted_pages: u64,
}
