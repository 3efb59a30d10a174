//! A place in the ring between two batches.

/// The place where a batch begins, and what fits there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Point {
    /// Block of the ring, counted from the first lap on: the block in the file is
    /// `HEADS + position % ring`.
    pub position: u64,
    /// Sequence number of the batch that begins here.
    pub sequence: u64,
    /// Checksum of the batch before it.
    pub chain: u32,
}
