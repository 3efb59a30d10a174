//! Random numbers that can be replayed: the same seed gives the same numbers on every machine.
//!
//! The generator is Marsaglia's xorshift with a multiplied output. It is not taken from a crate,
//! because the behaviour of a layer must not change with a release of a dependency. It is not for
//! secrets.

/// Fraction from 0 to 1 in millionths: a probability, or a quantile.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Fraction {
    millionths: u32,
}

impl Fraction {
    /// 0: never.
    pub const NONE: Fraction = Fraction { millionths: 0 };

    /// 1: always.
    pub const ALL: Fraction = Fraction { millionths: 1_000_000 };

    /// Returns `count` hundredths, at most 1.
    #[must_use]
    pub const fn percent(count: u32) -> Self {
        Self::per_million(count.saturating_mul(10_000))
    }

    /// Returns `count` thousandths, at most 1.
    #[must_use]
    pub const fn per_mille(count: u32) -> Self {
        Self::per_million(count.saturating_mul(1_000))
    }

    /// Returns `count` millionths, at most 1.
    #[must_use]
    pub const fn per_million(count: u32) -> Self {
        if count > Self::ALL.millionths { Self::ALL } else { Self { millionths: count } }
    }

    /// Returns the fraction in millionths.
    #[must_use]
    pub const fn millionths(self) -> u32 {
        self.millionths
    }

    /// Returns this fraction of `count`, rounded up.
    #[must_use]
    pub const fn of(self, count: u64) -> u64 {
        (count as u128 * self.millionths as u128).div_ceil(Self::ALL.millionths as u128) as u64
    }
}

/// Generator of pseudorandom numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Creates a generator from any seed. Similar seeds give unrelated numbers.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        // Shifts never leave the state zero.
        Self { state: if mixed == 0 { 1 } else { mixed } }
    }

    /// Returns the next number.
    pub fn draw(&mut self) -> u64 {
        debug_assert!(self.state != 0, "zero is the one state that shifts never leave");
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The high half of the product is as evenly distributed as a remainder, and uses the
        // better, high bits.
        ((u128::from(self.draw()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns `true` with the probability `rate`. Always draws a number, so that a changed rate
    /// does not change the numbers that follow.
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
