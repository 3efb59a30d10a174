//! Where the next block is: a few instructions, because they are paid for every bio.
//!
//! Drawn with replacement. The same seed gives the same blocks in every arm.

use forebay_block::random::Random;

use crate::request::{Pattern, RequestSpec};

/// Block after block of a file.
#[derive(Clone, Debug)]
pub(crate) struct Offsets {
    next: Next,
    blocks: u64,
    block_bytes: u64,
}

#[derive(Clone, Debug)]
enum Next {
    Sequential(u64),
    Random(Random),
}

impl Offsets {
    pub(crate) fn new(spec: &RequestSpec) -> Self {
        let block_bytes = u64::from(spec.block_bytes);
        let next = match spec.pattern {
            Pattern::Random => Next::Random(Random::new(spec.seed)),
            Pattern::Sequential => Next::Sequential(0),
        };
        Self { next, blocks: spec.file_bytes / block_bytes, block_bytes }
    }

    /// The byte the next block begins at.
    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        let block = match &mut self.next {
            Next::Random(random) => random.below(self.blocks),
            Next::Sequential(next) => {
                let block = *next;
                *next = if block + 1 == self.blocks { 0 } else { block + 1 };
                block
            }
        };
        block * self.block_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::request::tests::spec;

    #[test]
    fn sequential_blocks_begin_again_at_the_end() {
        let mut offsets = Offsets::new(&RequestSpec { file_bytes: 3 * 4096, ..spec("null") });
        let seen: Vec<u64> = (0..5).map(|_| offsets.next()).collect();
        assert_eq!(seen, [0, 4096, 8192, 0, 4096]);
    }

    #[test]
    fn random_blocks_are_spread_over_the_file_and_come_again_for_the_same_seed() {
        let spec = RequestSpec { pattern: Pattern::Random, file_bytes: 16 * 4096, ..spec("null") };
        let draw = |spec: &RequestSpec| -> Vec<u64> {
            let mut offsets = Offsets::new(spec);
            (0..1600).map(|_| offsets.next()).collect()
        };
        let mut seen = [0_u32; 16];
        for offset in draw(&spec) {
            assert_eq!(offset % 4096, 0);
            seen[(offset / 4096) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| (50..200).contains(&count)), "{seen:?}");
        assert_eq!(draw(&spec), draw(&spec));
        assert_ne!(draw(&spec), draw(&RequestSpec { seed: spec.seed + 1, ..spec.clone() }));
    }
}
