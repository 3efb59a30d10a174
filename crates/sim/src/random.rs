//! Random numbers that can be replayed: splitmix64. The same seed gives the same numbers on every
//! machine, which no generator of a library promises from one version to the next.

use std::ops::Range;

/// Probability in thousandths.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct PerMille(pub u16);

/// Generator of pseudorandom numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator from any seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound.max(1)
    }

    /// Returns a number in a range that is not empty.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.below(range.end - range.start)
    }

    /// Returns `true` with the probability `rate`.
    pub fn happens(&mut self, rate: PerMille) -> bool {
        rate.0 > 0 && self.below(1000) < u64::from(rate.0)
    }

    /// Returns one of the values.
    ///
    /// # Panics
    /// If there is no value.
    pub fn pick<'a, T>(&mut self, some: &'a [T]) -> &'a T {
        &some[self.below(some.len() as u64) as usize]
    }

    /// Returns another generator. Its numbers do not depend on how many are drawn from this one
    /// later.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self(self.draw())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_published_generator() {
        let mut random = Random::new(1_234_567);
        let drawn: Vec<u64> = (0..3).map(|_| random.draw()).collect();
        assert_eq!(
            drawn,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn a_rate_is_met() {
        let mut random = Random::new(1);
        let happened = (0..100_000).filter(|_| random.happens(PerMille(250))).count();
        assert!((24_000..26_000).contains(&happened), "{happened}");
        assert!(!(0..1000).any(|_| random.happens(PerMille(0))));
    }
}
