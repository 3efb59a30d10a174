//! Results of one run and of several runs.

/// Results of one run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Figures {
    /// Messages answered per second.
    pub requests_per_s: f64,
    /// Share of the time that the server was idle.
    pub idle_share: f64,
    /// Median latency in nanoseconds, from leaving the client to the arrival of the answer there.
    pub latency_p50: u64,
    /// 99th percentile of the latency, in nanoseconds.
    pub latency_p99: u64,
    /// 99.9th percentile of the latency, in nanoseconds.
    pub latency_p999: u64,
    /// Longest time that a message waited for the server, in nanoseconds, including those that
    /// still wait at the end.
    pub longest_wait: u64,
    /// Number of later messages that were served before a message, 99th percentile. A message that
    /// is never served counts only in `longest_wait`.
    pub reorder_distance_p99: u64,
    /// Maximum of that number.
    pub reorder_distance_most: u64,
    /// Mean number of messages served in a pass.
    pub per_pass: f64,
}

/// Results of several runs of one load, with different seeds.
#[derive(Clone, PartialEq, Debug)]
pub struct Rounds {
    /// The results of each run.
    pub each: Vec<Figures>,
}

impl Rounds {
    /// Returns the mean of one figure.
    #[must_use]
    pub fn mean(&self, figure: fn(&Figures) -> f64) -> f64 {
        self.each.iter().map(figure).sum::<f64>() / self.each.len() as f64
    }

    /// Returns the coefficient of variation of the rate: its sample standard deviation as a share
    /// of its mean. Returns `None` for fewer than two runs.
    #[must_use]
    pub fn coefficient_of_variation(&self) -> Option<f64> {
        if self.each.len() < 2 {
            return None;
        }
        let mean = self.mean(|one| one.requests_per_s);
        let squares = self.each.iter().map(|one| (one.requests_per_s - mean).powi(2)).sum::<f64>();
        Some((squares / (self.each.len() - 1) as f64).sqrt() / mean)
    }
}

/// Returns the value that `per_mille` thousandths of the values do not exceed, or 0 without values.
/// Sorts the values.
pub(super) fn quantile(values: &mut [u64], per_mille: u64) -> u64 {
    values.sort_unstable();
    let rank = (values.len() as u64 * per_mille).div_ceil(1000).max(1) - 1;
    values.get(rank as usize).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_there() {
        let mut values: Vec<u64> = (1..=1000).rev().collect();
        assert_eq!([500, 990, 999].map(|share| quantile(&mut values, share)), [500, 990, 999]);
        assert_eq!(quantile(&mut [7], 999), 7);
        assert_eq!(quantile(&mut [], 500), 0);
    }
}
