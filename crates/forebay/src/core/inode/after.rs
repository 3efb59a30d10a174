//! Effects of changes of a file, collected under its lock and carried out without.
//!
//! A change only records its effects, so a file does not have to know the contexts that act on
//! them. `Shared::finish` carries them out once the lock is released.

use std::sync::Arc;
use std::task::Waker;

use forebay_block::Bio;
use forebay_cache::samples::Told;
use forebay_cache::{FrameRuns, Settled};

use super::Inode;
use crate::core::base::Base;

/// Something for a context to do.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Look at the level.
    Look,
    /// Look at this file: it is dirty now, or a caller waits for it.
    LookAt(Arc<Inode>),
    /// Much of this file is dirty that does not stay in memory.
    Uncached(Arc<Inode>),
    /// Submit this bio of a caller.
    Submit(Arc<Inode>, Bio),
}

/// Effects to carry out once the lock is released.
#[derive(Debug, Default)]
pub(crate) struct After {
    pub(crate) wakers: Vec<Waker>,
    pub(super) effects: Vec<Effect>,
    /// Only [`Changing`](super::change::Changing) fills it, and empties it as far as that needs
    /// the lock.
    pub(super) settled: Settled,
    /// Freed frames whose headers are already removed from the arena.
    pub(super) retired: FrameRuns,
    pub(super) told: Told,
}

impl After {
    /// Frees frames, lowers the level and counts latencies. The wakers of those that can go on
    /// are appended. No file's lock may be held.
    #[inline]
    pub(crate) fn settle(&mut self, base: &Base) {
        self.settled.freed.append(&mut self.retired);
        if !self.settled.freed.is_empty() {
            base.pool.give(&mut self.settled.freed, &mut self.wakers);
        }
        base.level.remove(std::mem::take(&mut self.settled.uncharged), &mut self.wakers);
        if !self.told.is_empty() {
            base.counters.add_latencies(&mut self.told);
        }
    }

    /// Takes the effects for contexts, in the order of their recording.
    pub(crate) fn effects(&mut self) -> impl Iterator<Item = Effect> {
        self.effects.drain(..)
    }
}
