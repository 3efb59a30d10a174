//! Counters of the sockets.

use forebay_uring::Enters;

/// Counts since the start. The last two are current values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NetCounters {
    /// Connections accepted.
    pub accepts: u64,
    /// Connections reported as closed.
    pub closes: u64,
    /// Pieces received.
    pub receives: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Successful sends; a send may gather several pieces.
    pub sends: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Passes that returned at least one event.
    pub passes: u64,
    /// Passes that left events for the next one.
    pub passes_bounded: u64,
    /// Receives that found no free buffer and were started again later.
    pub exhausted: u64,
    /// Times that receiving paused, because the caller did not take data or the peer did not read.
    pub pauses: u64,
    /// Calls of `io_uring_enter`.
    pub enters: Enters,
    /// Work items posted by other threads.
    pub posts: u64,
    /// Wakes for posted work, one per batch.
    pub wakes: u64,
    /// Buffers that hold received bytes now.
    pub buffers_out: u32,
    /// Connections that are open now.
    pub connections: u32,
}
