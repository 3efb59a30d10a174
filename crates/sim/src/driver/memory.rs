//! The memory of a run: which clean pages go when there is too little, in the three steps of the
//! engine, with anything else between them.

use forebay_cache::{Candidate, Settled, Verdict};

use crate::driver::Driver;
use crate::driver::caller::{Activity, STASH};

/// Room is made ahead when fewer frames are free than one in so many, until so many are.
const LOW_ONE_IN: u32 = 32;
const HIGH_ONE_IN: u32 = 16;
const RESERVE_OF_LOW: u32 = 4;

/// Frames with what nobody has read yet, before nothing is read ahead any more: one in so many.
const UNREAD_ONE_IN: u32 = 4;

impl Driver {
    /// Frames that reading ahead may take.
    pub(super) fn room_ahead(&self) -> u64 {
        let total = self.frames.total();
        let unread: u64 = self
            .paths
            .iter()
            .filter_map(|path| path.inode.as_ref())
            .map(|inode| inode.cache.unread_pages())
            .sum();
        let spare =
            u64::from(self.frames.free().saturating_sub(total / LOW_ONE_IN / RESERVE_OF_LOW));
        u64::from(total / UNREAD_ONE_IN).saturating_sub(unread).min(spare)
    }

    /// Makes room ahead of whoever wants it next.
    pub(super) fn make_room_ahead(&mut self) {
        if self.frames.free() < self.frames.total() / LOW_ONE_IN {
            self.marks.hit("room made ahead");
            let wanted = (self.frames.total() / HIGH_ONE_IN - self.frames.free()) as usize;
            self.evict(wanted);
        }
    }

    /// No frame is free: drops clean pages, or sleeps until frames come back.
    pub(super) fn starve(&mut self, id: usize, activity: Activity) -> Activity {
        self.marks.hit("starved of frames");
        self.evict(STASH);
        // A page of which a part is written takes two.
        if self.frames.free() > 1 {
            return activity;
        }
        self.frame_waiters.push(id);
        self.context.is_awake = true;
        self.sleep(id, activity)
    }

    /// Drops up to `wanted` clean pages.
    pub(super) fn evict(&mut self, wanted: usize) {
        // Others that are at it come to their end.
        while self.end_evicting() {}
        let mut looks = 4 * self.evictor.len() + wanted;
        let mut dropped = 0;
        while dropped < wanted && looks > 0 {
            let asked = self.begin_evicting((wanted - dropped).min(looks));
            if asked == 0 {
                return;
            }
            looks -= asked;
            let before = self.frames.free();
            self.end_evicting();
            dropped += (self.frames.free() - before) as usize;
        }
    }

    /// Takes clean pages that may go; returns how many.
    pub(super) fn begin_evicting(&mut self, wanted: usize) -> usize {
        let mut batch = Vec::new();
        let count = self.evictor.candidates(wanted, &mut batch);
        if count > 0 {
            self.asked.push_back(batch);
        }
        count
    }

    /// Those taken first are judged by their files; false when none was taken.
    pub(super) fn end_evicting(&mut self) -> bool {
        let Some(mut batch) = self.asked.pop_front() else { return false };
        let mut settled = Settled::default();
        for candidate in &mut batch {
            // A file that is not open any more says nothing.
            let path = candidate.target.0 as usize;
            if let Some(inode) = &mut self.paths[path].inode {
                inode.cache.evict(std::iter::once(&mut *candidate), &mut settled);
                self.tell(path, &mut settled);
            }
            self.marks.hit(name(candidate));
        }
        if self.random.below(2) == 0 {
            self.absorb(&mut settled);
            self.evictor.settle(&batch);
        } else {
            self.evictor.settle(&batch);
            self.absorb(&mut settled);
        }
        true
    }

    /// Pages of a file have become clean.
    pub(super) fn enter_clean(&mut self, path: usize, settled: &mut Settled) {
        let target = self.inode(path).cache.target();
        for run in settled.clean.drain(..) {
            for (page, frame) in (run.page..).zip(run.frames.frames()) {
                self.evictor.enter(target, page, frame);
            }
        }
    }
}

fn name(candidate: &Candidate) -> &'static str {
    match candidate.verdict {
        Verdict::NotAsked => "candidate of a closed file",
        Verdict::Dropped => "evicted",
        Verdict::Stays => "candidate stays",
        Verdict::Unread => "candidate was not read yet",
        Verdict::Gone => "candidate was gone",
    }
}
