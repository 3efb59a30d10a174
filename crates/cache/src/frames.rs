//! Allocation of frames, the memory of pages.
//!
//! Frames that are contiguous in memory make one segment and one copy. A large write should get a
//! run of them, and single pages should not break up long runs. So free frames are kept in blocks:
//!
//! ```text
//! words of 64   |1111111111111111|1111111111111111|0110100011111010|0000000000000000|
//!               | whole          | whole          | ragged         | none free      |
//! ```
//!
//! A *whole* block is 16 free frames (64 KiB) on a boundary of 16. Runs are taken from whole
//! blocks, as many in a row as are wanted. Smaller requests are served from ragged blocks while
//! there are any. Both kinds are found over summaries of one bit per word, lowest first, from a
//! cursor with nothing free below it. So a nearly full arena is not scanned, and a caller that
//! frees its frames gets the same memory again. (A list of freed frames would return them in the
//! order of their writeback.)

use forebay_block::Frame;

use crate::bits::{bits, parts};

/// Frames in a block: 64 KiB.
pub const BLOCK_FRAMES: u32 = 16;

const BLOCK: u64 = (1 << BLOCK_FRAMES) - 1;

/// Run of frames with consecutive numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameRun {
    /// First frame.
    pub first: Frame,
    /// Number of frames, at least 1.
    pub count: u32,
}

impl FrameRun {
    /// Returns the frames in order.
    pub fn frames(self) -> impl Iterator<Item = Frame> {
        (self.first.0..self.first.0 + self.count).map(Frame)
    }
}

/// List of frames, stored as runs. Consecutive frames pushed in order form one run.
#[derive(Clone, Default, Debug)]
pub struct FrameRuns {
    runs: Vec<FrameRun>,
    count: usize,
}

impl FrameRuns {
    /// Creates an empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self { runs: Vec::new(), count: 0 }
    }

    /// Returns the number of frames.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the runs, in the order of their pushes.
    #[must_use]
    pub fn runs(&self) -> &[FrameRun] {
        &self.runs
    }

    /// Returns the frames, run by run.
    pub fn frames(&self) -> impl Iterator<Item = Frame> + '_ {
        self.runs.iter().flat_map(|run| run.frames())
    }

    /// Appends a frame.
    pub fn push(&mut self, frame: Frame) {
        self.push_run(FrameRun { first: frame, count: 1 });
    }

    /// Appends a run.
    pub fn push_run(&mut self, run: FrameRun) {
        self.count += run.count as usize;
        match self.runs.last_mut() {
            Some(last) if last.first.0 + last.count == run.first.0 => last.count += run.count,
            _ => self.runs.push(run),
        }
    }

    /// Removes and returns a run of up to `most` frames, or `None` if the list is empty.
    pub fn take_run(&mut self, most: u32) -> Option<FrameRun> {
        let last = self.runs.last_mut()?;
        let taken = FrameRun { first: last.first, count: last.count.min(most) };
        last.first.0 += taken.count;
        last.count -= taken.count;
        if last.count == 0 {
            self.runs.pop();
        }
        self.count -= taken.count as usize;
        if self.count == 0 {
            // The memory of an empty list is cold by its next use. The allocator has some that is
            // not.
            self.runs = Vec::new();
        }
        Some(taken)
    }

    /// Removes and returns one frame.
    pub fn take(&mut self) -> Option<Frame> {
        self.take_run(1).map(|run| run.first)
    }

    /// Moves all frames of `other` to this list.
    pub fn append(&mut self, other: &mut FrameRuns) {
        for run in other.drain() {
            self.push_run(run);
        }
    }

    /// Removes and returns all runs.
    pub fn drain(&mut self) -> impl Iterator<Item = FrameRun> + '_ {
        self.count = 0;
        self.runs.drain(..)
    }
}

impl Extend<Frame> for FrameRuns {
    fn extend<T: IntoIterator<Item = Frame>>(&mut self, frames: T) {
        frames.into_iter().for_each(|frame| self.push(frame));
    }
}

/// Allocator of the frames of one arena.
#[derive(Debug)]
pub struct Frames {
    free: Vec<u64>,
    /// A bit per word that has a whole block.
    whole: Vec<u64>,
    /// A bit per word that has a free frame outside of whole blocks.
    ragged: Vec<u64>,
    count: u32,
    total: u32,
    /// No frame from here on was ever allocated.
    peak: u32,
    /// No word below has a whole block.
    whole_cursor: usize,
    /// No word below has a free frame outside of whole blocks.
    ragged_cursor: usize,
}

impl Frames {
    /// Creates an allocator of `total` frames, all free.
    #[must_use]
    pub fn new(total: u32) -> Self {
        let words = (total as usize).div_ceil(64);
        let summary = vec![0; words.div_ceil(64)];
        let mut frames = Self {
            free: vec![0; words],
            whole: summary.clone(),
            ragged: summary,
            count: 0,
            total,
            peak: 0,
            whole_cursor: 0,
            ragged_cursor: 0,
        };
        frames.give_run(FrameRun { first: Frame(0), count: total });
        frames
    }

    /// Returns the number of free frames.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.count
    }

    /// Frames in all.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.total
    }

    /// Returns the end of the frames that were ever allocated.
    #[must_use]
    pub fn peak(&self) -> u32 {
        self.peak
    }

    /// Allocates up to `wanted` frames into `into`, in runs as long as possible. Returns how many.
    pub fn take(&mut self, wanted: usize, into: &mut FrameRuns) -> usize {
        let taken = wanted.min(self.count as usize);
        let mut left = taken as u32;
        while left >= BLOCK_FRAMES {
            let Some(run) = self.take_blocks(left / BLOCK_FRAMES) else { break };
            self.enter(run, into);
            left -= run.count;
        }
        while left > 0 {
            let run = self.take_ragged(left);
            self.enter(run, into);
            left -= run.count;
        }
        taken
    }

    fn enter(&mut self, run: FrameRun, into: &mut FrameRuns) {
        self.peak = self.peak.max(run.first.0 + run.count);
        into.push_run(run);
    }

    /// Frees a run of frames.
    ///
    /// # Panics
    /// If one of them is free already, because two pages would then share it.
    pub fn give_run(&mut self, run: FrameRun) {
        self.turn(run, 0, "freed");
        self.count += run.count;
    }

    /// Allocates these frames, which are in use already by an adopted arena.
    ///
    /// # Panics
    /// If one of them is not free, because two pages would then share it.
    pub fn take_these(&mut self, run: FrameRun) {
        self.turn(run, u64::MAX, "taken");
        self.count -= run.count;
        self.peak = self.peak.max(run.first.0 + run.count);
    }

    /// Makes free frames of taken ones, or the other way round: `before` has the bits that all of
    /// them have now.
    fn turn(&mut self, run: FrameRun, before: u64, what: &str) {
        let first = u64::from(run.first.0);
        let end = first + u64::from(run.count);
        assert!(end <= u64::from(self.total), "a frame of the arena");
        for (at, bit, count) in parts(first..end) {
            let word = (at / 64) as usize;
            let mask = bits(bit, count);
            let is_other = self.free[word] & mask == before & mask;
            assert!(is_other, "frame {at} (or one of the {count} from it on) {what} twice");
            self.free[word] ^= mask;
            self.summarise(word);
        }
    }

    /// A run of up to `most` whole blocks.
    fn take_blocks(&mut self, most: u32) -> Option<FrameRun> {
        let start = next_bit(&self.whole, self.whole_cursor)?;
        let block = whole_blocks(self.free[start]).trailing_zeros();
        let first = start as u32 * 64 + block;
        let mut count = 0;
        while count < most * BLOCK_FRAMES {
            let at = first + count;
            let (word, bit) = ((at / 64) as usize, at % 64);
            if word >= self.free.len() || self.free[word] >> bit & BLOCK != BLOCK {
                break;
            }
            self.free[word] &= !(BLOCK << bit);
            self.summarise(word);
            count += BLOCK_FRAMES;
        }
        self.count -= count;
        // Lowered by `summarise` where a frame below is given back.
        self.whole_cursor = start;
        Some(FrameRun { first: Frame(first), count })
    }

    /// A run of up to `most` frames, if at least one is free: outside of whole blocks
    /// if there is one.
    fn take_ragged(&mut self, most: u32) -> FrameRun {
        let ragged = next_bit(&self.ragged, self.ragged_cursor);
        let word =
            ragged.or_else(|| next_bit(&self.whole, self.whole_cursor)).expect("a frame is free");
        let free = match ragged {
            Some(_) => self.free[word] & !spread(whole_blocks(self.free[word])),
            None => self.free[word],
        };
        let first = free.trailing_zeros();
        let count = (free >> first).trailing_ones().min(most);
        self.free[word] &= !bits(first as usize, count);
        self.summarise(word);
        self.count -= count;
        if ragged.is_some() {
            self.ragged_cursor = word;
        }
        FrameRun { first: Frame(word as u32 * 64 + first), count }
    }

    fn summarise(&mut self, word: usize) {
        let free = self.free[word];
        let whole = spread(whole_blocks(free));
        let (at, bit) = (word / 64, 1 << (word % 64));
        let summaries = [
            (&mut self.whole, &mut self.whole_cursor, whole != 0),
            (&mut self.ragged, &mut self.ragged_cursor, free & !whole != 0),
        ];
        for (summary, cursor, is_set) in summaries {
            if is_set {
                summary[at] |= bit;
                *cursor = word.min(*cursor);
            } else {
                summary[at] &= !bit;
            }
        }
    }
}

/// The first bit of each block that is all ones.
fn whole_blocks(word: u64) -> u64 {
    let pairs = word & word >> 1;
    let fours = pairs & pairs >> 2;
    let eights = fours & fours >> 4;
    eights & eights >> 8 & 0x0001_0001_0001_0001
}

/// All bits of the blocks whose first bit is set.
fn spread(firsts: u64) -> u64 {
    firsts.wrapping_mul(BLOCK)
}

/// The next bit that is set, from `cursor` on and around.
fn next_bit(summary: &[u64], cursor: usize) -> Option<usize> {
    let start = (cursor / 64).min(summary.len().checked_sub(1)?);
    let masked =
        if cursor / 64 == start { summary[start] & (u64::MAX << (cursor % 64)) } else { 0 };
    if masked != 0 {
        return Some(start * 64 + masked.trailing_zeros() as usize);
    }
    (start + 1..summary.len())
        .chain(0..=start)
        .find(|at| summary[*at] != 0)
        .map(|at| at * 64 + summary[at].trailing_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_large_write_gets_one_run_and_single_pages_leave_long_ones_alone() {
        let mut frames = Frames::new(1024);
        let mut taken = FrameRuns::default();
        assert_eq!(frames.take(130, &mut taken), 130);
        assert_eq!(taken.runs().len(), 1);
        // Two of a block of its own remain ragged; the next single pages come from there.
        assert_eq!(frames.take(3, &mut taken), 3);
        assert_eq!(taken.runs().len(), 1, "the block that was broken for two gives the next three");
        let mut rest = FrameRuns::default();
        assert_eq!(frames.take(2000, &mut rest), 891);
        assert_eq!((frames.free(), frames.take(1, &mut rest)), (0, 0));
        let all: BTreeSet<_> = taken.frames().chain(rest.frames()).collect();
        assert_eq!(all.len(), 1024);
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn a_frame_freed_twice_is_a_bug() {
        Frames::new(10).give_run(FrameRun { first: Frame(3), count: 1 });
    }

    #[test]
    #[should_panic(expected = "taken twice")]
    fn a_frame_taken_twice_is_a_bug() {
        let mut frames = Frames::new(10);
        frames.take_these(FrameRun { first: Frame(3), count: 2 });
        frames.take_these(FrameRun { first: Frame(4), count: 1 });
    }

    #[test]
    fn who_gives_back_what_he_takes_stays_in_the_same_memory() {
        let mut frames = Frames::new(100_000);
        let mut flight = std::collections::VecDeque::new();
        let mut highest = 0;
        for step in 0..20_000_usize {
            let mut taken = FrameRuns::default();
            frames.take(1 + step * 37 % 256, &mut taken);
            highest = taken.frames().map(|frame| frame.0).max().unwrap().max(highest);
            flight.push_back(taken);
            if flight.len() > 4 {
                flight.pop_front().unwrap().drain().for_each(|run| frames.give_run(run));
            }
        }
        assert!(highest < 3000, "frame {highest} was used, with five times 256 in use at a time");
    }

    proptest! {
        #[test]
        fn agrees_with_a_plain_set(
            total in 1..400u32,
            operations in proptest::collection::vec((0..5_u8, 1..90usize, any::<u32>()), 1..60),
        ) {
            let mut frames = Frames::new(total);
            let mut free: BTreeSet<u32> = (0..total).collect();
            let mut held: Vec<u32> = Vec::new();
            for (what, count, pick) in operations {
                if what == 0 {
                    let first = pick % total;
                    let these = (first..total).take(count).take_while(|frame| free.contains(frame));
                    let these: Vec<u32> = these.collect();
                    if !these.is_empty() {
                        frames.take_these(FrameRun { first: Frame(first), count: these.len() as u32 });
                    }
                    these.iter().for_each(|frame| assert!(free.remove(frame)));
                    held.extend(these);
                } else if what < 3 {
                    let mut taken = FrameRuns::default();
                    prop_assert_eq!(frames.take(count, &mut taken), count.min(free.len()));
                    let blocks = |free: &BTreeSet<u32>| (0..total / 16).any(|block| {
                        (block * 16..block * 16 + 16).all(|frame| free.contains(&frame))
                    });
                    if count >= 16 && blocks(&free) {
                        prop_assert!(taken.runs()[0].count >= 16, "whole blocks first");
                    }
                    for frame in taken.frames() {
                        prop_assert!(free.remove(&frame.0));
                        held.push(frame.0);
                    }
                } else {
                    for _ in 0..count.min(held.len()) {
                        let frame = held.swap_remove(pick as usize % held.len());
                        frames.give_run(FrameRun { first: Frame(frame), count: 1 });
                        free.insert(frame);
                    }
                }
                prop_assert_eq!(frames.free() as usize, free.len());
            }
        }

        #[test]
        fn a_stash_hands_out_what_it_was_given(counts in proptest::collection::vec(1..20u32, 1..20), most in 1..9u32) {
            let mut stash = FrameRuns::default();
            let mut given = BTreeSet::new();
            let mut at = 0;
            for count in counts {
                let run = FrameRun { first: Frame(at), count };
                given.extend(run.frames());
                stash.push_run(run);
                at += count + (count % 3);
            }
            let mut taken = BTreeSet::new();
            while let Some(run) = stash.take_run(most) {
                prop_assert!(run.count <= most);
                taken.extend(run.frames());
            }
            prop_assert!(stash.is_empty());
            prop_assert_eq!(given, taken);
        }
    }
}
