//! The clean pages of a file: which of them may be dropped, and how.
//!
//! The evictor (`evict.rs`) orders the clean pages of all files. This file has the checks that only
//! the page's own file can make.

use std::ops::Range;

use crate::bits::{runs, slots};
use crate::evict::{Candidate, Verdict};
use crate::file::CachedFile;
use crate::frames::FrameRun;
use crate::index::Chunk;
pub use crate::settled::CleanRun;
use crate::settled::Settled;

impl CachedFile {
    /// Judges candidates of this file: drops pages that may be dropped, and sets the verdict of
    /// each.
    pub fn evict<'a>(
        &mut self,
        candidates: impl Iterator<Item = &'a mut Candidate>,
        settled: &mut Settled,
    ) {
        for candidate in candidates {
            debug_assert_eq!(candidate.target, self.target);
            candidate.verdict = self.judge(candidate, settled);
        }
    }

    fn judge(&mut self, candidate: &Candidate, settled: &mut Settled) -> Verdict {
        let page = candidate.page;
        let Some((chunk, slot)) = self.index.get_mut(page) else { return Verdict::Gone };
        let bit = 1 << slot;
        let is_clean = chunk.present & !(chunk.dirty | chunk.busy | chunk.sending) & bit != 0;
        if !is_clean || chunk.frame(slot) != Some(candidate.frame) {
            return Verdict::Gone;
        }
        if chunk.idle_clean() & bit == 0 {
            return Verdict::Stays;
        }
        if chunk.uses.give_up(bit) > 0 {
            self.counts.end_unread(1);
            return Verdict::Unread;
        }
        let (verdict, uses) = candidate.judge(chunk.uses.of(slot));
        chunk.uses.set(slot, uses);
        if verdict == Verdict::Dropped {
            self.drop_clean(page - slot as u64, bit, settled);
        }
        verdict
    }

    /// Returns the number of pages that were read ahead, or are being read, and have not been used.
    #[must_use]
    pub fn unread_pages(&self) -> u64 {
        self.counts.unread()
    }

    /// Returns whether a page is clean and not in use.
    #[must_use]
    pub fn is_idle_clean(&self, page: u64) -> bool {
        self.index.get(page).is_some_and(|(chunk, slot)| chunk.idle_clean() & 1 << slot != 0)
    }

    /// Returns whether a page is clean, not in use, and to be dropped once it is read.
    #[must_use]
    pub fn is_passing(&self, page: u64) -> bool {
        let passes = |(chunk, slot): (&Chunk, usize)| {
            chunk.uses.passing(chunk.idle_clean() & 1 << slot) != 0
        };
        self.index.get(page).is_some_and(passes)
    }

    /// Drops the clean pages of a range that nobody uses.
    pub(crate) fn drop_clean_in(&mut self, pages: &Range<u64>, settled: &mut Settled) {
        self.drop_idle_in(pages, Chunk::idle_clean, settled);
    }

    /// Drops the pages of a range that nobody uses: those of the mask that `which` returns, and
    /// partial pages that were written and kept for a flush.
    pub(crate) fn drop_idle_in(
        &mut self,
        pages: &Range<u64>,
        which: impl Fn(&Chunk) -> u64,
        settled: &mut Settled,
    ) {
        let chunks = self.index.chunks_in(pages);
        let idle = |chunk: &Chunk| which(chunk) | chunk.idle_partial();
        let idle = chunks.map(|(first, mask, chunk)| (first, idle(chunk) & mask));
        let idle: Vec<(u64, u64)> = idle.filter(|(_, mask)| *mask != 0).collect();
        idle.into_iter().for_each(|(first, mask)| self.drop_idle(first, mask, settled));
    }

    /// Drops unused pages of the chunk that begins with page `first`: clean pages, and partial
    /// pages that were written and kept for a flush.
    pub(crate) fn drop_idle(&mut self, first: u64, mask: u64, settled: &mut Settled) {
        let partial = self.index.get(first).map_or(0, |(chunk, _)| chunk.partial) & mask;
        slots(partial).for_each(|slot| self.drop_page(first + slot as u64, settled));
        self.drop_clean(first, mask & !partial, settled);
    }

    /// Drops clean pages that nobody uses, of the chunk that begins with page `first`.
    pub(crate) fn drop_clean(&mut self, first: u64, mask: u64, settled: &mut Settled) {
        if mask == 0 {
            return;
        }
        let (chunk, _) = self.index.get_mut(first).expect("a clean page has a chunk");
        debug_assert_eq!(mask & !chunk.idle_clean(), 0);
        chunk.present &= !mask;
        self.counts.end_unread(chunk.uses.forget(mask));
        settled.freed.extend(chunk.take_frames(mask));
        self.index.tidy(first);
    }

    /// Pages of the chunk that begins with page `first` have become clean, and stay.
    pub(crate) fn list_clean(&mut self, first: u64, mask: u64, settled: &mut Settled) {
        if mask == 0 {
            return;
        }
        let (chunk, _) = self.index.get_mut(first).expect("a clean page has a chunk");
        debug_assert_eq!(mask & !chunk.present, 0, "a page without content is not clean");
        debug_assert_eq!(mask & chunk.sending, 0, "a page at the device is not clean");
        for (slot, count) in runs(mask) {
            let mut done = 0;
            while done < count {
                let at = slot + done as usize;
                let frame = chunk.frame(at).expect("a clean page has a frame");
                let frames =
                    FrameRun { first: frame, count: chunk.frames_in_a_row(at, count - done) };
                settled.clean.push(CleanRun { page: first + at as u64, frames });
                done += frames.count;
            }
        }
    }
}
