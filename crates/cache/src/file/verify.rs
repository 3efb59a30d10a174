//! The invariants between the parts of a file.
//!
//! | of | and | must agree on |
//! |---|---|---|
//! | index | odd pages | which pages are partial, exact, displaced, or wait for a copy |
//! | index, odd pages | counts | pages charged, unread, failing and unwritable |
//! | index, odd pages | epochs | number of unwritten versions, which every sync waits for |
//! | index | flushes | number of kept pages |
//! | index | flights | pages being read or written |
//! | index | sizes | no dirty page lies beyond the end |
//! | lease | holes, flushes | a shared file has no known holes, an exclusive one keeps no pages |
//!
//! A check visits every page. Debug builds run it after each settled bio and each published write
//! of a small file, and less often for a large one. Release builds never run it.

use crate::bits::slots;
use crate::file::CachedFile;
use crate::file::counts::Counts;
use crate::file::odd::{Content, Older};
use crate::index::Chunk;
use crate::limits::PAGE;
use crate::writeback::flight::Flight;

/// Chunks whose check is cheap enough for each change of a file.
#[cfg(debug_assertions)]
const CHUNKS_PER_CHANGE: usize = 16;

impl CachedFile {
    /// Counts a change, and verifies the file if enough of them have been made for its size.
    #[inline]
    pub(crate) fn verify_change(&mut self) {
        #[cfg(debug_assertions)]
        {
            self.unverified += 1;
            if self.unverified * CHUNKS_PER_CHANGE > self.index.len() + self.odd.len() / 16 {
                self.unverified = 0;
                self.verify();
            }
        }
    }

    /// Asserts every invariant of the file. The cost is proportional to its pages in memory.
    ///
    /// # Panics
    /// If an invariant does not hold, which is a bug of this crate.
    pub fn verify(&self) {
        self.lease.verify();
        self.sizes.verify();
        self.index.verify();
        self.odd.verify();
        self.counts.verify();
        self.epochs.verify();
        self.flights.verify();
        self.tickets.verify();
        self.fences.verify();
        self.sweep.verify();
        self.flushes.verify();
        self.errors.verify();
        self.reserved.verify();
        self.ahead.verify();
        self.verify_counts();
        self.verify_odd_pages();
        self.verify_flights();
        self.verify_lease();
    }

    fn verify_counts(&self) {
        let (mut charged, mut unwritten, mut held) = (0, 0, 0);
        let (mut unread, mut failing, mut unwritable) = (0, 0, 0);
        for (_, chunk) in self.index.chunks() {
            let count = |mask: u64| u64::from(mask.count_ones());
            // A page that is written past the cache is busy without a frame.
            let copied = chunk.busy & chunk.with_frame();
            charged += count(chunk.dirty | chunk.sending | chunk.held() | copied);
            unwritten += count(chunk.dirty | chunk.sending);
            held += count(chunk.held());
            unread += u64::from(chunk.uses.unread());
            failing += count(chunk.failing);
            unwritable += count(chunk.unwritable);
        }
        for (_, content, _) in self.odd.all() {
            let is_displaced = matches!(content, Content::Displaced { .. });
            charged += u64::from(is_displaced);
            unwritten += u64::from(is_displaced || owes(content));
        }
        let counted = Counts::of(charged, unread, failing, unwritable);
        assert_eq!(self.counts, counted, "the counts of pages (left) are those of the index");
        assert_eq!(self.epochs.total(), unwritten, "each unwritten version has an epoch");
        assert_eq!(self.flushes.kept_pages(), held, "kept pages are counted");
    }

    fn verify_odd_pages(&self) {
        let (mut partials, mut exacts) = (0, 0);
        for (page, content, is_exact) in self.odd.all() {
            let Some((chunk, slot)) = self.index.get(page) else {
                // A fill brings what nobody waits for.
                assert!(matches!(content, Content::Plain) && !is_exact, "page {page} is gone");
                continue;
            };
            let is = |mask: u64| mask & (1 << slot) != 0;
            match content {
                Content::Plain => {}
                Content::Displaced { .. } => {
                    assert!(
                        is(chunk.flight & !chunk.sending),
                        "displaced page {page} is in flight"
                    );
                }
                Content::Copied(_) => assert!(is(chunk.busy), "page {page} is being copied into"),
                Content::Partial(partial) => {
                    partials += 1;
                    assert!(is(chunk.partial), "page {page} is partial");
                    assert!(
                        !partial.owes() || is(chunk.busy),
                        "page {page} owes until a copy ends"
                    );
                }
            }
            exacts += u64::from(is_exact);
            assert!(!is_exact || is(chunk.exact), "page {page} is exact");
        }
        let count = |which: fn(&Chunk) -> u64| -> u64 {
            self.index.chunks().map(|(_, chunk)| u64::from(which(chunk).count_ones())).sum()
        };
        assert_eq!(count(|chunk| chunk.partial), partials, "partial pages have records");
        assert_eq!(count(|chunk| chunk.exact), exacts, "exact pages have records");
        for page in self.errors.unreadable() {
            let is_here =
                self.index.get(page).is_some_and(|(chunk, slot)| chunk.present & 1 << slot != 0);
            assert!(!is_here, "page {page} could not be read, and is here");
        }
    }

    fn verify_flights(&self) {
        for flight in self.flights.all() {
            let Flight::Pages(run) = flight else { continue };
            for page in run.first..run.first + run.count {
                let is_marked =
                    self.index.get(page).is_some_and(|(chunk, slot)| chunk.flight & 1 << slot != 0);
                assert!(is_marked, "page {page} is at the device");
            }
        }
        for (first, chunk) in self.index.chunks() {
            for page in slots(chunk.filling).map(|slot| first + slot as u64) {
                assert!(self.flights.fills_of(page).next().is_some(), "page {page} is being read");
            }
        }
        let last = self.index.last_dirty(0, |_, chunk| chunk.dirty);
        assert!(
            last.is_none_or(|page| page * PAGE < self.sizes.size()),
            "{last:?} is beyond the end"
        );
    }

    fn verify_lease(&self) {
        let is_shared = self.lease.is_shared();
        assert!(!(is_shared && self.holes.are_known()), "another program may fill a hole");
        assert!(is_shared || self.flushes.kept_pages() == 0, "pages are kept under the lease");
        assert!(
            is_shared || !self.flushes.is_rewriting(),
            "pages are written again under the lease"
        );
        if self.sizes.is_device() {
            assert_eq!(self.sizes.tail_page(), None, "a device has no end to care for");
        }
    }
}

fn owes(content: &Content) -> bool {
    match content {
        Content::Copied(older) => !matches!(older, Older::Parked(_)),
        Content::Partial(partial) => partial.owes(),
        Content::Plain | Content::Displaced { .. } => false,
    }
}
