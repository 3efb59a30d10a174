//! Written pages of a shared file keep their frames until a flush that covers them has ended well.
//!
//! If another program has mapped the range of a direct write, the kernel may keep a page that it
//! could not drop. Its older bytes may be written over ours. The kernel reports that once, as an
//! error of the next flush, on every descriptor. It is no failure of the device: if the pages are
//! written again through the kernel's cache, both agree. That takes the bytes, so they are kept.
//!
//! ```text
//! Dirty --written--> kept --flush sent--> covered --flush ended well--> dropped
//!   ^                  |                     |
//!   +-- the flush failed: all of them, and until one ends well writes go through the kernel's cache
//! ```
//!
//! Kept pages are read from memory (the kernel's may differ), may be touched in place, and count as
//! dirty memory. A sync frees them. If no caller syncs, the context does when memory is short
//! ([`CachedFile::next_reclaim`]).
//!
//! A second flush proves something only if *everything* written since the last good one is kept.
//! Pages written under the lease are not kept. So a flush is part of giving the lease up, and of
//! opening an existing shared file ([`CachedFile::lacks_frames`]). A second flush that fails after
//! nothing but writes through the kernel's cache is a failure.

use forebay_block::{Bio, Errno, Operation};

use crate::bits::slots;
use crate::file::CachedFile;
use crate::limits::PAGE;
use crate::settled::Settled;
use crate::ticket::Failure;
use crate::writeback::flight::FlushStep;

/// Epoch of pages to write again: before any sync that waits.
const OLDEST: u64 = 0;

impl CachedFile {
    /// Returns an upper bound of the pages whose frames are kept until a flush.
    #[must_use]
    pub fn kept_pages(&self) -> u64 {
        self.flushes.kept_pages()
    }

    /// Returns how often a flush failed and its data was written again.
    #[must_use]
    pub fn rewrites(&self) -> u64 {
        self.flushes.rewrites()
    }

    /// Returns a flush bio that frees kept frames, or `None` if it would free none or a flush is in
    /// flight.
    pub fn next_reclaim(&mut self) -> Option<Bio> {
        if self.flushes.kept_pages() == 0
            || self.flights.is_held()
            || self.flights.is_flushing()
            || self.sweep.is_draining()
        {
            return None;
        }
        self.begin_flush();
        Some(self.send_flush(Operation::FlushData, Vec::new(), FlushStep::File))
    }

    /// A flush that the engine has made by itself has failed, or the file cannot be flushed any
    /// more: every later sync fails.
    pub fn fail_flushes(&mut self, errno: Errno, settled: &mut Settled) {
        if self.flushes.poisoned().is_none() {
            self.poison(errno, settled);
        }
    }

    /// A flush has failed, and not all of its data is in memory: it is a failure.
    pub(crate) fn poison(&mut self, errno: Errno, settled: &mut Settled) {
        self.flushes.poison(errno);
        self.let_kept_go(settled);
        self.tickets.fail_flushes(Failure::Flush(errno));
    }

    /// Dirty pages were dropped. Those that had to be written again are lost.
    pub(crate) fn give_up_rewriting(&mut self, settled: &mut Settled) {
        // Earlier writes are as the file system has them, and a flush that fails is a failure.
        self.let_kept_go(settled);
        if let Some(errno) = self.flushes.give_up_rewriting() {
            self.poison(errno, settled);
        }
    }

    /// Returns whether a flush is needed before the file or its lease can be released.
    pub(crate) fn wants_flush(&self) -> bool {
        self.lease.is_shared()
            && self.flushes.poisoned().is_none()
            && (self.counts.charged() > 0 || self.lacks_frames())
    }

    /// Drops the kept pages, because no later flush can prove anything about them.
    pub(crate) fn let_kept_go(&mut self, settled: &mut Settled) {
        self.flushes.give_up_kept();
        self.end_keeping(u64::MAX, settled);
    }

    /// Keeps written pages of the chunk that begins with `first`.
    pub(crate) fn keep(&mut self, first: u64, mask: u64) {
        let (chunk, _) = self.index.get_mut(first).expect("a written page has a chunk");
        debug_assert!(self.lease.is_shared(), "pages are not kept under the lease");
        debug_assert_eq!(mask & !(chunk.present | chunk.partial | chunk.busy), 0);
        self.flushes.keep((mask & !chunk.held()).count_ones());
        chunk.kept |= mask;
        chunk.covered &= !mask;
    }

    /// Returns whether frames written since the last successful flush are no longer kept, so that a
    /// failed flush cannot be repaired.
    #[must_use]
    pub fn lacks_frames(&self) -> bool {
        self.flushes.lacks_frames()
    }

    /// Ends the keeping of a page that is dropped. Returns whether it was kept, and so must be
    /// uncharged unless something else charges it.
    pub(crate) fn unkeep(&mut self, page: u64) -> bool {
        let (chunk, slot) = self.index.get_mut(page).expect("a page that is dropped has a chunk");
        let was_held = chunk.held() & (1 << slot) != 0;
        chunk.kept &= !(1 << slot);
        chunk.covered &= !(1 << slot);
        self.flushes.unkeep(u32::from(was_held));
        was_held
    }

    /// A flush is sent. It does not cover writes that end from here on.
    pub(crate) fn begin_flush(&mut self) {
        self.flushes.begin(self.flights.is_empty(), self.sizes.disk_size());
        if self.flushes.kept_pages() > 0 {
            for (_, chunk) in self.index.chunks_mut() {
                chunk.covered |= std::mem::take(&mut chunk.kept);
            }
        }
    }

    /// A flush ended well: the writes that it covers are durable.
    pub(crate) fn end_flush(&mut self, settled: &mut Settled) {
        self.flushes.end(self.epochs.is_written(OLDEST));
        self.end_keeping(0, settled);
    }

    /// Frees the frames of covered pages that are not in use otherwise, and those of the kept pages
    /// in the mask `kept`.
    fn end_keeping(&mut self, kept: u64, settled: &mut Settled) {
        if self.flushes.kept_pages() == 0 {
            return;
        }
        let mut dropped = Vec::new();
        for (first, chunk) in self.index.chunks_mut() {
            let ended = chunk.covered | chunk.kept & kept;
            if ended == 0 {
                continue;
            }
            chunk.covered = 0;
            chunk.kept &= !kept;
            self.flushes.unkeep(ended.count_ones());
            let free = chunk.only_held(ended);
            self.counts.uncharge(free.count_ones());
            settled.uncharged += u64::from(free.count_ones());
            // The reader of a page drops it.
            let idle = chunk.idle_clean() | chunk.idle_partial();
            dropped.push((first, free & idle, ended & chunk.exact));
        }
        for (first, idle, exact) in dropped {
            slots(exact).for_each(|slot| self.end_keeping_exact(first + slot as u64));
            self.drop_idle(first, idle, settled);
        }
    }

    /// A flush failed. Returns whether that is repaired: everything written since the last good one
    /// is dirty again, with an epoch before any sync that waits.
    pub(crate) fn rewrite_kept(&mut self, errno: Errno, settled: &mut Settled) -> bool {
        if self.lease.is_exclusive() || !self.flushes.can_rewrite() {
            return false;
        }
        self.flushes.begin_rewrite(errno);
        let chunks = self.index.chunks_mut().filter(|(_, chunk)| chunk.held() != 0);
        let held: Vec<(u64, u64)> = chunks.map(|(first, chunk)| (first, chunk.held())).collect();
        for (first, held) in held {
            slots(held).for_each(|slot| self.redo_from_start(first + slot as u64, settled));
            let (chunk, _) = self.index.get_mut(first).expect("looked at above");
            (chunk.kept, chunk.covered) = (0, 0);
        }
        true
    }

    /// Makes a page unwritten again. Its version in memory, at the device or being copied stands
    /// for the written one, and every sync that waits covers it.
    fn redo_from_start(&mut self, page: u64, settled: &mut Settled) {
        self.redo_exact(page);
        let (chunk, slot) = self.index.get_mut(page).expect("a kept page has a chunk");
        let bit = 1 << slot;
        if let Some(epoch) = self.odd.redate_displaced(page, OLDEST) {
            self.epochs.remove(epoch, 1);
            self.epochs.add(OLDEST, 1);
            return;
        }
        let frame = chunk.frame(slot).expect("a kept page has a frame");
        if chunk.dirty & bit != 0 || chunk.sending & bit != 0 {
            self.epochs.remove(chunk.epoch(slot), 1);
            // More of its bytes than were recorded before.
            settled.dirty_again.extend((chunk.dirty & bit != 0).then_some((page, frame)));
        } else if chunk.busy & bit != 0 {
            // In place, unless the written version is in a frame of its own.
            if !self.odd.is_parked(page) {
                settled.dirty_again.push((page, frame));
            }
            if self.odd.owe(page, OLDEST) {
                self.epochs.add(OLDEST, 1);
            }
            return;
        } else {
            settled.dirty_again.push((page, frame));
            self.index.mark_dirty(page);
        }
        let (chunk, slot) = self.index.get_mut(page).expect("a kept page has a chunk");
        chunk.set_epoch(slot, OLDEST);
        self.epochs.add(OLDEST, 1);
    }

    /// Returns whether writes go through the page cache of the kernel, between a failed flush and
    /// the next successful one.
    #[must_use]
    pub fn is_rewriting(&self) -> bool {
        self.flushes.is_rewriting()
    }

    /// Another program has cut a file with kept pages. Drops those beyond the new end, unless a
    /// page is in use. Returns whether the new size may be adopted.
    pub(crate) fn may_follow_cut(&mut self, disk_size: u64, settled: &mut Settled) -> bool {
        if self.flushes.kept_pages() == 0 || disk_size >= self.sizes.size() {
            return true;
        }
        if !self.index.is_quiet() {
            return false;
        }
        self.drop_pages(disk_size / PAGE..u64::MAX, settled);
        self.flushes.note_unkept();
        true
    }
}
