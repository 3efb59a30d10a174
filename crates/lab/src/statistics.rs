//! Conclusions from a few paired rounds.
//!
//! A machine drifts: the same test ran two to four times faster minutes later. So rounds of two
//! arms are never compared as unordered sets. Arms are **paired by round**: the ratio arm/base is
//! taken within each round, where the drift hits both, and the mean of the logarithms of these
//! ratios is reported, turned back into a ratio.
//!
//! * **Interval**: percentile bootstrap of that mean, [`RESAMPLES`] resamples from a seed, the
//!   middle 95 %. Price: with a handful of rounds it is somewhat too narrow (about 85 % in truth at
//!   five), which is why it never decides alone.
//! * **Noise floor**, from the A/A pair (the same program under two names): the larger of how far
//!   the mean of the logarithms of its ratios is from 0, and their sample standard deviation,
//!   turned back into a factor and reported as its excess over 1 ([`distance`]). In logarithms half
//!   and twice are equally far from 1, so either arm may be the base. It does not shrink with more
//!   rounds: a difference smaller than that between a thing and itself is not a result here.
//! * **p**: the exact paired sign-flip permutation test, two-sided. Its least value is 2/2^rounds,
//!   so six rounds are the first that can come below [`LEVEL`].
//! * **Verdict**: `better` or `worse` only if there are at least [`ROUNDS_FOR_A_VERDICT`] rounds,
//!   and the interval leaves 1 out, and p is at most the [`level`] for these rounds, and the ratio
//!   is further from 1 than the noise floor. Else `not shown`, which is not the same as "equal".
//!   Without a noise floor nothing is shown.
//!
//! How often that is wrong is not argued but tried: see `tests/verdicts/`.

pub mod difference;
pub mod unpaired;

use statrs::statistics::{Data, Median, Statistics};

use crate::metric::Better;
use crate::words::words;
use forebay_block::random::Random;

/// Below this no verdict is given: three rounds agree by chance one time in four.
pub const ROUNDS_FOR_A_VERDICT: usize = 4;

/// A verdict's p is below this, from six rounds on.
pub const LEVEL: f64 = 0.05;

/// Resamples of one interval.
pub const RESAMPLES: usize = 10_000;

/// Above this the sign-flip test samples the flips rather than going through all of them.
const EXACT_FLIPS_UP_TO: usize = 20;

/// Flips sampled above that.
const SAMPLED_FLIPS: u32 = 1 << 17;

/// One metric of two arms; index is the round.
#[derive(Clone, Copy, Debug)]
pub struct Paired<'a> {
    /// The arm that is judged.
    pub arm: &'a [f64],
    pub base: &'a [f64],
}

/// A ratio or a difference of an arm and its base.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    pub value: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end of the 95 % interval.
    pub high: f64,
    /// Rounds it rests on.
    pub rounds: usize,
    /// Chance of a value at least this far to one side if arm and base were the same (sign-flip
    /// test, two-sided).
    pub p: f64,
}

impl Estimate {
    /// Returns whether a value other than `none` is shown: with enough rounds, an interval without
    /// `none`, hardly by chance, and further away than the noise floor. Never without a floor.
    fn is_shown(&self, none: f64, distance: f64, noise_floor: Option<f64>) -> bool {
        let includes_none = self.low <= none && none <= self.high;
        let clear = !includes_none && self.p <= level(self.rounds);
        // An A/A pair alone can be as far away as its own floor: that is no result.
        let above = noise_floor.is_some_and(|floor| distance > floor);
        self.rounds >= ROUNDS_FOR_A_VERDICT && clear && above
    }

    /// Returns whether a ratio is shown.
    pub fn is_ratio_shown(&self, noise_floor: Option<f64>) -> bool {
        self.is_shown(1.0, distance(self.value), noise_floor)
    }

    /// Returns whether a difference is shown.
    pub fn is_difference_shown(&self, noise_floor: Option<f64>) -> bool {
        self.is_shown(0.0, self.value.abs(), noise_floor)
    }
}

words! {
    pub enum Verdict {
        Better = "better",
        Worse = "worse",
        NotShown = "not shown",
    }
}

pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| Statistics::mean(values.iter()))
}

/// Returns the sample standard deviation (divided by n - 1); none below two values.
pub fn sample_stddev(values: &[f64]) -> Option<f64> {
    (values.len() >= 2).then(|| values.iter().std_dev())
}

pub fn median(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| Data::new(values.to_vec()).median())
}

/// Compares an arm with its base. None if there is no round, the lengths differ, or a value is not
/// a positive number (a ratio to nothing says nothing).
pub fn ratio(pair: Paired<'_>, seed: u64) -> Option<Estimate> {
    let logs = log_ratios(pair)?;
    let centre = Statistics::mean(logs.iter());
    let (low, high) = bootstrap_of_mean(&logs, seed);
    let p = sign_flip(&logs, seed);
    assert!(low <= high, "an interval from {low} to {high}");
    assert!(p > 0.0 && p <= 1.0, "p {p}");
    Some(Estimate { value: centre.exp(), low: low.exp(), high: high.exp(), rounds: logs.len(), p })
}

/// Returns the distance of a ratio from 1 in either direction: 0.25 of 1.25, and of 0.8 as well.
pub fn distance(ratio: f64) -> f64 {
    debug_assert!(ratio >= 0.0, "{ratio} is no ratio");
    ratio.max(1.0 / ratio) - 1.0
}

/// Returns the noise floor of an A/A pair, as defined at the top of this file: a [`distance`]. None
/// below two rounds, which have no spread.
pub fn noise_floor(pair: Paired<'_>) -> Option<f64> {
    let logs = log_ratios(pair)?;
    let off_centre = distance(Statistics::mean(logs.iter()).exp());
    sample_stddev(&logs).map(|spread| off_centre.max(spread.exp_m1()))
}

pub fn verdict(ratio: &Estimate, noise_floor: Option<f64>, better: Better) -> Verdict {
    if !ratio.is_ratio_shown(noise_floor) {
        return Verdict::NotShown;
    }
    let higher = ratio.value > 1.0;
    if higher == (better == Better::Higher) { Verdict::Better } else { Verdict::Worse }
}

/// Returns the largest p for a verdict: [`LEVEL`]. For four and five rounds it is the least there
/// is (0.125 and 0.0625), so all rounds must point the same way; there the noise floor keeps chance
/// out.
pub fn level(rounds: usize) -> f64 {
    let least = 2.0 / 2f64.powi(i32::try_from(rounds).unwrap_or(i32::MAX));
    LEVEL.max(least)
}

/// Returns the two-sided p of the mean of `differences` being 0, by flipping their signs: every
/// flip is equally likely if arm and base are the same. Goes through all flips up to 20 values,
/// samples 131,072 of them above.
pub fn sign_flip(differences: &[f64], seed: u64) -> f64 {
    if differences.is_empty() {
        return 1.0;
    }
    let seen = differences.iter().sum::<f64>().abs();
    // Values that differ by rounding are equal: the flip that was seen is one of them.
    let reached = |sum: f64| sum.abs() >= seen * (1.0 - 1e-12);
    let flipped = |signs: u64| -> f64 {
        let values = differences.iter().enumerate();
        values.map(|(bit, value)| if signs >> (bit % 64) & 1 == 1 { -value } else { *value }).sum()
    };
    if differences.len() <= EXACT_FLIPS_UP_TO {
        let all = 1u64 << differences.len();
        let as_far = (0..all).filter(|signs| reached(flipped(*signs))).count();
        return as_far as f64 / all as f64;
    }
    let mut random = Random::stream(seed, 2);
    let as_far = (0..SAMPLED_FLIPS).filter(|_| {
        let sum = differences.chunks(64).map(|chunk| {
            let signs = random.draw();
            let values = chunk.iter().enumerate();
            values
                .map(|(bit, value)| if signs >> bit & 1 == 1 { -value } else { *value })
                .sum::<f64>()
        });
        reached(sum.sum())
    });
    // The flip that was seen is added, so that p is never 0.
    (as_far.count() as f64 + 1.0) / (f64::from(SAMPLED_FLIPS) + 1.0)
}

/// Logarithms of arm/base, round by round.
fn log_ratios(pair: Paired<'_>) -> Option<Vec<f64>> {
    let usable = |value: &f64| value.is_finite() && *value > 0.0;
    let complete = pair.arm.len() == pair.base.len() && !pair.arm.is_empty();
    if !complete || !pair.arm.iter().all(usable) || !pair.base.iter().all(usable) {
        return None;
    }
    // The difference of logarithms, not the logarithm of the quotient: that could overflow.
    Some(pair.arm.iter().zip(pair.base).map(|(arm, base)| arm.ln() - base.ln()).collect())
}

/// Returns the middle 95 % of the means of resamples.
fn bootstrap_of_mean(values: &[f64], seed: u64) -> (f64, f64) {
    let mut random = Random::stream(seed, 1);
    middle_of(|| mean_of_resample(values, &mut random))
}

fn mean_of_resample(values: &[f64], random: &mut Random) -> f64 {
    debug_assert!(!values.is_empty(), "there is nothing to draw from");
    let drawn = (0..values.len()).map(|_| values[random.below(values.len() as u64) as usize]);
    drawn.sum::<f64>() / values.len() as f64
}

/// Returns the ends of the middle 95 % of `RESAMPLES` draws.
fn middle_of(mut draw: impl FnMut() -> f64) -> (f64, f64) {
    let mut drawn: Vec<f64> = (0..RESAMPLES).map(|_| draw()).collect();
    drawn.sort_unstable_by(f64::total_cmp);
    let cut = RESAMPLES / 40;
    (drawn[cut], drawn[RESAMPLES - 1 - cut])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn naive_mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    fn naive_stddev(values: &[f64]) -> f64 {
        let centre = naive_mean(values);
        let squares: f64 = values.iter().map(|value| (value - centre).powi(2)).sum();
        (squares / (values.len() - 1) as f64).sqrt()
    }

    fn naive_sign_flip(values: &[f64]) -> f64 {
        fn sums(values: &[f64]) -> Vec<f64> {
            let Some((first, rest)) = values.split_first() else { return vec![0.0] };
            sums(rest).into_iter().flat_map(|sum| [sum + first, sum - first]).collect()
        }
        let all = sums(values);
        let seen = values.iter().sum::<f64>().abs();
        all.iter().filter(|sum| sum.abs() > seen - 1e-9).count() as f64 / all.len() as f64
    }

    fn close(left: f64, right: f64) -> bool {
        (left - right).abs() <= 1e-9 * left.abs().max(right.abs()).max(1.0)
    }

    fn rounds() -> impl Strategy<Value = (Vec<f64>, Vec<f64>)> {
        (1usize..9).prop_flat_map(|rounds| {
            (prop::collection::vec(0.1..1e4f64, rounds), prop::collection::vec(0.1..1e4f64, rounds))
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn centre_and_spread_are_the_naive_ones(values in prop::collection::vec(-1e6..1e6f64, 2..40)) {
            prop_assert!(close(mean(&values).unwrap(), naive_mean(&values)));
            prop_assert!(close(sample_stddev(&values).unwrap(), naive_stddev(&values)));
            let mut sorted = values.clone();
            sorted.sort_unstable_by(f64::total_cmp);
            let half = sorted.len() / 2;
            let middle =
                if sorted.len() % 2 == 1 { sorted[half] } else { f64::midpoint(sorted[half - 1], sorted[half]) };
            prop_assert!(close(median(&values).unwrap(), middle));
        }

        #[test]
        fn the_sign_flip_is_the_naive_one(values in prop::collection::vec(-10.0..10.0f64, 1..10)) {
            prop_assert!(close(sign_flip(&values, 1), naive_sign_flip(&values)));
        }

        #[test]
        fn the_ratio_is_the_geometric_mean_and_lies_in_its_interval((arm, base) in rounds(), seed: u64) {
            let found = ratio(Paired { arm: &arm, base: &base }, seed).unwrap();
            let product: f64 = arm.iter().zip(&base).map(|(arm, base)| arm / base).product();
            prop_assert!(close(found.value, product.powf(1.0 / arm.len() as f64)));
            let mut ratios: Vec<f64> = arm.iter().zip(&base).map(|(arm, base)| arm / base).collect();
            ratios.sort_unstable_by(f64::total_cmp);
            prop_assert!(found.low <= found.high);
            prop_assert!(ratios[0] * (1.0 - 1e-9) <= found.low);
            prop_assert!(found.high <= ratios[ratios.len() - 1] * (1.0 + 1e-9));
            prop_assert!(found.p > 0.0 && found.p <= 1.0);
            prop_assert_eq!(Some(found), ratio(Paired { arm: &arm, base: &base }, seed));
        }

        /// Asked the other way round, the answer is the same upside down.
        #[test]
        fn arm_and_base_are_treated_alike((arm, base) in rounds(), seed: u64) {
            let there = ratio(Paired { arm: &arm, base: &base }, seed).unwrap();
            let back = ratio(Paired { arm: &base, base: &arm }, seed).unwrap();
            prop_assert!(close(there.value * back.value, 1.0));
            prop_assert!(close(there.low * back.high, 1.0));
            prop_assert!(close(there.p, back.p));
            let floors = [(&arm, &base), (&base, &arm)].map(|(arm, base)| noise_floor(Paired { arm, base }));
            prop_assert!(close(floors[0].unwrap_or(0.0), floors[1].unwrap_or(0.0)));
        }

        /// The unit does not matter.
        #[test]
        fn scale_cancels((arm, base) in rounds(), seed: u64, factor in 0.01..100.0f64) {
            let plain = ratio(Paired { arm: &arm, base: &base }, seed).unwrap();
            let scaled: (Vec<f64>, Vec<f64>) =
                (arm.iter().map(|v| v * factor).collect(), base.iter().map(|v| v * factor).collect());
            let scaled = ratio(Paired { arm: &scaled.0, base: &scaled.1 }, seed).unwrap();
            prop_assert!(close(plain.value, scaled.value) && close(plain.low, scaled.low));
        }

        #[test]
        fn the_noise_floor_is_the_larger_of_the_two((arm, base) in rounds()) {
            let found = noise_floor(Paired { arm: &arm, base: &base });
            let logs: Vec<f64> = arm.iter().zip(&base).map(|(arm, base)| (arm / base).ln()).collect();
            if logs.len() < 2 {
                prop_assert_eq!(found, None);
            } else {
                let larger = naive_mean(&logs).abs().max(naive_stddev(&logs));
                prop_assert!(close(found.unwrap(), larger.exp() - 1.0));
            }
        }
    }

    #[test]
    fn the_interval_narrows_with_rounds() {
        let wide = ratio(Paired { arm: &[1.1, 0.9, 1.2, 1.0], base: &[1.0; 4] }, 7).unwrap();
        let arm: Vec<f64> = [1.1, 0.9, 1.2, 1.0].repeat(8);
        let narrow = ratio(Paired { arm: &arm, base: &vec![1.0; 32] }, 7).unwrap();
        assert!(narrow.high - narrow.low < (wide.high - wide.low) / 2.0);
    }

    #[test]
    fn many_rounds_are_sampled_and_agree_with_all_flips() {
        let few: Vec<f64> = (0..20).map(|round| f64::from(round % 5) - 1.4).collect();
        let many: Vec<f64> = few.iter().copied().chain([1e-9]).collect();
        assert!((sign_flip(&few, 3) - sign_flip(&many, 3)).abs() < 0.01);
        assert!(sign_flip(&[1.0; 200], 3) < 1e-4);
    }

    #[test]
    fn nothing_is_made_of_nothing() {
        assert_eq!(mean(&[]), None);
        assert_eq!(median(&[]), None);
        assert_eq!(sample_stddev(&[1.0]), None);
        for (arm, base) in [
            (vec![], vec![]),
            (vec![1.0], vec![1.0, 2.0]),
            (vec![0.0], vec![1.0]),
            (vec![f64::NAN], vec![1.0]),
        ] {
            assert_eq!(ratio(Paired { arm: &arm, base: &base }, 1), None);
        }
    }

    #[test]
    fn every_doubt_and_both_verdicts() {
        let clear = Estimate { value: 1.5, low: 1.4, high: 1.6, rounds: 5, p: 0.0625 };
        let judge = |ratio: Estimate, floor| verdict(&ratio, floor, Better::Higher);
        assert_eq!(judge(clear, Some(0.03)), Verdict::Better);
        assert_eq!(verdict(&clear, Some(0.03), Better::Lower), Verdict::Worse);
        let doubts = [
            (Estimate { rounds: 3, ..clear }, Some(0.03)),
            (clear, None),
            (Estimate { low: 1.0, ..clear }, Some(0.03)),
            (Estimate { p: 0.125, ..clear }, Some(0.03)),
            (Estimate { rounds: 6, ..clear }, Some(0.03)),
            (clear, Some(0.5)),
        ];
        for (ratio, floor) in doubts {
            assert_eq!(judge(ratio, floor), Verdict::NotShown, "{ratio:?}, floor {floor:?}");
        }
        assert_eq!(judge(Estimate { rounds: 4, p: 0.125, ..clear }, Some(0.03)), Verdict::Better);
        // A cost that is halved and one that is doubled are equally far from 1.
        let (half, double) = ([0.5, 0.4, 0.6], [2.0, 1.7, 2.5]);
        for (floor, shown) in [(0.55, true), (0.99, true), (1.0, false), (1.5, false)] {
            for [value, low, high] in [half, double] {
                let found = Estimate { value, low, high, ..clear }.is_ratio_shown(Some(floor));
                assert_eq!(found, shown, "{value}, floor {floor}");
            }
        }
        let less = Estimate { value: 0.5, low: 0.4, high: 0.6, ..clear };
        assert_eq!(verdict(&less, Some(0.03), Better::Higher), Verdict::Worse);
        assert_eq!(verdict(&less, Some(0.03), Better::Lower), Verdict::Better);
    }

    #[test]
    fn a_level_of_the_least_there_is() {
        assert_eq!([4, 5, 6, 12, 5000].map(level), [0.125, 0.0625, LEVEL, LEVEL, LEVEL]);
        for rounds in [4, 5, 6, 7] {
            let together = vec![0.1; rounds];
            assert!(sign_flip(&together, 1) <= level(rounds), "{rounds}");
            let mut apart = together;
            apart[0] = -0.001;
            assert_eq!(sign_flip(&apart, 1) <= level(rounds), rounds > 6, "{rounds}");
        }
    }

    /// The floor is where it is itself: no further than it is.
    #[test]
    fn an_arm_is_never_better_than_itself() {
        let (arm, base) = ([1.05; 8], [1.0; 8]);
        let pair = Paired { arm: &arm, base: &base };
        let found = ratio(pair, 1).unwrap();
        assert!(found.low > 1.0 && found.p <= level(8) && !found.is_ratio_shown(noise_floor(pair)));
    }
}
