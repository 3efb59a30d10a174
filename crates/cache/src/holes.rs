//! Pages known to be zero on disk: they had no data when the file was opened exclusively, and got
//! none since. They are not known if data and holes alternate often.
//!
//! And pages known to have data, also where the rest is not known: a second write of them needs no
//! space on most file systems.
//!
//! A page that is zero need not be read before a part of it is written. It may be filled with
//! zeroes to keep a request in one piece. This holds only while nobody else has the file open. A
//! page counts as written from the moment its data is sent, not from its arrival.
//!
//! The price is a bit per page written, and nothing for a file written from start to end.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::bits::{bits, parts};
use crate::limits::HOLE_ENTRIES;

/// Record of the pages that were ever written.
#[derive(Debug)]
pub struct Holes {
    /// Whether absence of a mark means anything.
    known: bool,
    /// All groups of 64 pages below this one are written.
    full_below: u64,
    written: BTreeMap<u64, u64>,
}

impl Holes {
    /// Creates the record of a file without data.
    #[must_use]
    pub fn all() -> Self {
        Self { known: true, full_below: 0, written: BTreeMap::new() }
    }

    /// Creates the record of a file with unknown content.
    #[must_use]
    pub fn unknown() -> Self {
        Self { known: false, full_below: 0, written: BTreeMap::new() }
    }

    /// Forgets everything, because another program may write.
    pub fn forget(&mut self) {
        *self = Self::unknown();
    }

    /// Returns whether the content is known.
    #[must_use]
    pub fn are_known(&self) -> bool {
        self.known
    }

    /// Returns whether `page` is certainly zero on disk.
    #[must_use]
    pub fn is_zero(&self, page: u64) -> bool {
        self.known && !self.is_written(page)
    }

    /// Returns whether `page` certainly has data.
    #[must_use]
    pub fn is_written(&self, page: u64) -> bool {
        let group = page / 64;
        group < self.full_below
            || self.written.get(&group).is_some_and(|bits| bits & (1 << (page % 64)) != 0)
    }

    /// Returns the last run of at least `least` pages in `pages` that are certainly zero.
    #[must_use]
    pub fn last_zero_run(&self, pages: Range<u64>, least: u64) -> Option<Range<u64>> {
        let start = pages.start.max(self.full_below * 64);
        let mut run = pages.end..pages.end;
        while run.start > start {
            let page = run.start - 1;
            // A whole group that was never written is taken in one step.
            let group = page / 64;
            if self.known
                && page % 64 == 63
                && group * 64 >= start
                && !self.written.contains_key(&group)
            {
                run.start = group * 64;
            } else if self.is_zero(page) {
                run.start = page;
            } else if run.end - run.start >= least {
                return Some(run);
            } else {
                run = page..page;
            }
        }
        (run.end - run.start >= least).then_some(run)
    }

    /// Records that data is written to these pages.
    pub fn mark_written(&mut self, pages: Range<u64>) {
        if pages.start <= self.full_below * 64 && pages.end / 64 > self.full_below {
            self.full_below = pages.end / 64;
            self.written = self.written.split_off(&self.full_below);
        }
        for (first, slot, count) in parts(pages.start.max(self.full_below * 64)..pages.end) {
            let group = first / 64;
            if group >= self.full_below {
                *self.written.entry(group).or_insert(0) |= bits(slot, count);
            }
        }
        while self.written.get(&self.full_below) == Some(&u64::MAX) {
            self.written.remove(&self.full_below);
            self.full_below += 1;
        }
        if self.written.len() > HOLE_ENTRIES {
            self.forget();
        }
    }

    /// Records that the file was truncated to `pages` pages, including a partial last one. The rest
    /// is a hole again.
    pub fn cut(&mut self, pages: u64) {
        let group = pages / 64;
        if group < self.full_below {
            // The group the cut falls into is listed again; those below it stay counted.
            self.full_below = group;
            self.written.insert(group, u64::MAX);
        }
        self.written.split_off(&(group + 1));
        if let Some(bits) = self.written.get_mut(&group) {
            *bits &= (1 << (pages % 64)) - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn agrees_with_a_plain_set(operations in proptest::collection::vec((0..4u8, 0..400u64), 1..80)) {
            let (mut holes, mut others) = (Holes::all(), Holes::unknown());
            let mut written = BTreeSet::new();
            for (what, page) in operations {
                match what {
                    0 => {
                        holes.cut(page);
                        others.cut(page);
                        written.retain(|at| *at < page);
                    }
                    _ => {
                        let pages = [page..page + 70, page % 65..page, page..page + 1];
                        let pages = pages[usize::from(what) - 1].clone();
                        holes.mark_written(pages.clone());
                        others.mark_written(pages.clone());
                        written.extend(pages);
                    }
                }
                let mut run = 0;
                let longest = (0..500).map(|page| { run = if written.contains(&page) { 0 } else { run + 1 }; run }).max();
                for least in [longest.unwrap_or(0), longest.unwrap_or(0) + 1] {
                    let found = holes.last_zero_run(0..500, least.max(1));
                    prop_assert_eq!(found.is_some(), least <= longest.unwrap_or(0) && least > 0);
                    if let Some(found) = found {
                        prop_assert!(found.end - found.start >= least);
                        prop_assert!(found.clone().all(|page| !written.contains(&page)));
                    }
                }
                for page in 0..500 {
                    prop_assert_eq!(holes.is_zero(page), !written.contains(&page), "page {}", page);
                    prop_assert_eq!(others.is_written(page), written.contains(&page));
                    prop_assert!(!others.is_zero(page));
                }
            }
        }
    }

    #[test]
    fn a_stream_costs_nothing() {
        let mut holes = Holes::all();
        for page in 0..100_000 {
            holes.mark_written(page..page + 1);
        }
        assert!(holes.written.len() <= 1);
    }
}
