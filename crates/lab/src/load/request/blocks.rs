//! The operations of a request cell: a few instructions each, because they are paid for every one.
//!
//! Drawn with replacement. The same seed gives the same blocks in every arm.

use forebay_block::limits::PLUG_BIOS;
use forebay_block::random::Random;

use crate::load::driver::{Batch, Source};
use crate::load::sequence::{Kind, Operation};
use crate::request::{self, Pattern, RequestSpec};

/// Block after block of a file.
#[derive(Clone, Debug)]
pub(super) struct Blocks {
    /// Draws them, if they do not follow each other.
    random: Option<Random>,
    next: u64,
    blocks: u64,
    block_bytes: u32,
    kind: Kind,
}

impl Blocks {
    pub(super) fn new(spec: &RequestSpec) -> Self {
        let RequestSpec { block_bytes, .. } = *spec;
        let blocks = spec.file_bytes / u64::from(block_bytes);
        assert!(blocks > 0, "the file holds a block");
        let random = (spec.pattern == Pattern::Random).then(|| Random::new(spec.seed));
        let kind = match spec.operation {
            request::Operation::Read => Kind::Read,
            request::Operation::Write => Kind::Write,
        };
        Self { random, next: 0, blocks, block_bytes, kind }
    }

    /// Returns the next operation. There is always one.
    #[inline]
    pub(super) fn draw(&mut self) -> Operation {
        let block = match &mut self.random {
            Some(random) => random.below(self.blocks),
            None => {
                let block = self.next;
                self.next = if block + 1 == self.blocks { 0 } else { block + 1 };
                block
            }
        };
        let offset = block * u64::from(self.block_bytes);
        Operation { kind: self.kind, file: 0, offset, bytes: self.block_bytes }
    }
}

impl Source for Blocks {
    #[inline]
    fn next(&mut self) -> Option<Operation> {
        Some(self.draw())
    }
}

/// Returns exactly the batch that was asked for, so that a ladder of batches is one on devices that
/// end one at a time; but not more than there are slots or a queue has room for.
pub(super) fn batch_of(spec: &RequestSpec) -> Batch {
    match spec.batch {
        Some(batch) => Batch::exactly((batch.min(spec.depth) as usize).min(PLUG_BIOS)),
        None => Batch { least: 1, most: usize::MAX, complete: 1 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::request::tests::spec;

    #[test]
    fn sequential_blocks_begin_again_at_the_end() {
        let mut blocks = Blocks::new(&RequestSpec { file_bytes: 3 * 4096, ..spec("null") });
        let seen: Vec<u64> = (0..5).map(|_| blocks.draw().offset).collect();
        assert_eq!(seen, [0, 4096, 8192, 0, 4096]);
    }

    #[test]
    fn random_blocks_are_spread_over_the_file_and_come_again_for_the_same_seed() {
        let spec = RequestSpec { pattern: Pattern::Random, file_bytes: 16 * 4096, ..spec("null") };
        let draw = |spec: &RequestSpec| -> Vec<u64> {
            let mut blocks = Blocks::new(spec);
            (0..1600).map(|_| blocks.draw().offset).collect()
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
