//! What a context has on its way to one file system, how much that may be, and which of its files
//! are dirty.
//!
//! One for each file system (device number), so that a slow one holds up no other: each has a
//! flight of its own, and a turn of its own among its files.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;

use forebay_block::{Bio, Class, Ended, Moment, Operation};
use forebay_cache::Effort;
use forebay_cache::writeback::pace::{Bound, Pace};

use crate::core::inode::Inode;
use crate::core::limits::{DIRTIEST_OF, FLIGHT};
use crate::core::volume::Volume;

/// The way to one file system.
#[derive(Debug)]
pub(crate) struct Flight {
    /// Whose it is.
    context: usize,
    pub(crate) volume: Arc<Volume>,
    pub(crate) pace: Pace,
    /// Files with something dirty, the next one to write from first.
    pub(crate) dirty: VecDeque<Arc<Inode>>,
    /// The first dirty file is in the middle of its sweep.
    pub(crate) in_turn: bool,
    /// The file system has been told that it is written from here.
    is_told: bool,
}

impl Flight {
    pub(crate) fn new(context: usize, volume: Arc<Volume>, bound: Bound) -> Self {
        let (pace, dirty) = (Pace::new(bound), VecDeque::new());
        Self { context, volume, pace, dirty, in_turn: false, is_told: false }
    }

    /// Who has most to write is swept first: it is densest, and what has little is left to gather
    /// until its age. Of those who have about as much, it is who costs the file system least.
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

    /// A bio goes to the queue. What moves no bytes takes no part: a flush is not the device's
    /// rate.
    pub(crate) fn sent(&mut self, bio: &Bio, now: impl FnOnce() -> Moment) {
        if bio.operation.moves_bytes() {
            self.pace.sent(bio.class, bio.length, now);
        }
    }

    /// A run of completions is over: its rate may be known better.
    pub(crate) fn look(&mut self, now: Moment) {
        if self.pace.look(now)
            && let Some(rate) = self.pace.pages_per_second()
        {
            self.volume.share.set_rate(self.context, rate);
        }
    }

    /// Tells the file system whether something of it is dirty here, or on its way. Whether that is
    /// new.
    pub(crate) fn tell_written(&mut self) -> bool {
        let is_written = !self.dirty.is_empty() || self.pace.requests() > 0;
        let is_new = std::mem::replace(&mut self.is_told, is_written) != is_written;
        if is_new {
            self.volume.share.set_written(self.context, is_written);
        }
        is_new
    }

    /// A bio has come back.
    pub(crate) fn ended(&mut self, Ended { bio, result }: &Ended) {
        if bio.operation.moves_bytes() {
            let is_written = bio.operation != Operation::Read && result.is_ok();
            self.pace.ended(bio.class, bio.length, if is_written { bio.length } else { 0 });
        }
    }
}

/// How a file stands among those with something to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Weight {
    pages: u64,
    /// Where the file system tells such things apart.
    effort: Option<Effort>,
}

/// Whose turn it is: of those with half as much as the dirtiest and more, who costs least, and then
/// the dirtiest. (A third of the effort is worth no more than twice the requests.)
fn next_of(weights: &[Weight]) -> Option<usize> {
    let most = weights.iter().map(|weight| weight.pages).max()?;
    let has_much = |(_, weight): &(usize, &Weight)| weight.pages >= most.div_ceil(2);
    let rank = |(_, weight): &(usize, &Weight)| (Reverse(weight.effort), weight.pages);
    weights.iter().enumerate().filter(has_much).max_by_key(rank).map(|(at, _)| at)
}

/// Slots of a class that no file system's flight holds.
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
            "little is left to gather"
        );
        assert_eq!(next_of(&[weigh(7, overwrite), weigh(9, overwrite), weigh(9, hole)]), Some(1));
        assert_eq!(
            next_of(&[weigh(6, None), weigh(9, None), weigh(3, None)]),
            Some(1),
            "copies on write"
        );
    }
}
