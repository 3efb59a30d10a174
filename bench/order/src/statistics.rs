//! Means, deviations, and ratios paired by round.

/// Resamples of an interval.
const RESAMPLES: usize = 2000;

/// Returns the mean; 0 of none.
pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Returns the standard deviation of a sample, if it has two values.
pub(crate) fn deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (values.len() > 1).then(|| (squares / (values.len() - 1) as f64).sqrt())
}

/// A ratio with its interval of 95 %.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Ratio {
    pub(crate) mean: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Ratio {
    /// Returns the ratio of values that are paired by round: the geometric mean, and a bootstrap
    /// interval. `None` for less than two rounds, or values that are not above zero.
    pub(crate) fn of(these: &[f64], others: &[f64]) -> Option<Self> {
        let logs: Vec<f64> =
            these.iter().zip(others).map(|(this, other)| (this / other).ln()).collect();
        if logs.len() < 2 || !logs.iter().all(|log| log.is_finite()) {
            return None;
        }
        let mut random = Random(1);
        let mut means: Vec<f64> = (0..RESAMPLES)
            .map(|_| {
                let sum: f64 = logs.iter().map(|_| logs[random.below(logs.len())]).sum();
                sum / logs.len() as f64
            })
            .collect();
        means.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| means[(share * (RESAMPLES - 1) as f64) as usize].exp();
        Some(Self { mean: mean(&logs).exp(), low: at(0.025), high: at(0.975) })
    }

    /// Returns the larger distance of the interval from 1, as a factor.
    pub(crate) fn reach(self) -> f64 {
        self.high.max(1.0 / self.low)
    }

    /// Returns whether the interval excludes 1 and the mean is beyond the noise floor.
    pub(crate) fn is_shown(self, floor: f64) -> bool {
        (self.low > 1.0 || self.high < 1.0) && self.mean.max(1.0 / self.mean) > floor
    }

    /// Returns the text, with `~` if the difference is not shown.
    pub(crate) fn text(self, floor: f64) -> String {
        let mark = if self.is_shown(floor) { "" } else { "~" };
        let Self { mean, low, high } = self;
        format!("{mark}{mean:.2} [{low:.2}-{high:.2}]")
    }
}

/// A generator with a fixed start (xorshift), so that a table depends on the measurements alone.
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Returns a number below `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % limit as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_of_pairs() {
        let (these, others) = ([2.0, 4.0, 8.0, 2.2], [1.0, 2.0, 4.0, 1.1]);
        let twice = Ratio::of(&these, &others).unwrap();
        assert!((twice.mean - 2.0).abs() < 1e-9 && twice.low > 1.99 && twice.high < 2.01);
        assert_eq!(twice.text(1.1), "2.00 [2.00-2.00]");
        assert_eq!(twice.text(2.5), "~2.00 [2.00-2.00]", "inside the noise");
        let noise = Ratio::of(&[1.0, 2.0, 1.0, 2.0], &[2.0, 1.0, 2.0, 1.0]).unwrap();
        assert!(!noise.is_shown(1.0) && noise.low < 1.0 && noise.high > 1.0 && noise.reach() > 1.0);
        assert_eq!(Ratio::of(&[1.0], &[1.0]), None);
        assert_eq!(Ratio::of(&[1.0, 0.0], &[1.0, 1.0]), None);
    }

    #[test]
    fn a_deviation_needs_two_values() {
        assert_eq!((mean(&[1.0, 3.0]), deviation(&[1.0, 3.0])), (2.0, Some(2_f64.sqrt())));
        assert_eq!((mean(&[]), deviation(&[1.0])), (0.0, None));
    }
}
