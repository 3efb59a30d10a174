//! What was done, in numbers.

use crate::enter::Enters;

/// Counted since the start, but for the last two, which are as of now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Connections accepted.
    pub accepts: u64,
    /// Connections asked for that came about.
    pub connects: u64,
    /// Connections told closed.
    pub closes: u64,
    /// Pieces received.
    pub receives: u64,
    /// Bytes in them.
    pub received_bytes: u64,
    /// Gathered sends that ended well.
    pub sends: u64,
    /// Bytes they moved.
    pub sent_bytes: u64,
    /// Passes that handed out something.
    pub passes: u64,
    /// Of them those that left something for the next.
    pub passes_bounded: u64,
    /// Receives that found no buffer, and were started again later.
    pub exhausted: u64,
    /// Receiving stopped because what came was not taken, or what was to go was not read.
    pub pauses: u64,
    /// Calls of the kernel to move, wait or watch: for the ring its one call, for epoll each.
    pub enters: Enters,
    /// What other threads posted.
    pub posts: u64,
    /// Wakes that took: one for each batch posted.
    pub wakes: u64,
    /// Buffers with bytes that were not handed out, or are still held by who got them.
    pub buffers_out: u32,
    /// Connections that are there.
    pub connections: u32,
}
