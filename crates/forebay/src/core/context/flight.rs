//! Requests of a context in flight to one file system, their limit, and the dirty files there.
//!
//! Each file system (device number) has its own, so that a slow one delays no other: it has a
//! flight of its own, and its files take turns among themselves.

use std::collections::VecDeque;
use std::sync::Arc;

use forebay_block::{Bio, Class, Ended, Moment, Operation};
use forebay_cache::writeback::pace::{Bound, Pace};

use crate::core::inode::Inode;
use crate::core::limits::{DIRTIEST_OF, FLIGHT};
use crate::core::space::volume::Volume;

/// Flight of a context to one file system.
#[derive(Debug)]
pub(crate) struct Flight {
    /// Number of the context.
    context: usize,
    pub(crate) volume: Arc<Volume>,
    pub(crate) pace: Pace,
    /// Dirty files; the first one is written next.
    pub(crate) dirty: VecDeque<Arc<Inode>>,
    /// Whether the first dirty file is in the middle of its sweep.
    pub(crate) in_turn: bool,
    /// Whether the file system counts this context as writing.
    is_reported: bool,
}

impl Flight {
    pub(crate) fn new(context: usize, volume: Arc<Volume>, bound: Bound) -> Self {
        let (pace, dirty) = (Pace::new(bound), VecDeque::new());
        Self { context, volume, pace, dirty, in_turn: false, is_reported: false }
    }

    /// Moves the file to write next to the front: the one with the most dirty pages, which is the
    /// densest. Files with few dirty pages continue to gather until their age.
    pub(crate) fn bring_dirtiest_forward(&mut self) {
        let pages =
            |inode: &Arc<Inode>| inode.catch(|| inode.lock().cache.dirty_pages()).unwrap_or(0);
        let weights = self.dirty.iter().take(DIRTIEST_OF).map(pages).enumerate();
        if let Some((at, _)) = weights.max_by_key(|(_, pages)| *pages) {
            self.dirty.swap(0, at);
        }
    }

    /// Counts a bio that goes to the queue. One that moves no bytes is not counted: a flush does
    /// not show the rate of the device.
    pub(crate) fn sent(&mut self, bio: &Bio, now: impl FnOnce() -> Moment) {
        if bio.operation.moves_bytes() {
            self.pace.sent(bio.class, bio.length, now);
        }
    }

    /// Updates the rate after a run of completions.
    pub(crate) fn look(&mut self, now: Moment) {
        if self.pace.look(now)
            && let Some(rate) = self.pace.pages_per_second()
        {
            self.volume.share.set_rate(self.context, rate);
        }
    }

    /// Updates whether this context writes to the file system: it has dirty files or requests
    /// there. Returns whether that changed.
    pub(crate) fn report_written(&mut self) -> bool {
        let is_written = !self.dirty.is_empty() || self.pace.requests() > 0;
        let is_new = std::mem::replace(&mut self.is_reported, is_written) != is_written;
        if is_new {
            self.volume.share.set_written(self.context, is_written);
        }
        is_new
    }

    /// Counts a completed bio.
    pub(crate) fn ended(&mut self, Ended { bio, result }: &Ended) {
        if bio.operation.moves_bytes() {
            let is_written = bio.operation != Operation::Read && result.is_ok();
            self.pace.ended(bio.class, bio.length, if is_written { bio.length } else { 0 });
        }
    }
}

/// Returns the number of slots of a class that no flight uses.
pub(crate) fn free_slots(flights: &[Flight], class: Class) -> usize {
    FLIGHT.saturating_sub(flights.iter().map(|flight| flight.pace.requests_of(class)).sum())
}
