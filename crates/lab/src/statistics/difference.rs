//! How much more or less, in the metric's own unit: for costs, which add up where ratios do not.
//!
//! The difference of the medians of two arms. Its interval resamples *rounds*, both arms of a round
//! together, so that what drifts with the machine drifts in both. The noise floor is that of the
//! A/A pair, as for ratios: the larger of how far its medians are apart and the spread of its
//! per-round differences. A median because a stall in one round would move a mean by as much as a
//! saving of a few nanoseconds in all others. For the same reason the sign-flip test flips the
//! *ranks* of the per-round differences (Wilcoxon's): as exact, and a stall is one round among
//! others.

use super::{Estimate, Paired, median, middle_of, sample_stddev, sign_flip};
use forebay_block::random::Random;

/// Returns the difference of an arm and its base. None if there is no round, the lengths differ, or
/// a value is not finite.
pub fn difference(pair: Paired<'_>, seed: u64) -> Option<Estimate> {
    let Paired { arm, base } = pair;
    let finite = arm.iter().chain(base).all(|value| value.is_finite());
    if arm.len() != base.len() || !finite {
        return None;
    }
    let value = median(arm)? - median(base)?;
    let mut random = Random::stream(seed, 3);
    let mut drawn = (Vec::with_capacity(arm.len()), Vec::with_capacity(arm.len()));
    let (low, high) = middle_of(|| {
        drawn.0.clear();
        drawn.1.clear();
        for _ in 0..arm.len() {
            let round = random.below(arm.len() as u64) as usize;
            drawn.0.push(arm[round]);
            drawn.1.push(base[round]);
        }
        middle(&mut drawn.0) - middle(&mut drawn.1)
    });
    let each: Vec<f64> = arm.iter().zip(base).map(|(arm, base)| arm - base).collect();
    let p = sign_flip(&signed_ranks(&each), seed);
    assert!(low <= high, "an interval from {low} to {high}");
    Some(Estimate { value, low, high, rounds: arm.len(), p })
}

/// Returns the place of each among all by its size, the least being 1, with its sign; equals share
/// the mean of theirs. Zero has no sign, and flips with either.
fn signed_ranks(values: &[f64]) -> Vec<f64> {
    let rank = |value: &f64| {
        let below = values.iter().filter(|other| other.abs() < value.abs()).count();
        let equal = values.iter().filter(|other| other.abs() == value.abs()).count();
        let rank = below as f64 + (equal as f64 + 1.0) / 2.0;
        if *value == 0.0 { 0.0 } else { rank.copysign(*value) }
    };
    values.iter().map(rank).collect()
}

/// Returns the noise floor of an A/A pair, in the metric's unit. None below two rounds, which have
/// no spread.
pub fn difference_floor(pair: Paired<'_>) -> Option<f64> {
    let apart = (median(pair.arm)? - median(pair.base)?).abs();
    let each: Vec<f64> = pair.arm.iter().zip(pair.base).map(|(arm, base)| arm - base).collect();
    sample_stddev(&each).map(|spread| spread.max(apart))
}

/// Returns the median, in place: this is done many thousand times.
fn middle(values: &mut [f64]) -> f64 {
    debug_assert!(!values.is_empty(), "nothing has no median");
    values.sort_unstable_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 { values[half] } else { f64::midpoint(values[half - 1], values[half]) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_difference_of_medians_with_a_floor() {
        let (arm, base) = ([120.0, 130.0, 900.0, 121.0, 119.0], [100.0, 110.0, 101.0, 99.0, 98.0]);
        let found = difference(Paired { arm: &arm, base: &base }, 1).unwrap();
        assert_eq!(found.value, 21.0, "one stalled round does not move it");
        assert!(found.low <= found.value && found.value <= found.high);
        let again = [100.0, 111.0, 100.0, 99.0, 98.0];
        let floor = difference_floor(Paired { arm: &again, base: &base });
        assert!(floor.unwrap() < 2.0);
        assert_eq!(found.p, 0.0625, "all five are above");
        let clear = Estimate { value: 21.0, low: 19.0, high: 22.0, rounds: 5, p: 0.0625 };
        let is_shown = Estimate::is_difference_shown;
        assert!(is_shown(&clear, floor));
        assert!(!is_shown(&clear, None) && !is_shown(&clear, Some(30.0)));
        assert!(
            !is_shown(&Estimate { low: -1.0, ..clear }, floor)
                && !is_shown(&Estimate { rounds: 3, ..clear }, floor)
        );
        assert!(is_shown(&Estimate { value: -21.0, low: -22.0, high: -19.0, ..clear }, floor));
        assert!(!is_shown(&Estimate { p: 0.125, ..clear }, floor) && !is_shown(&clear, Some(21.0)));
    }

    #[test]
    fn a_stall_is_one_rank_among_others() {
        assert_eq!(signed_ranks(&[3.0, -900.0, 0.0, -2.0, 2.0]), [4.0, -5.0, 0.0, -2.5, 2.5]);
        let base = [100.0; 8];
        let arm = [110.0, 111.0, 112.0, 113.0, 114.0, 115.0, 116.0, 90_000.0];
        let found = difference(Paired { arm: &arm, base: &base }, 1).unwrap();
        assert_eq!(found.p, 2.0 / 256.0);
    }

    #[test]
    fn nothing_is_made_of_nothing() {
        for (arm, base) in [(vec![], vec![]), (vec![1.0], vec![]), (vec![f64::NAN], vec![1.0])] {
            assert_eq!(difference(Paired { arm: &arm, base: &base }, 1), None);
        }
        assert_eq!(difference_floor(Paired { arm: &[1.0], base: &[1.0] }), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn arm_and_base_are_treated_alike(
            rounds in prop::collection::vec((0.0..1e3f64, 0.0..1e3f64), 1..9), drift in 0.0..1e3f64, seed: u64
        ) {
            let (arm, base): (Vec<f64>, Vec<f64>) = rounds.into_iter().unzip();
            let there = difference(Paired { arm: &arm, base: &base }, seed).unwrap();
            let back = difference(Paired { arm: &base, base: &arm }, seed).unwrap();
            prop_assert!((there.value + back.value).abs() < 1e-9 && (there.low + back.high).abs() < 1e-9);
            let more = |values: &[f64]| values.iter().map(|value| value + drift).collect::<Vec<_>>();
            let moved = difference(Paired { arm: &more(&arm), base: &more(&base) }, seed).unwrap();
            prop_assert!((there.value - moved.value).abs() < 1e-6 && (there.low - moved.low).abs() < 1e-6);
        }
    }
}
