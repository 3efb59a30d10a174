//! On a shared file a written page keeps its frame until a flush that covers it has ended well.
//!
//! A direct write whose range another program has mapped may leave the kernel with a page it could
//! not drop: older bytes, which it may write over ours. It says so once, by an error of the next
//! flush, on every descriptor. So that is no failure of the device: written once more, through the
//! kernel's cache, both agree. That takes the bytes, and so they are kept.
//!
//! ```text
//! Dirty --written--> kept --flush sent--> covered --flush ended well--> gone
//!   ^                  |                     |
//!   +-- the flush failed: all of them, and until one ends well everything goes through the kernel's cache
//! ```
//!
//! What is kept is read from here (it may not be what the kernel has), may be touched in place, and
//! counts as dirty memory: it is a sync that makes room. Where nobody syncs the context does, when
//! memory is short ([`CachedFile::next_reclaim`]).
//!
//! Only where *all* that was written since the last good flush is kept can a second one prove
//! anything. What was written under the lease is not kept, so a flush belongs to giving the lease
//! up, and to opening a shared file that was there ([`CachedFile::lacks_frames`]). And a second
//! flush that fails with nothing but writes through the kernel's cache before it is a failure.

use forebay_block::{Bio, Errno, Operation};

use crate::bits::slots;
use crate::file::CachedFile;
use crate::limits::PAGE;
use crate::settled::Settled;
use crate::ticket::Failure;
use crate::writeback::flight::FlushStep;

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

    /// A flush has failed, and what it covered is not all here any more: it is a failure.
    pub(crate) fn poison(&mut self, errno: Errno, settled: &mut Settled) {
        self.flushes.poison(errno);
        self.let_kept_go(settled);
        self.tickets.fail_flushes(Failure::Flush(errno));
    }

    /// What is dirty was dropped: where it was to be written once more, that is lost.
    pub(crate) fn give_up_rewriting(&mut self, settled: &mut Settled) {
        // What was written before is as the file system has it, and a flush that fails is a
        // failure.
        self.let_kept_go(settled);
        if let Some(errno) = self.flushes.give_up_rewriting() {
            self.poison(errno, settled);
        }
    }

    /// Whether a flush is needed before the file can be let go of, or its lease.
    pub(crate) fn wants_flush(&self) -> bool {
        self.lease.is_shared()
            && self.flushes.poisoned().is_none()
            && (self.counts.charged() > 0 || self.lacks_frames())
    }

    /// No flush will prove anything any more: lets go of what is kept.
    pub(crate) fn let_kept_go(&mut self, settled: &mut Settled) {
        self.flushes.give_up_kept();
        self.end_keeping(u64::MAX, settled);
    }

    /// Pages of the chunk that begins with `first` were written.
    pub(crate) fn keep(&mut self, first: u64, mask: u64) {
        let (chunk, _) = self.index.get_mut(first).expect("a written page has a chunk");
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

    /// A page is dropped; whether it was kept, and so has to be uncharged where nothing else
    /// charges it.
    pub(crate) fn unkeep(&mut self, page: u64) -> bool {
        let (chunk, slot) = self.index.get_mut(page).expect("a page that is dropped has a chunk");
        let was_held = chunk.held() & (1 << slot) != 0;
        chunk.kept &= !(1 << slot);
        chunk.covered &= !(1 << slot);
        self.flushes.unkeep(u32::from(was_held));
        was_held
    }

    /// A flush is sent: what ends from here on it does not cover.
    pub(crate) fn begin_flush(&mut self) {
        self.flushes.begin();
        if self.flushes.kept_pages() > 0 {
            for (_, chunk) in self.index.chunks_mut() {
                chunk.covered |= std::mem::take(&mut chunk.kept);
            }
        }
    }

    /// It ended well: what it covered is durable.
    pub(crate) fn end_flush(&mut self, settled: &mut Settled) {
        self.flushes.end();
        self.end_keeping(0, settled);
    }

    /// Frames of covered pages are free, and of kept ones too as `kept` says, but of those that are
    /// in use otherwise.
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
            // Who is reading one lets go of it.
            let idle = chunk.idle_clean() | chunk.idle_partial();
            dropped.push((first, free & idle, ended & chunk.exact));
        }
        for (first, idle, exact) in dropped {
            slots(exact).for_each(|slot| self.end_keeping_exact(first + slot as u64));
            self.drop_idle(first, idle, settled);
        }
    }

    /// A flush failed. True where that is got over: what was written since the last good one is
    /// dirty again, as of before any sync that waits.
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

    /// What was written of a page counts for nothing: what is here, on its way or being copied in
    /// stands for it, and every sync that waits, waits for that.
    fn redo_from_start(&mut self, page: u64, settled: &mut Settled) {
        const OLDEST: u64 = 0;
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
            // More of it than was said before.
            settled.dirty_again.extend((chunk.dirty & bit != 0).then_some((page, frame)));
        } else if chunk.busy & bit != 0 {
            // In place, unless what was written is in a frame of its own.
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

    /// Others have cut a file that we keep pages of: those beyond are theirs to lose, unless
    /// somebody uses any.
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
