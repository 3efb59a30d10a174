//! Estimate of what the next run of a file costs its file system, beside the cost of its bytes.
//!
//! Over a block that is written, a file system that overwrites in place has nothing to do. Over one
//! that is reserved it has to note that it is written now; over a hole it has to find a block, and
//! note that. On one disk random writes of 4 KiB went at 262, 93 and 72 MB/s. So where several
//! files have something to write, the background takes first what costs least, of those who have
//! about as much to write: the same time makes more room. It is a matter of files, not of places in
//! a file: within one, the order of offsets is worth more; and so is how much has gathered.
//!
//! A file system that never overwrites in place finds blocks every time: for its files the question
//! is not asked.

use crate::file::CachedFile;
use crate::index::Chunk;
use crate::limits::PAGE;

/// Cost of a write for the file system, cheapest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Effort {
    /// Overwrite of written blocks: no cost.
    Overwrite,
    /// Write to reserved blocks: the file system records that they are written.
    Reserved,
    /// Write to a hole: the file system allocates blocks. Also if this is unknown.
    Hole,
}

impl CachedFile {
    /// Returns the cost of the next run of background writeback, or `None` without one.
    #[must_use]
    pub fn effort(&self) -> Option<Effort> {
        let any = |_: u64, chunk: &Chunk| chunk.dirty;
        let page = self.index.next_dirty(self.sweep.cursor(), u64::MAX, any);
        let page = page.or_else(|| self.index.next_dirty(0, self.sweep.cursor(), any))?;
        Some(self.effort_of(page))
    }

    fn effort_of(&self, page: u64) -> Effort {
        let is_written = page < self.sizes.origin_pages()
            || self.sizes.is_device()
            || self.holes.are_known() && !self.holes.is_zero(page);
        if is_written {
            Effort::Overwrite
        } else if self.reserved.ranges().covers(&(page * PAGE..(page + 1) * PAGE)) {
            Effort::Reserved
        } else {
            Effort::Hole
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{Entry, Liberties, Origin};
    use forebay_block::Target;

    #[test]
    fn what_is_written_costs_least_and_what_is_not_known_costs_most() {
        let new = Origin::Empty { entry: Entry::Old };
        let mut file = CachedFile::new(Target(0), new, Liberties::Exclusive);
        assert_eq!(file.effort(), None, "nothing is dirty");
        assert_eq!(file.effort_of(5), Effort::Hole);
        file.reserved.add(0..10 * PAGE);
        assert_eq!(file.effort_of(5), Effort::Reserved);
        file.holes.mark_written(5..6);
        assert_eq!(file.effort_of(5), Effort::Overwrite);
        assert_eq!(file.effort_of(10), Effort::Hole);
        let file = CachedFile::new(Target(0), Origin::Existing(3 * PAGE), Liberties::Shared);
        assert_eq!(file.effort_of(2), Effort::Overwrite);
        assert_eq!(file.effort_of(3), Effort::Hole);
        let device = CachedFile::new(Target(0), Origin::Device(3 * PAGE), Liberties::Exclusive);
        assert_eq!(device.effort_of(2), Effort::Overwrite);
        assert!(Effort::Overwrite < Effort::Reserved && Effort::Reserved < Effort::Hole);
    }
}
