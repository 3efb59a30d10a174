//! The space of a ring.

use crate::point::Point;

/// The blocks of a ring that are in use, and the place of the next batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ring {
    blocks: u64,
    start: Point,
    next: Point,
}

impl Ring {
    /// Creates the ring of a log with no live batch: the next one begins at `start`.
    #[must_use]
    pub fn new(blocks: u64, start: Point) -> Self {
        Self { blocks, start, next: start }
    }

    /// Returns the number of blocks.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Returns the number of blocks that may not be overwritten.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.next.position - self.start.position
    }

    /// Returns where reading begins, by the durable head.
    #[must_use]
    pub fn start(&self) -> Point {
        self.start
    }

    /// Returns the point behind the last batch.
    #[must_use]
    pub fn next(&self) -> Point {
        self.next
    }

    /// Returns the point for a batch of this many blocks, or `None` if there is no room. A batch
    /// that does not fit before the end of the ring begins at the next lap.
    #[must_use]
    pub fn place(&self, blocks: u64) -> Option<Point> {
        let mut at = self.next;
        if at.position % self.blocks + blocks > self.blocks {
            at.position = next_lap(at.position, self.blocks);
        }
        let used = at.position + blocks - self.start.position;
        (blocks <= self.blocks && used <= self.blocks).then_some(at)
    }

    /// Records that a batch was submitted; its blocks are in use from then on. `next` is the point
    /// behind it.
    pub fn push(&mut self, next: Point) {
        assert!(next.position > self.next.position, "a batch takes blocks");
        self.next = next;
    }

    /// Records that a head that starts here is durable.
    pub fn advance(&mut self, start: Point) {
        assert!(
            (self.start.position..=self.next.position).contains(&start.position),
            "a head starts at a batch that is in the ring, or behind the last"
        );
        self.start = start;
    }
}

/// Returns the first position of the lap after this position.
pub(crate) fn next_lap(position: u64, blocks: u64) -> u64 {
    (position / blocks + 1) * blocks
}
