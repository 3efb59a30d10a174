//! Chance that replays: the same seed, the same numbers, on every machine. A generator of three
//! shifts (Marsaglia's xorshift, its output multiplied), not a crate: what a layer does must not
//! change with somebody's release.
//!
//! Not for secrets.

/// A part of a whole, in parts of a million: how often something happens, or which quantile is
/// asked for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Fraction {
    millionths: u32,
}

impl Fraction {
    /// None of it: never.
    pub const NONE: Fraction = Fraction { millionths: 0 };

    /// All of it: always.
    pub const ALL: Fraction = Fraction { millionths: 1_000_000 };

    /// So many in a hundred; all, where there are more.
    #[must_use]
    pub const fn percent(count: u32) -> Self {
        Self::per_million(count.saturating_mul(10_000))
    }

    /// So many in a thousand; all, where there are more.
    #[must_use]
    pub const fn per_mille(count: u32) -> Self {
        Self::per_million(count.saturating_mul(1_000))
    }

    /// So many in a million; all, where there are more.
    #[must_use]
    pub const fn per_million(count: u32) -> Self {
        if count > Self::ALL.millionths { Self::ALL } else { Self { millionths: count } }
    }

    /// Parts of a million.
    #[must_use]
    pub const fn millionths(self) -> u32 {
        self.millionths
    }

    /// This part of a count, rounded up.
    #[must_use]
    pub const fn of(self, count: u64) -> u64 {
        (count as u128 * self.millionths as u128).div_ceil(Self::ALL.millionths as u128) as u64
    }
}

/// A generator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Of a seed; any will do, and neighbours have nothing in common.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        // Zero is the one state that shifts never leave.
        Self { state: if mixed == 0 { 1 } else { mixed } }
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `bound`; 0 where that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The high half of a product is as even as a remainder, and the high bits are the better
        // ones.
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }

    /// Whether something happens this time. Draws a number even for never and always, so that a
    /// rate that is changed does not change what follows.
    pub fn happens(&mut self, rate: Fraction) -> bool {
        self.below(u64::from(Fraction::ALL.millionths)) < u64::from(rate.millionths)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn fractions_are_bounded_and_round_up() {
        assert_eq!(Fraction::percent(101), Fraction::ALL);
        assert_eq!(Fraction::per_mille(u32::MAX), Fraction::ALL);
        assert_eq!((Fraction::percent(50).of(3), Fraction::ALL.of(u64::MAX)), (2, u64::MAX));
        assert_eq!((Fraction::NONE.of(9), Fraction::per_million(1).of(1)), (0, 1));
    }
}
