//! Two series that were not taken together: two machines, two kernels, two days. Nothing pairs
//! their rounds, so drift between them is in the ratio, and no number of rounds removes it. A
//! warning says so.

use statrs::statistics::Statistics;

use super::{Estimate, mean_of_resample, middle_of};
use forebay_block::random::Random;

/// Returns the ratio of the second series to the first; both are resampled, each by itself. No
/// pairs, so no test of chance: `p` is 0. Returns none if one is empty or has a value that is not
/// above 0.
pub fn apart(first: &[f64], second: &[f64], seed: u64) -> Option<Estimate> {
    let logs = |values: &[f64]| -> Option<Vec<f64>> {
        let usable =
            !values.is_empty() && values.iter().all(|value| value.is_finite() && *value > 0.0);
        usable.then(|| values.iter().map(|value| value.ln()).collect())
    };
    let (first, second) = (logs(first)?, logs(second)?);
    let ratio = (Statistics::mean(second.iter()) - Statistics::mean(first.iter())).exp();
    let mut random = Random::stream(seed, 3);
    let mut mean_of = |values: &[f64]| mean_of_resample(values, &mut random);
    let (low, high) = middle_of(|| mean_of(&second) - mean_of(&first));
    assert!(low <= high, "an interval from {low} to {high}");
    let rounds = first.len().min(second.len());
    Some(Estimate { value: ratio, low: low.exp(), high: high.exp(), rounds, p: 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twice_as_much_is_seen_and_the_same_is_not() {
        let first = [100.0, 104.0, 97.0, 101.0, 99.0];
        let twice = first.map(|value| value * 2.0);
        let found = apart(&first, &twice, 1).unwrap();
        assert!(
            (found.value - 2.0).abs() < 1e-9 && found.low > 1.9 && found.high < 2.1,
            "{found:?}"
        );
        assert!(
            found.is_ratio_shown(Some(0.05))
                && !found.is_ratio_shown(None)
                && !found.is_ratio_shown(Some(1.5))
        );
        let half = apart(&twice, &first, 1).unwrap();
        assert!(
            half.is_ratio_shown(Some(0.9)) && !half.is_ratio_shown(Some(1.5)),
            "as far as twice is: {half:?}"
        );
        assert!(!apart(&first, &first, 1).unwrap().is_ratio_shown(Some(0.0)));
        assert!(
            !apart(&first[..3], &twice[..3], 1).unwrap().is_ratio_shown(Some(0.05)),
            "too few rounds"
        );
        assert_eq!(apart(&first, &[], 1), None);
        assert_eq!(apart(&first, &[0.0], 1), None);
    }
}
