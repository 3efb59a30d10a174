//! A random order without a table.
//!
//! A job that touches each block exactly once in random order would need a list of its blocks or a
//! bitmap of those it has seen; both cost memory that would be charged to the arm under test, and
//! both grow with the file. A Feistel network needs neither: it permutes the numbers below a power
//! of two, and walking along the permutation until a number below the wanted bound turns up
//! permutes those (at most two steps on average). The price is about twenty nanoseconds a block.
//! Good enough to scatter offsets; no secret is kept with it.

use forebay_block::random::{Random, mix};

const ROUNDS: usize = 4;

/// A pseudo-random permutation of the numbers below a bound.
#[derive(Clone, Debug)]
pub(crate) struct Permutation {
    bound: u64,
    keys: [u64; ROUNDS],
    low_bits: u32,
    high_bits: u32,
}

impl Permutation {
    /// Returns a permutation of the numbers below `bound`, by `seed`.
    pub(crate) fn new(bound: u64, seed: u64) -> Self {
        assert!(bound <= 1 << 62, "a permutation of {bound} numbers");
        let bits = (64 - bound.saturating_sub(1).leading_zeros()).max(2);
        let mut random = Random::new(seed);
        Self {
            bound,
            keys: std::array::from_fn(|_| random.draw()),
            low_bits: bits / 2,
            high_bits: bits.div_ceil(2),
        }
    }

    /// Returns the number at `index`.
    pub(crate) fn at(&self, index: u64) -> u64 {
        debug_assert!(index < self.bound);
        let mut value = index;
        loop {
            value = self.once(value);
            if value < self.bound {
                return value;
            }
        }
    }

    /// Permutes once. The halves may differ by a bit, so they trade widths as they trade places; an
    /// even number of rounds gives each its own back.
    fn once(&self, value: u64) -> u64 {
        let (mut kept_bits, mut changed_bits) = (self.low_bits, self.high_bits);
        let mut kept = value & low_mask(kept_bits);
        let mut changed = value >> kept_bits;
        for key in self.keys {
            let next = changed ^ (mix(kept.wrapping_add(key)) & low_mask(changed_bits));
            (kept, changed) = (next, kept);
            (kept_bits, changed_bits) = (changed_bits, kept_bits);
        }
        kept | (changed << kept_bits)
    }
}

fn low_mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_comes_exactly_once() {
        for bound in [1_u64, 2, 3, 4, 5, 7, 31, 32, 33, 1000, 6144, 65_537] {
            let permutation = Permutation::new(bound, 11);
            let mut seen = vec![false; usize::try_from(bound).unwrap()];
            for index in 0..bound {
                let slot = &mut seen[usize::try_from(permutation.at(index)).unwrap()];
                assert!(!*slot, "a number came twice below {bound}");
                *slot = true;
            }
        }
    }

    #[test]
    fn neighbours_are_scattered_and_seeds_differ() {
        let one = Permutation::new(10_000, 1);
        let other = Permutation::new(10_000, 2);
        let adjacent = (1..10_000).filter(|&at| one.at(at).abs_diff(one.at(at - 1)) == 1).count();
        assert!(adjacent < 20, "{adjacent} neighbours stayed neighbours");
        let same = (0..10_000).filter(|&at| one.at(at) == other.at(at)).count();
        assert!(same < 20, "two seeds agree {same} times");
    }
}
