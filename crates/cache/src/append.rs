//! Appends to a shared file, which go past the cache: only the kernel knows the end at the moment
//! of a write.
//!
//! ```text
//! direct writes, kept --flush--> appended by the kernel --flush--> direct writes again
//!                                  \-- until then, all writes go through the kernel's cache
//! ```
//!
//! Appended bytes are not kept, so a flush that fails after them poisons the file. A flush can fail
//! because of a direct write to pages that another program has mapped, and that is repaired
//! (`kept.rs`). So one flush never covers both.

use std::ops::Range;

use crate::bits::{bits, parts};
use crate::file::CachedFile;
use crate::limits::PAGE;
use crate::settled::Settled;
use crate::writeback::flight::Flight;

impl CachedFile {
    /// Returns whether bytes can be appended past the cache of a shared file. The file system has
    /// every accepted byte, no page of the range is written here, which would hide them, and no
    /// direct write waits for its flush. Otherwise, a flush makes it so.
    #[must_use]
    pub fn can_append(&self, bytes: &Range<u64>) -> bool {
        let pages = bytes.start / PAGE..bytes.end.div_ceil(PAGE);
        let writes =
            |flight: &Flight| !matches!(flight, Flight::Fill { .. } | Flight::Flush { .. });
        self.sizes.size() == self.sizes.disk_size()
            && (!self.flushes.is_awaited() || self.flushes.poisoned().is_some())
            && !self.flights.all().any(writes)
            && parts(pages).all(|(page, slot, count)| {
                self.index.get(page).is_none_or(|(chunk, _)| {
                    bits(slot, count) & (chunk.dirty | chunk.busy | chunk.held()) == 0
                })
            })
    }

    /// Gives up pages that a poisoned file keeps. They would hide bytes that are appended past the
    /// cache, and no flush that ends well frees them.
    pub fn uncover_end(&mut self, settled: &mut Settled) {
        debug_assert!(self.flushes.poisoned().is_some(), "a flush may still prove what is kept");
        self.let_kept_go(settled);
    }

    /// Records that bytes were appended past the cache.
    pub fn note_appended(&mut self) {
        self.flushes.note_appended();
    }

    /// Returns whether pages are written through the page cache of the kernel now.
    pub(crate) fn writes_through(&self) -> bool {
        self.is_rewriting() || self.lease.is_shared() && self.flushes.covers_appended()
    }
}
