//! Large writes that go from the caller's own buffer to the device, past the cache. Under memory
//! pressure the caller would wait for room first, so copying its bytes is only a cost.
//!
//! The pages of such a write are busy while it is in progress: readers and writers of them wait. A
//! write goes past the cache only if it has whole pages below the end of the file, none of them
//! dirty or in use. All other writes go through the cache.

use std::ops::Range;

use crate::bits::{bits, parts};
use crate::file::CachedFile;
use crate::limits::PAGE;
use crate::settled::Settled;
use crate::writeback::flight::Flight;

/// Write past the cache that is in progress. It must be passed to [`CachedFile::end_bypass`], also
/// after an error.
#[derive(Debug)]
#[must_use = "its pages are busy until it is ended"]
pub struct Bypass {
    flight: u32,
    pages: Range<u64>,
}

impl CachedFile {
    /// Starts a write of whole pages past the cache, and drops the clean pages of the range.
    /// Returns `None` if the write must go through the cache, as always on a shared file.
    pub fn begin_bypass(&mut self, bytes: Range<u64>, settled: &mut Settled) -> Option<Bypass> {
        let pages = bytes.start / PAGE..bytes.end / PAGE;
        if self.lease.is_shared() {
            return None;
        }
        let is_whole =
            bytes.start.is_multiple_of(PAGE) && bytes.end.is_multiple_of(PAGE) && !pages.is_empty();
        if !is_whole
            || pages.end > self.sizes.disk_size() / PAGE
            || self.is_frozen()
            || self.sweep.is_draining()
        {
            return None;
        }
        if self.fences.unfenced_from(pages.start) < pages.end - pages.start {
            return None;
        }
        if self.flights.is_held() || !self.are_unused(pages.clone()) {
            return None;
        }
        self.drop_clean_in(&pages, settled);
        for (page, slot, count) in parts(pages.clone()) {
            let (chunk, _) = self.index.chunk_mut(page);
            chunk.busy |= bits(slot, count);
        }
        self.errors.forget_unreadable(&pages);
        self.holes.mark_written(pages.clone());
        let flight = self.flights.start(Flight::Bypass);
        Some(Bypass { flight, pages })
    }

    /// Ends a write past the cache, successful or not.
    pub fn end_bypass(&mut self, bypass: Bypass) {
        self.flights.end(bypass.flight);
        self.flushes.note_change();
        self.flushes.note_unkept();
        for (page, slot, count) in parts(bypass.pages) {
            let (chunk, _) = self.index.get_mut(page).expect("a busy page has a chunk");
            chunk.busy &= !bits(slot, count);
            self.index.tidy(page);
        }
    }

    /// Whether the pages are absent, or clean and used by nobody.
    fn are_unused(&self, pages: Range<u64>) -> bool {
        parts(pages).all(|(page, slot, count)| {
            self.index.get(page).is_none_or(|(chunk, _)| {
                bits(slot, count) & (chunk.here() | chunk.flight) & !chunk.idle_clean() == 0
            })
        })
    }
}
