//! Choice of the clean pages to drop when memory is needed: S3-FIFO, which resists scans.
//!
//! J. Yang, Y. Zhang, Z. Qiu, Y. Yue, K. V. Rashmi: "FIFO queues are all you need for cache
//! eviction", SOSP 2023.
//!
//! ```text
//!  becomes clean --> small (a tenth) --not used again--> goes; remembered for a while as a ghost
//!        |              | used again                          |
//!        |              v                                     v asked for again soon
//!        +-----------> main <---------------------------------+
//!   went lately         | used again: once more round, one use less
//!                       +--not used--> goes
//! ```
//!
//! Most pages are used once (all of a scan are), so they pass through the small queue only, and
//! what is read again and again stays in the main one. Nothing moves when a page is used: a use
//! only sets bits in the file's own tables, so readers share no lock; the queues are looked at when
//! memory is needed.
//!
//! # Division of work
//! The queues are one per engine, over frames. Only the file of a page knows its state, under its
//! own lock. So eviction has three steps, and no lock is held from one to the next:
//! [`Evictor::candidates`] takes pages from the queues,
//! [`CachedFile::evict`](crate::CachedFile::evict) has each judged by its file, [`Evictor::settle`]
//! puts back what stays.
//!
//! A page is entered while its file's lock is held and its frame leaves before it is free for
//! others: so a frame in the queues always is the page it was entered for, clean or touched since.
//! Memory has a bound: 24 bytes per frame for the queues, taken for 1024 frames when one of
//! them is first entered, and 8 to 16 for the ghosts.

mod ghost;
mod slots;

use forebay_block::random::fold;
use forebay_block::{Frame, Target};

use ghost::Ghost;
use slots::{NONE, Place, Slot, Slots};

/// The small queue has one in this many of all clean pages.
const SMALL_ONE_IN: usize = 10;

/// A queue, linked through the slots.
#[derive(Clone, Copy, Debug)]
struct Queue {
    first: u32,
    last: u32,
    length: usize,
}

impl Queue {
    const EMPTY: Self = Self { first: NONE, last: NONE, length: 0 };
}

/// Queues of the clean pages of all files of an engine, ordered for eviction.
#[derive(Debug)]
pub struct Evictor {
    slots: Slots,
    small: Queue,
    main: Queue,
    ghost: Ghost,
    /// By target: tells the files apart that had this number one after the other.
    salts: Vec<u32>,
    batches: u32,
}

/// Page that may be dropped, if its file agrees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Number of its file.
    pub target: Target,
    /// Number of the page.
    pub page: u64,
    /// Frame of the page when it was entered.
    pub frame: Frame,
    /// Verdict of its file.
    pub verdict: Verdict,
    was_small: bool,
    batch: u32,
}

/// Verdict on a candidate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Its file was not asked, or has been closed.
    NotAsked,
    /// The page was dropped, and its frame is free.
    Dropped,
    /// The page stays: it is in use, or was used since the last verdict.
    Stays,
    /// The page stays for one more round: it was read ahead and has not been used yet.
    Unread,
    /// The page is no longer clean in that frame. It is entered again when it is.
    Gone,
}

impl Candidate {
    /// Returns the verdict on a clean page that is not in use, and its remaining uses if it stays.
    /// `uses` is the number of uses since the page was entered or last judged, at most 3.
    #[must_use]
    pub fn judge(&self, uses: u8) -> (Verdict, u8) {
        match uses {
            0 => (Verdict::Dropped, 0),
            // In the main queue it has to be used again to stay.
            _ if self.was_small => (Verdict::Stays, 0),
            _ => (Verdict::Stays, uses - 1),
        }
    }
}

impl Evictor {
    /// Creates the queues for an arena of this many frames.
    #[must_use]
    pub fn new(frames: u32) -> Self {
        Self {
            slots: Slots::new(frames),
            small: Queue::EMPTY,
            main: Queue::EMPTY,
            ghost: Ghost::new((frames - frames / SMALL_ONE_IN as u32).max(1)),
            salts: Vec::new(),
            batches: 0,
        }
    }

    /// Returns the number of pages in the queues.
    #[must_use]
    pub fn len(&self) -> usize {
        self.small.length + self.main.length
    }

    /// Returns whether the queues are empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Enters a page that has become clean, unless it is in a queue already. The caller holds the
    /// lock of the file, so that the frame cannot be reused meanwhile.
    pub fn enter(&mut self, target: Target, page: u64, frame: Frame) {
        let slot = self.slots.get_mut(frame.0);
        if matches!(slot.place, Place::Small | Place::Main) {
            debug_assert!(
                (slot.target, slot.page) == (target, page),
                "frame {} has two pages",
                frame.0
            );
            return;
        }
        (slot.target, slot.page) = (target, page);
        let hash = self.hash(target, page);
        let place = if self.ghost.take(hash) { Place::Main } else { Place::Small };
        self.push(frame.0, place);
    }

    /// Removes the page of a frame that becomes free.
    pub fn leave(&mut self, frame: Frame) {
        match self.slots.get(frame.0).place {
            Place::Out => {}
            Place::Asked => self.slots.get_mut(frame.0).place = Place::Out,
            Place::Small | Place::Main => self.unlink(frame.0),
        }
    }

    /// Forgets the history of a file that is closed, because its number will be reused.
    pub fn forget(&mut self, target: Target) {
        let number = target.0 as usize;
        if self.salts.len() <= number {
            self.salts.resize(number + 1, 0);
        }
        self.salts[number] = self.salts[number].wrapping_add(1);
    }

    /// Removes up to `wanted` pages that should be dropped first. Returns how many. Each must be
    /// returned with [`Evictor::settle`].
    pub fn candidates(&mut self, wanted: usize, into: &mut Vec<Candidate>) -> usize {
        self.batches = self.batches.wrapping_add(1);
        let before = into.len();
        while into.len() - before < wanted {
            let is_small = self.small.length * SMALL_ONE_IN >= self.len() && self.small.length > 0
                || self.main.length == 0;
            let number = if is_small { self.small.first } else { self.main.first };
            if number == NONE {
                break;
            }
            self.unlink(number);
            let slot = self.slots.get_mut(number);
            (slot.place, slot.before) = (Place::Asked, self.batches);
            into.push(Candidate {
                target: slot.target,
                page: slot.page,
                frame: Frame(number),
                verdict: Verdict::NotAsked,
                was_small: is_small,
                batch: self.batches,
            });
        }
        into.len() - before
    }

    /// Takes candidates back with their verdicts: pages that stay are queued again, and dropped
    /// ones are remembered as ghosts.
    pub fn settle(&mut self, batch: &[Candidate]) {
        for candidate in batch {
            if candidate.verdict == Verdict::Dropped && candidate.was_small {
                let hash = self.hash(candidate.target, candidate.page);
                self.ghost.remember(hash);
            }
            let slot = self.slots.get_mut(candidate.frame.0);
            // Skip it if the frame has left, or was entered again, meanwhile.
            if slot.place != Place::Asked || slot.before != candidate.batch {
                continue;
            }
            slot.place = Place::Out;
            match candidate.verdict {
                Verdict::Dropped | Verdict::Gone | Verdict::NotAsked => {}
                Verdict::Unread if candidate.was_small => {
                    self.push(candidate.frame.0, Place::Small);
                }
                Verdict::Unread | Verdict::Stays => self.push(candidate.frame.0, Place::Main),
            }
        }
    }

    fn hash(&self, target: Target, page: u64) -> u64 {
        let salt = self.salts.get(target.0 as usize).copied().unwrap_or(0);
        let file = u64::from(salt) << 32 | u64::from(target.0);
        fold(page, file)
    }

    fn queue(&mut self, place: Place) -> &mut Queue {
        if place == Place::Small { &mut self.small } else { &mut self.main }
    }

    fn push(&mut self, number: u32, place: Place) {
        let queue = self.queue(place);
        let last = std::mem::replace(&mut queue.last, number);
        queue.length += 1;
        if last == NONE {
            queue.first = number;
        } else {
            self.slots.get_mut(last).after = number;
        }
        let slot = self.slots.get_mut(number);
        (slot.place, slot.before, slot.after) = (place, last, NONE);
    }

    fn unlink(&mut self, number: u32) {
        let Slot { before, after, place, .. } = self.slots.get(number);
        let queue = self.queue(place);
        queue.length -= 1;
        if before == NONE {
            queue.first = after;
        }
        if after == NONE {
            queue.last = before;
        }
        if before != NONE {
            self.slots.get_mut(before).after = after;
        }
        if after != NONE {
            self.slots.get_mut(after).before = before;
        }
        self.slots.get_mut(number).place = Place::Out;
    }
}

#[cfg(test)]
mod tests;
