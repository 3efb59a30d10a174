//! Space reserved ahead of data, so that a file lies in one piece.
//!
//! Random writes into holes make an extent each; the same writes into space that was allocated in one call make
//! one extent in all. So a span is allocated before its first page is sent, where the file is becoming dense
//! there; and a little beyond the end of a file that grows. What is reserved is remembered, to be given back:
//! beyond the end when the file is closed, below it where nothing was ever written.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::file::{CachedFile, Liberties, Reserving};
use crate::index::Chunk;
use crate::limits::{AHEAD_OF_FILE, AHEAD_OF_FREE, DENSE_ONE_IN, GATHER_PAGES, PAGE, RESERVE_PAGES};

/// What was reserved of one file, in bytes.
#[derive(Debug, Default)]
pub struct Space {
    ranges: BTreeMap<u64, u64>,
}

impl Space {
    /// Whether all of a range is reserved already.
    #[must_use]
    pub fn covers(&self, range: &Range<u64>) -> bool {
        self.ranges.range(..=range.start).next_back().is_some_and(|(_, end)| *end >= range.end)
    }

    /// A range is reserved now.
    pub fn add(&mut self, range: Range<u64>) {
        let mut merged = range;
        while let Some((&start, &end)) = self.ranges.range(..=merged.end).next_back() {
            if end < merged.start {
                break;
            }
            merged = merged.start.min(start)..merged.end.max(end);
            self.ranges.remove(&start);
        }
        self.ranges.insert(merged.start, merged.end);
    }

    /// The file was cut to `length` bytes: what was reserved beyond is gone.
    pub fn cut(&mut self, length: u64) {
        self.ranges.split_off(&length);
        if let Some((_, end)) = self.ranges.range_mut(..length).next_back() {
            *end = (*end).min(length);
        }
    }

    /// The end of what is reserved.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.ranges.last_key_value().map_or(0, |(_, end)| *end)
    }

    /// What is reserved, in order.
    pub fn ranges(&self) -> impl DoubleEndedIterator<Item = Range<u64>> + '_ {
        self.ranges.iter().map(|(start, end)| *start..*end)
    }
}

impl CachedFile {
    /// What has to be allocated before a run that starts at `first` is sent.
    pub(crate) fn reservation(&mut self, first: u64) -> Option<Range<u64>> {
        if self.reserving != Reserving::Adaptive || self.liberties == Liberties::Shared {
            return None;
        }
        if first < self.origin_pages || self.space.covers(&(first * PAGE..(first + 1) * PAGE)) {
            return None;
        }
        if self.reserve_pause > 0 {
            self.reserve_pause -= 1;
            return None;
        }
        let any = |_: u64, chunk: &Chunk| chunk.dirty;
        let lowest = self.index.next_dirty(self.origin_pages, u64::MAX, any)?;
        let end = self.index.last_dirty(first, any)? + 1;
        let start = (lowest / GATHER_PAGES * GATHER_PAGES).max(self.origin_pages);
        let dirty = self.index.count_dirty(start);
        if end - start < RESERVE_PAGES || dirty * DENSE_ONE_IN < end - start {
            // Counting costs a step per 64 pages, so a sparse file is looked at again after as many runs.
            self.reserve_pause = dirty / 64;
            return None;
        }
        // A length that was declared is reserved with it, where that is not mostly air.
        let declared = self.disk_size / PAGE;
        if declared > end && dirty * DENSE_ONE_IN >= declared - start {
            return Some(start * PAGE..declared * PAGE);
        }
        let growing = end * PAGE >= self.size / PAGE * PAGE;
        let beyond = if growing { ahead(self.size, self.free_bytes) } else { 0 };
        Some(start * PAGE..end * PAGE + beyond)
    }

    /// The last stretch below the end that was reserved, and where a whole request's worth was never written. A
    /// shorter one stays: giving it back would split the file.
    pub(crate) fn last_unused(&self) -> Option<Range<u64>> {
        let end = self.disk_size / PAGE;
        self.space.ranges().rev().find_map(|range| {
            let pages = range.start / PAGE..(range.end / PAGE).min(end);
            let run = self.holes.last_zero_run(pages, GATHER_PAGES)?;
            Some(run.start * PAGE..run.end * PAGE)
        })
    }
}

/// How many bytes beyond the end a growing file may reserve: whole pages.
#[must_use]
pub fn ahead(size: u64, free_bytes: u64) -> u64 {
    (size / AHEAD_OF_FILE).min(free_bytes / AHEAD_OF_FREE) / PAGE * PAGE
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn agrees_with_a_plain_set(operations in proptest::collection::vec((0..5u8, 0..60u64, 1..20u64), 1..60)) {
            let mut space = Space::default();
            let mut plain = BTreeSet::new();
            for (what, start, length) in operations {
                if what == 0 {
                    space.cut(start);
                    plain.retain(|at| *at < start);
                } else {
                    space.add(start..start + length);
                    plain.extend(start..start + length);
                }
                let listed: BTreeSet<u64> = space.ranges().flatten().collect();
                prop_assert_eq!(&listed, &plain);
                prop_assert_eq!(space.end(), plain.last().map_or(0, |at| at + 1));
                for at in 0..80 {
                    let range = at..at + 3;
                    prop_assert_eq!(space.covers(&range), range.clone().all(|byte| plain.contains(&byte)));
                }
            }
        }
    }

    #[test]
    fn contract_09_little_is_reserved_beyond_the_end() {
        assert_eq!(ahead(160 << 20, 1 << 40), 10 << 20);
        assert_eq!(ahead(160 << 20, 1 << 20), 8192);
        assert_eq!(ahead(4096, 1 << 40), 0);
    }
}
