//! The memory that holds pages: which frames are free.
//!
//! A bitmap with next fit, because frames that are neighbours in memory make one segment: a stream of writes
//! finds consecutive frames as long as there are any, and a list of freed frames would hand them out in the order
//! they were written back. A second bitmap tells which words have a bit, so that a nearly full arena is not
//! scanned. One word is 256 KiB of arena.

use forebay_block::Frame;

/// The free frames of one arena.
#[derive(Debug)]
pub struct Frames {
    free: Vec<u64>,
    any: Vec<u64>,
    count: u32,
    total: u32,
    cursor: usize,
}

impl Frames {
    /// All of `total` frames free.
    #[must_use]
    pub fn new(total: u32) -> Self {
        let words = (total as usize).div_ceil(64);
        let mut frames =
            Self { free: vec![0; words], any: vec![0; words.div_ceil(64)], count: 0, total, cursor: 0 };
        for number in 0..total {
            frames.give(Frame(number));
        }
        frames
    }

    /// Free frames now.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.count
    }

    /// Frames in all.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.total
    }

    /// Takes up to `wanted` frames, neighbours where it can; returns how many.
    pub fn take(&mut self, wanted: usize, into: &mut Vec<Frame>) -> usize {
        let mut taken = 0;
        while taken < wanted {
            let Some(word) = self.next_word() else { break };
            self.cursor = word;
            while taken < wanted && self.free[word] != 0 {
                let bit = self.free[word].trailing_zeros();
                self.free[word] &= self.free[word] - 1;
                into.push(Frame(word as u32 * 64 + bit));
                taken += 1;
            }
            if self.free[word] == 0 {
                self.any[word / 64] &= !(1 << (word % 64));
            }
        }
        self.count -= taken as u32;
        taken
    }

    /// Takes a frame back.
    ///
    /// # Panics
    /// When the frame is free already: then two pages would share it.
    pub fn give(&mut self, frame: Frame) {
        let (word, bit) = (frame.0 as usize / 64, frame.0 % 64);
        assert!(frame.0 < self.total && self.free[word] & (1 << bit) == 0, "frame {} freed twice", frame.0);
        self.free[word] |= 1 << bit;
        self.any[word / 64] |= 1 << (word % 64);
        self.count += 1;
    }

    fn next_word(&self) -> Option<usize> {
        if self.count == 0 {
            return None;
        }
        let start = self.cursor / 64;
        let masked = self.any[start] & (u64::MAX << (self.cursor % 64));
        if masked != 0 {
            return Some(start * 64 + masked.trailing_zeros() as usize);
        }
        let after = (start + 1..self.any.len()).chain(0..=start);
        after
            .map(|at| (at, self.any[at]))
            .find(|(_, bits)| *bits != 0)
            .map(|(at, bits)| at * 64 + bits.trailing_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn neighbours_are_handed_out_together_and_none_twice() {
        let mut frames = Frames::new(1000);
        let mut taken = Vec::new();
        assert_eq!(frames.take(130, &mut taken), 130);
        assert!(taken.windows(2).all(|pair| pair[1].0 == pair[0].0 + 1));
        assert_eq!(frames.take(2000, &mut taken), 870);
        assert_eq!(frames.free(), 0);
        assert_eq!(taken.iter().collect::<BTreeSet<_>>().len(), 1000);
        for frame in taken.drain(..).step_by(3) {
            frames.give(frame);
        }
        assert_eq!(frames.free(), 334);
        assert_eq!(frames.take(334, &mut taken), 334);
        assert_eq!(frames.take(1, &mut taken), 0);
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn a_frame_freed_twice_is_a_bug() {
        Frames::new(10).give(Frame(3));
    }
}
