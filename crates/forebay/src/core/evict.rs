//! Eviction of clean pages, which frees frames for others.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

use forebay_cache::{Candidate, Verdict};

use crate::core::context::placement::Placement;
use crate::core::inode::change::After;
use crate::core::limits::{EVICT_BATCH, HIGH_ONE_IN, LOW_ONE_IN, RECLAIM_FRAMES};
use crate::core::shared::Shared;
use crate::core::stats::Counters;

impl Shared {
    /// Makes room, and takes memory from the kernel, for later calls.
    #[inline]
    pub(crate) fn work_ahead(&self) {
        self.make_room_ahead();
        self.touch_ahead();
    }

    /// Evicts pages in batches if few frames are free. Each caller evicts a part of the pages
    /// needed. While one caller evicts, others do not.
    pub(crate) fn make_room_ahead(&self) {
        let (free, frames) = (self.pool.free(), self.pool.arena().frames());
        if free >= frames / LOW_ONE_IN || self.evicting.swap(true, Ordering::Acquire) {
            return;
        }
        let wanted = (frames / HIGH_ONE_IN - free) as usize;
        self.evict(wanted.min(4 * EVICT_BATCH), 8 * EVICT_BATCH);
        let was_evicting = self.evicting.swap(false, Ordering::Release);
        assert!(was_evicting, "two callers would evict ahead of need");
    }

    /// Has another thread take memory from the kernel for the frames that callers use next: a fresh
    /// huge page takes longer than many writes.
    pub(crate) fn touch_ahead(&self) {
        let Some(frames) = self.pool.next_to_touch() else { return };
        let arena = Arc::clone(self.pool.arena());
        drop(self.offload.call(move || {
            arena.populate(frames);
            Ok(())
        }));
    }

    /// Evicts clean pages for a caller that needs this many frames for a file with this placement.
    /// If that is not enough, has `waker` woken when they are free. Returns true if there are
    /// enough to take now.
    pub(crate) fn reclaim_or_wait(
        &self,
        placement: &Placement,
        waker: &Waker,
        needed: u32,
    ) -> bool {
        // A page that was used three times stays for as many rounds; a page without a reader yet
        // stays for one.
        let all = self.pool.evictor().len();
        if self.evict(RECLAIM_FRAMES, 4 * all + EVICT_BATCH) < RECLAIM_FRAMES {
            self.collect_unused();
        }
        if self.pool.free() >= needed {
            return true;
        }
        debug_assert!(needed > 0, "a caller would wait for no frames");
        let is_first = self.pool.wait(waker, needed);
        self.contexts.look_for_waiter(placement, is_first);
        // Frames may have come back between the look and the registering.
        self.pool.free() >= needed
    }

    /// Evicts clean pages until `wanted` are dropped or `looks` pages were examined. Returns the
    /// number of pages dropped.
    fn evict(&self, wanted: usize, looks: usize) -> usize {
        let mut batch = Vec::with_capacity(EVICT_BATCH.min(wanted));
        let mut after = After::default();
        let (mut dropped, mut looked) = (0, 0);
        while dropped < wanted && looked < looks {
            batch.clear();
            self.pool.evictor().candidates((wanted - dropped).min(EVICT_BATCH), &mut batch);
            if batch.is_empty() {
                break;
            }
            looked += batch.len();
            self.ask_files(&mut batch, &mut after);
            self.pool.evictor().settle(&batch);
            self.finish(&mut after);
            dropped +=
                batch.iter().filter(|candidate| candidate.verdict == Verdict::Dropped).count();
        }
        debug_assert!(dropped <= looked, "a page is dropped twice");
        Counters::add(&self.counters.evicted_pages, dropped as u64);
        dropped
    }

    /// Lets each file decide about its candidates, one file after the other.
    fn ask_files(&self, batch: &mut [Candidate], after: &mut After) {
        batch.sort_by_key(|candidate| candidate.target);
        for of_file in batch.chunk_by_mut(|one, next| one.target == next.target) {
            let inode = self.table().by_target(of_file[0].target);
            let Some(inode) = inode else { continue };
            // Apart, so that a panic under the file's lock frees none of its frames.
            let mut of_this = After::default();
            let judged = inode.catch(|| {
                inode.change(self, &mut of_this, |file| {
                    file.apply(|cache, settled| cache.evict(of_file.iter_mut(), settled));
                });
            });
            if judged.is_none() {
                of_this.forget_frames();
                of_file.iter_mut().for_each(|candidate| candidate.verdict = Verdict::Gone);
            }
            after.append(&mut of_this);
        }
    }

    /// Collects unused credit and frames of all files.
    pub(crate) fn collect_unused(&self) {
        let inodes = self.table().inodes();
        self.finishing(|after| {
            for inode in inodes {
                inode.change(self, after, |file| {
                    file.give_back_unused();
                });
            }
        });
    }
}
