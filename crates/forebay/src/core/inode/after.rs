//! Effects of changes of a file. They are collected under its lock and carried out after it.
//!
//! A change only records its effects, so a file does not have to know the contexts that act on
//! them. `Shared::finish` carries them out once the lock is released.

use std::sync::Arc;
use std::task::Waker;

use forebay_block::Bio;
use forebay_cache::samples::Reported;
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

/// Effects to carry out once the lock is released. Most changes have none, so memory for them is
/// allocated by the first one.
#[derive(Debug, Default)]
pub(crate) struct After {
    /// [`Changing`](super::change::Changing) alone fills this, and empties the parts that need the
    /// lock.
    pub(super) settled: Settled,
    effects: Option<Box<Effects>>,
}

/// Effects of some changes.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    pub(crate) wakers: Vec<Waker>,
    pub(super) of_contexts: Vec<Effect>,
    /// Number of pages to subtract from the level, for completed changes.
    pub(super) uncharged: u64,
    /// Freed frames whose headers are already removed from the arena.
    pub(super) retired: FrameRuns,
    pub(super) reported: Reported,
}

impl After {
    /// Returns whether there is nothing to carry out.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.settled.is_empty() && self.effects.is_none()
    }

    /// Returns the effects so far, to add to them.
    pub(crate) fn effects(&mut self) -> &mut Effects {
        self.effects.get_or_insert_default()
    }

    /// Has a context do something.
    pub(super) fn push(&mut self, effect: Effect) {
        self.effects().of_contexts.push(effect);
    }

    /// Frees frames, lowers the level and counts latencies. Adds the tasks to wake to the wakers.
    /// No file may be locked.
    pub(crate) fn settle(&mut self, base: &Base) {
        let mut freed = std::mem::take(&mut self.settled).freed();
        let Effects { wakers, uncharged, retired, reported, .. } = self.effects();
        freed.append(retired);
        if !freed.is_empty() {
            base.pool.give(&mut freed, wakers);
        }
        base.level.remove(std::mem::take(uncharged), wakers);
        if !reported.is_empty() {
            base.counters.add_latencies(reported);
        }
    }

    /// Appends the effects of another step.
    pub(crate) fn append(&mut self, other: &mut Self) {
        self.settled.append(&mut other.settled);
        let Some(mut other) = other.effects.take() else { return };
        let effects = self.effects();
        effects.wakers.append(&mut other.wakers);
        effects.of_contexts.append(&mut other.of_contexts);
        effects.uncharged += std::mem::take(&mut other.uncharged);
        effects.retired.append(&mut other.retired);
        effects.reported.written.append(&mut other.reported.written);
        effects.reported.durable.append(&mut other.reported.durable);
    }

    /// Drops the part of a step that a panic ended. Its frames are leaked: they may be in use, and
    /// frames to be zeroed or patched may belong to other files by now. Wakers, effects and the
    /// pages of completed changes stay.
    pub(crate) fn forget_frames(&mut self) {
        self.settled = Settled::default();
        if let Some(effects) = &mut self.effects {
            effects.retired = FrameRuns::default();
            effects.reported = Reported::default();
        }
    }
}

impl Effects {
    /// Removes and returns the effects for contexts, in the order of their recording.
    pub(crate) fn of_contexts(&mut self) -> impl Iterator<Item = Effect> {
        self.of_contexts.drain(..)
    }
}

/// A panic between a change and [`After::settle`] must not keep callers waiting.
impl Drop for Effects {
    fn drop(&mut self) {
        if thread::panicking() {
            user_code::wake_all(self.wakers.drain(..));
        }
    }
}
