//! Requests of a context in flight to one file system, their limit, and the dirty files there.
//!
//! Each file system (device number) has its own, so that a slow one delays no other: it has a
//! flight of its own, and its files take turns among themselves.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;

use forebay_block::{Bio, Class, Ended, Moment, Operation};
use forebay_cache::Effort;
use forebay_cache::writeback::pace::{Bound, Pace};

use crate::core::inode::Inode;
use crate::core::limits::{DIRTIEST_OF, FLIGHT};
use crate::core::volume::Volume;

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
    is_told: bool,
}

impl Flight {
    pub(crate) fn new(context: usize, volume: Arc<Volume>, bound: Bound) -> Self {
        let (pace, dirty) = (Pace::new(bound), VecDeque::new());
        Self { context, volume, pace, dirty, in_turn: false, is_told: false }
    }

    /// Moves the file to write next to the front. The file with the most dirty pages is the
    /// densest, and files with few dirty pages continue to gather until their age. Among files with
    /// about as many, the one that costs the file system least goes first.
    pub(crate) fn bring_dirtiest_forward(&mut self) {
        let in_place = self.volume.overwrites_in_place();
        let look = |inode: &Arc<Inode>| {
            let looked = inode.catch(|| {
                let state = inode.lock();
                let effort = if in_place { state.cache.effort() } else { None };
                Weight { pages: state.cache.dirty_pages(), effort }
            });
            looked.unwrap_or(Weight { pages: 0, effort: None })
        };
        let weights: Vec<Weight> = self.dirty.iter().take(DIRTIEST_OF).map(look).collect();
        if let Some(at) = next_of(&weights) {
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
    pub(crate) fn tell_written(&mut self) -> bool {
        let is_written = !self.dirty.is_empty() || self.pace.requests() > 0;
        let is_new = std::mem::replace(&mut self.is_told, is_written) != is_written;
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

/// Weight of a dirty file in the choice of the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Weight {
    pages: u64,
    /// Work that the write causes in the file system, if known.
    effort: Option<Effort>,
}

/// Returns the index of the file to write next. Among files with at least half as many pages as the
/// dirtiest one, it is the cheapest, then the dirtiest. (A third of the effort is worth at most
/// twice the requests.)
fn next_of(weights: &[Weight]) -> Option<usize> {
    let most = weights.iter().map(|weight| weight.pages).max()?;
    let has_much = |(_, weight): &(usize, &Weight)| weight.pages >= most.div_ceil(2);
    let rank = |(_, weight): &(usize, &Weight)| (Reverse(weight.effort), weight.pages);
    weights.iter().enumerate().filter(has_much).max_by_key(rank).map(|(at, _)| at)
}

/// Returns the number of slots of a class that no flight uses.
pub(crate) fn free_slots(flights: &[Flight], class: Class) -> usize {
    FLIGHT.saturating_sub(flights.iter().map(|flight| flight.pace.requests_of(class)).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_file_is_a_cheap_one_of_those_with_much() {
        let weigh = |pages, effort| Weight { pages, effort };
        let (overwrite, hole) = (Some(Effort::Overwrite), Some(Effort::Hole));
        assert_eq!(next_of(&[]), None);
        assert_eq!(
            next_of(&[weigh(9, hole), weigh(5, overwrite), weigh(8, Some(Effort::Reserved))]),
            Some(1)
        );
        assert_eq!(
            next_of(&[weigh(9, hole), weigh(4, overwrite)]),
            Some(0),
            "a file with few pages continues to gather"
        );
        assert_eq!(next_of(&[weigh(7, overwrite), weigh(9, overwrite), weigh(9, hole)]), Some(1));
        assert_eq!(
            next_of(&[weigh(6, None), weigh(9, None), weigh(3, None)]),
            Some(1),
            "copies on write"
        );
    }
}
