//! Tags: numbers from a fixed set, taken in one sweep for a batch. No tag, no flight.
//!
//! A bitmap, because a batch then costs a few word operations however many tags it takes. Nothing here is shared
//! between threads: a context owns its tags.

use alloc::vec::Vec;

use crate::device::Tag;
use crate::limits::TAGS;

const WORD: usize = u64::BITS as usize;

/// The set of tags; a bit is set where the tag is free.
#[derive(Debug)]
pub(crate) struct Tags {
    free: [u64; TAGS / WORD],
}

impl Tags {
    /// All free.
    pub(crate) fn new() -> Self {
        Self { free: [u64::MAX; TAGS / WORD] }
    }

    /// Tags that can be taken.
    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.free.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Takes up to `count` tags, lowest first, and appends them; fewer where fewer are free.
    pub(crate) fn take(&mut self, count: usize, taken: &mut Vec<Tag>) {
        let enough = taken.len() + count;
        for (index, word) in self.free.iter_mut().enumerate() {
            while *word != 0 && taken.len() < enough {
                taken.push(Tag((index * WORD) as u16 + word.trailing_zeros() as u16));
                *word &= *word - 1;
            }
        }
    }

    /// Gives a taken tag back.
    pub(crate) fn give(&mut self, tag: Tag) {
        let (index, bit) = (usize::from(tag.0) / WORD, 1 << (usize::from(tag.0) % WORD));
        assert!(self.free[index] & bit == 0, "{tag:?} was given back twice");
        self.free[index] |= bit;
    }
}

impl Default for Tags {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contract_16_no_tag_is_taken_twice() {
        let mut tags = Tags::new();
        let mut taken = Vec::new();
        tags.take(TAGS - 3, &mut taken);
        tags.take(10, &mut taken);
        assert_eq!((taken.len(), tags.free()), (TAGS, 0));
        assert!(taken.is_sorted_by(|one, other| one < other));
        tags.give(Tag(77));
        taken.clear();
        tags.take(2, &mut taken);
        assert_eq!(taken, [Tag(77)]);
    }

    #[test]
    #[should_panic(expected = "given back twice")]
    fn contract_16_a_free_tag_cannot_be_given_back() {
        Tags::new().give(Tag(0));
    }
}
