//! Draws of the simulation, from the generator of all crates ([`forebay_block::random`]).

use std::ops::Range;

use forebay_block::random;

/// Probability in thousandths.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct PerMille(pub u16);

/// Generator of pseudorandom numbers.
///
/// A number below a bound is a remainder here. The recorded seeds of the simulation depend on that,
/// so it is not [`random::Random::below`].
#[derive(Clone, Debug)]
pub struct Random(random::Random);

impl Random {
    /// Creates a generator from any seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(random::Random::new(seed))
    }

    /// Returns the next number.
    pub fn draw(&mut self) -> u64 {
        self.0.draw()
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
        Self::new(self.draw())
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
