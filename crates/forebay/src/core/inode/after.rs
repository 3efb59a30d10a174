//! Effects of changes of a file. They are collected under its lock and carried out after it.
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
use crate::core::user_code;
use crate::platform::thread;

/// Something for a context to do.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Look at the level.
    Look,
    /// Look at this file: it is dirty now, or a caller waits for it.
    LookAt(Arc<Inode>),
    /// As `LookAt`, but when the context next wakes by itself is soon enough.
    LookSoon(Arc<Inode>),
    /// This file has many dirty pages that are dropped after their write.
    Uncached(Arc<Inode>),
    /// Submit this bio of a caller.
    Submit(Arc<Inode>, Bio),
}

/// Effects to carry out once the lock is released.
#[derive(Debug, Default)]
pub(crate) struct After {
    pub(crate) wakers: Vec<Waker>,
    pub(super) effects: Vec<Effect>,
    /// [`Changing`](super::change::Changing) alone fills this, and empties the parts that need the
    /// lock.
    pub(super) settled: Settled,
    /// Number of pages to subtract from the level, for completed changes.
    pub(super) uncharged: u64,
    more: Option<Box<More>>,
}

/// Rare effects.
#[derive(Debug, Default)]
pub(super) struct More {
    /// Freed frames whose headers are already removed from the arena.
    pub(super) retired: FrameRuns,
    pub(super) told: Told,
}

impl After {
    /// Frees frames, lowers the level and counts latencies. Adds the tasks to wake to the wakers.
    /// No file may be locked.
    #[inline]
    pub(crate) fn settle(&mut self, base: &Base) {
        if self.has_frames() {
            self.settle_frames(base);
        }
        base.level.remove(std::mem::take(&mut self.uncharged), &mut self.wakers);
    }

    #[inline(never)]
    fn settle_frames(&mut self, base: &Base) {
        let mut more = self.more.take().unwrap_or_default();
        let mut freed = std::mem::take(&mut self.settled).freed();
        freed.append(&mut more.retired);
        if !freed.is_empty() {
            base.pool.give(&mut freed, &mut self.wakers);
        }
        if !more.told.is_empty() {
            base.counters.add_latencies(&mut more.told);
        }
    }

    /// Returns the rare effects, to add to them.
    pub(super) fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }

    /// Returns whether changes have reported frames, or something rare.
    #[inline]
    pub(crate) fn has_frames(&self) -> bool {
        !self.settled.is_empty() || self.more.is_some()
    }

    /// Appends the effects of another step.
    pub(crate) fn append(&mut self, other: &mut Self) {
        self.wakers.append(&mut other.wakers);
        self.effects.append(&mut other.effects);
        self.settled.append(&mut other.settled);
        self.uncharged += std::mem::take(&mut other.uncharged);
        if let Some(mut other) = other.more.take() {
            let More { retired, told } = self.more();
            retired.append(&mut other.retired);
            told.written.append(&mut other.told.written);
            told.durable.append(&mut other.told.durable);
        }
    }

    /// Drops the part of a step that a panic ended. Its frames are leaked: they may be in use, and
    /// frames to be zeroed or patched may belong to other files by now. Wakers, effects and the
    /// pages of completed changes stay.
    pub(crate) fn forget_frames(&mut self) {
        self.settled = Settled::default();
        self.more = None;
    }

    /// Returns whether no context and no task has to hear of it.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.effects.is_empty() && self.wakers.is_empty()
    }

    /// Removes and returns the effects for contexts, in the order of their recording.
    pub(crate) fn effects(&mut self) -> impl Iterator<Item = Effect> {
        self.effects.drain(..)
    }
}

/// A panic between a change and [`After::settle`] must not keep callers waiting.
impl Drop for After {
    #[inline]
    fn drop(&mut self) {
        if !self.wakers.is_empty() && thread::panicking() {
            user_code::wake_all(self.wakers.drain(..));
        }
    }
}
