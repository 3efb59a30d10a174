//! A fraction in millionths.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_bounded_and_round_up() {
        assert_eq!(Fraction::percent(101), Fraction::ALL);
        assert_eq!(Fraction::per_mille(u32::MAX), Fraction::ALL);
        assert_eq!((Fraction::percent(50).of(3), Fraction::ALL.of(u64::MAX)), (2, u64::MAX));
        assert_eq!((Fraction::NONE.of(9), Fraction::per_million(1).of(1)), (0, 1));
    }
}
