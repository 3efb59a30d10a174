//! The mask of a frame: which bytes of a page that is here in part were written.
//!
//! A mask is 64 words, a bit for each byte of the frame, the lowest first, at `masks_offset + 512 *
//! frame` in the arena's memory. It means something only under a header that says so, and is
//! cleared while the frame has none; bits come after the bytes they stand for. So a reader of the
//! header finds at least the bytes written when it was published, and of a write under way a prefix
//! at most.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use forebay_block::limits::PAGE;

const WORD_BITS: usize = u64::BITS as usize;

/// The words in shared memory.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct MaskWords([AtomicU64; PAGE / WORD_BITS]);

pub(crate) const MASK_BYTES: usize = PAGE / 8;
const _: () = assert!(size_of::<MaskWords>() == MASK_BYTES);

impl MaskWords {
    pub(crate) fn clear(&self) {
        // Orders the retiring of the frame's header before the words below.
        fence(Ordering::Release);
        self.0.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// Says that these bytes were written; Release, for their copy comes before.
    pub(crate) fn add(&self, bytes: Range<usize>) {
        assert!(bytes.start <= bytes.end && bytes.end <= PAGE, "{bytes:?} is no part of a frame");
        if bytes.is_empty() {
            return;
        }
        let (first, last) = (bytes.start / WORD_BITS, (bytes.end - 1) / WORD_BITS);
        for (index, word) in self.0.iter().enumerate().take(last + 1).skip(first) {
            let base = index * WORD_BITS;
            let from = bytes.start.max(base) - base;
            let to = bytes.end.min(base + WORD_BITS) - base;
            match to - from {
                WORD_BITS => word.store(u64::MAX, Ordering::Release),
                count => _ = word.fetch_or(((1 << count) - 1) << from, Ordering::Release),
            }
        }
    }

    /// Returns the written bytes as runs, in order. Pairs with the Release in `add`.
    pub(crate) fn written(&self) -> Vec<Range<usize>> {
        let words: Vec<u64> = self.0.iter().map(|word| word.load(Ordering::Acquire)).collect();
        let is_written = |at: usize| words[at / WORD_BITS] >> (at % WORD_BITS) & 1 == 1;
        let mut runs: Vec<Range<usize>> = Vec::new();
        for at in (0..PAGE).filter(|&at| is_written(at)) {
            match runs.last_mut() {
                Some(run) if run.end == at => run.end += 1,
                _ => runs.push(at..at + 1),
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn empty() -> MaskWords {
        MaskWords(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    fn written(model: &[bool]) -> Vec<usize> {
        (0..PAGE).filter(|&at| model[at]).collect()
    }

    #[test]
    fn runs_are_whole() {
        let mask = empty();
        assert_eq!(mask.written(), []);
        for bytes in [0..0, 5..6, 60..70, 128..192, 4000..4096] {
            mask.add(bytes);
        }
        assert_eq!(mask.written(), [5..6, 60..70, 128..192, 4000..4096]);
        mask.add(0..4096);
        assert_eq!(mask.written().as_slice(), std::slice::from_ref(&(0..4096)));
        mask.clear();
        assert_eq!(mask.written(), []);
    }

    #[test]
    #[should_panic(expected = "no part of a frame")]
    fn a_range_beyond_the_frame_is_refused() {
        empty().add(4090..4097);
    }

    proptest! {
        #[test]
        fn it_is_a_set_of_bytes(ranges in prop::collection::vec((0..=PAGE, 0..=PAGE), 0..12)) {
            let (mask, mut model) = (empty(), vec![false; PAGE]);
            for (one, other) in ranges {
                let bytes = one.min(other)..one.max(other);
                model[bytes.clone()].fill(true);
                mask.add(bytes);
            }
            let runs = mask.written();
            prop_assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].start), "runs touch: {:?}", runs);
            prop_assert_eq!(runs.into_iter().flatten().collect::<Vec<_>>(), written(&model));
        }
    }
}
