//! The pseudorandom numbers of all crates: SplitMix64 (G. L. Steele, D. Lea, C. H. Flood, OOPSLA
//! 2014).
//!
//! The same seed gives the same numbers on every machine and in every version, because seeds are
//! printed in results and recorded with bugs. The crates for random numbers do not promise that.
//! It is not for secrets.

use crate::layers::fraction::Fraction;

/// Added to the state before each number: 2^64 over the golden ratio, made odd.
pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Generator of pseudorandom numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Creates a generator. Any seed will do; similar seeds give unrelated numbers.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Creates the generator for one of several uses of a seed.
    #[must_use]
    pub fn stream(seed: u64, stream: u64) -> Self {
        let mut mixed = Self::new(seed ^ stream.wrapping_mul(0xd6e8_feb8_6659_fd93));
        Self::new(mixed.draw())
    }

    /// Returns the next number.
    #[inline]
    pub fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        mix(self.state)
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        // The high half of the product: the bias is below `bound` / 2^64.
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns `true` with the probability `rate`. Always draws a number, so that a changed rate
    /// does not change the numbers that follow.
    pub fn happens(&mut self, rate: Fraction) -> bool {
        self.below(u64::from(Fraction::ALL.millionths())) < u64::from(rate.millionths())
    }

    /// Puts a slice in random order. Every order has the same probability.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.below(end as u64 + 1) as usize);
        }
    }
}

/// Spreads the bits of a number over the whole word; one to one.
#[must_use]
#[inline]
pub const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Folds a further number into a seed.
#[must_use]
#[inline]
pub const fn fold(seed: u64, value: u64) -> u64 {
    mix(seed ^ mix(value.wrapping_add(STEP)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The first numbers for seed 0, as published with the algorithm.
    #[test]
    fn the_numbers_are_those_of_the_published_generator() {
        let mut random = Random::new(0);
        assert_eq!(random.draw(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(random.draw(), 0x6e78_9e6a_a1b9_65f4);
        assert_eq!(random.draw(), 0x06c4_5d18_8009_454f);
    }

    #[test]
    fn a_rate_is_met_and_replays() {
        let happened = |seed| {
            let mut random = Random::new(seed);
            (0..100_000).filter(|_| random.happens(Fraction::percent(25))).count()
        };
        assert!((24_000..26_000).contains(&happened(1)), "{}", happened(1));
        assert_eq!(happened(2), happened(2));
        let mut random = Random::new(3);
        assert!(
            (0..1000).all(|_| random.happens(Fraction::ALL) && !random.happens(Fraction::NONE))
        );
    }

    #[test]
    fn numbers_stay_below_their_bound_and_reach_it() {
        let mut random = Random::new(4);
        let mut seen = [false; 7];
        (0..1000).for_each(|_| seen[random.below(7) as usize] = true);
        assert_eq!((seen, random.below(0)), ([true; 7], 0));
    }

    #[test]
    fn a_shuffle_keeps_everything_and_reaches_every_order() {
        let mut random = Random::new(1);
        let mut seen = BTreeSet::new();
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
