//! A small random number generator whose sequence is part of our results.
//!
//! The order of the arms and the bootstrap are replayed from a printed seed, in ten years and by
//! other people. A crate's generator may change its sequence between versions; these twelve lines
//! (SplitMix64, Steele, Lea and Flood 2014) do not. It is no good for secrets.

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// A generator; every seed is a good one.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A generator for one use of a seed, independent of the other uses.
    #[must_use]
    pub fn stream(seed: u64, stream: u64) -> Self {
        let mut mixed = Self::new(seed ^ stream.wrapping_mul(0xd6e8_feb8_6659_fd93));
        Self::new(mixed.next())
    }

    /// The next 64 bits.
    #[allow(
        clippy::should_implement_trait,
        reason = "it has no end, so it is no iterator to be collected"
    )]
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not zero. The bias, below 2^-32 for the bounds used here,
    /// does not matter.
    pub fn below(&mut self, bound: usize) -> usize {
        debug_assert!(bound > 0);
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// Puts a slice in a random order, each with the same chance.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            let other = self.below(end + 1);
            items.swap(end, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first outputs for seed 0, as published with the algorithm: the sequence must never
    /// change.
    #[test]
    fn the_published_sequence() {
        let mut random = SplitMix64::new(0);
        assert_eq!(random.next(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(random.next(), 0x6e78_9e6a_a1b9_65f4);
        assert_eq!(random.next(), 0x06c4_5d18_8009_454f);
    }

    #[test]
    fn a_shuffle_keeps_everything_and_reaches_every_order() {
        let mut random = SplitMix64::new(1);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..500 {
            let mut items = [1, 2, 3, 4];
            random.shuffle(&mut items);
            let mut sorted = items;
            sorted.sort_unstable();
            assert_eq!(sorted, [1, 2, 3, 4]);
            seen.insert(items);
        }
        assert_eq!(seen.len(), 24);
    }
}
