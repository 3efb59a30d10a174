//! Tags: numbers from a fixed set, taken in one sweep per batch. Without a tag no request is in
//! flight.
//!
//! A bitmap, because a batch then costs a few word operations however many tags it takes. Threads
//! share nothing here: a context owns its tags.

use crate::device::Tag;
use crate::limits::TAGS;

const WORD: usize = u64::BITS as usize;

/// Set of tags. A bit is set if the tag is free.
#[derive(Debug)]
pub(crate) struct Tags {
    free: [u64; TAGS / WORD],
}

/// Tags taken in one sweep and handed out one by one. The remaining ones must be given back.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    taken: [u64; TAGS / WORD],
    word: usize,
}

impl Tags {
    /// Creates a set with all tags free.
    pub(crate) fn new() -> Self {
        Self { free: [u64::MAX; TAGS / WORD] }
    }

    /// Returns the number of free tags.
    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.free.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Takes at least `count` tags, lowest first, or all free ones: a word at a time.
    #[inline]
    pub(crate) fn sweep(&mut self, count: usize) -> Sweep {
        let mut sweep = Sweep::default();
        let mut found = 0;
        for (free, taken) in self.free.iter_mut().zip(&mut sweep.taken) {
            if found >= count {
                break;
            }
            *taken = core::mem::take(free);
            found += taken.count_ones() as usize;
        }
        debug_assert!(
            found >= count || self.free == [0; TAGS / WORD],
            "a sweep of {count} tags left free ones behind"
        );
        debug_assert_eq!(found, sweep.len());
        sweep
    }

    /// Gives back the remaining tags of a sweep.
    #[inline]
    pub(crate) fn give_rest(&mut self, sweep: Sweep) {
        for (free, taken) in self.free.iter_mut().zip(sweep.taken) {
            debug_assert!(*free & taken == 0, "a tag of the sweep is free already");
            *free |= taken;
        }
    }

    /// Gives back one tag.
    pub(crate) fn give(&mut self, tag: Tag) {
        let (index, bit) = (usize::from(tag.0) / WORD, 1 << (usize::from(tag.0) % WORD));
        assert!(self.free[index] & bit == 0, "{tag:?} was given back twice");
        self.free[index] |= bit;
    }
}

impl Sweep {
    /// Returns the number of tags left.
    pub(crate) fn len(&self) -> usize {
        self.taken.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns the lowest tag left.
    #[inline]
    pub(crate) fn first(&mut self) -> Option<Tag> {
        while *self.taken.get(self.word)? == 0 {
            self.word += 1;
        }
        Some(Tag((self.word * WORD) as u16 + self.taken[self.word].trailing_zeros() as u16))
    }

    /// Removes the lowest tag left, which is now in use.
    #[inline]
    pub(crate) fn use_first(&mut self) {
        let word = &mut self.taken[self.word];
        debug_assert!(*word != 0, "no tag of the sweep is left");
        *word &= word.wrapping_sub(1);
    }
}

impl Default for Tags {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn contract_16_no_tag_is_taken_twice() {
        let mut tags = Tags::new();
        let mut taken = Vec::new();
        for count in [1, 40, 100, TAGS] {
            let mut sweep = tags.sweep(count);
            for _ in 0..count {
                let Some(tag) = sweep.first() else { break };
                taken.push(tag);
                sweep.use_first();
            }
            tags.give_rest(sweep);
            assert_eq!(tags.free(), TAGS - taken.len());
        }
        assert_eq!(tags.free(), 0);
        assert!(taken.is_sorted_by(|one, other| one < other), "each once");
        tags.give(Tag(77));
        let mut sweep = tags.sweep(2);
        assert_eq!(sweep.first(), Some(Tag(77)));
        sweep.use_first();
        assert_eq!(sweep.first(), None);
    }

    #[test]
    #[should_panic(expected = "given back twice")]
    fn contract_16_a_free_tag_cannot_be_given_back() {
        Tags::new().give(Tag(0));
    }
}
