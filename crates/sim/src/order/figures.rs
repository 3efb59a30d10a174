//! What came out of a run, and of several.

/// Of one run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Figures {
    /// Messages answered in a second.
    pub requests_per_s: f64,
    /// The share of time the server had nothing to do.
    pub idle_share: f64,
    /// From leaving the client to the answer's coming there, in nanoseconds: of half of the
    /// messages no longer.
    pub latency_p50: u64,
    /// Of 99 in a hundred.
    pub latency_p99: u64,
    /// Of 999 in a thousand.
    pub latency_p999: u64,
    /// The longest any message waited for the server, those that still wait at the end included.
    pub longest_wait: u64,
    /// How many that came later a message saw served before it: of 99 in a hundred no more. Who is
    /// never served is in none of these, but in `longest_wait`.
    pub reorder_distance_p99: u64,
    /// Of all.
    pub reorder_distance_most: u64,
    /// Messages served in a pass, on average.
    pub per_pass: f64,
}

/// Of several runs of one load, from several seeds.
#[derive(Clone, PartialEq, Debug)]
pub struct Rounds {
    /// Each of them.
    pub each: Vec<Figures>,
}

impl Rounds {
    /// The mean of one figure.
    #[must_use]
    pub fn mean(&self, figure: fn(&Figures) -> f64) -> f64 {
        self.each.iter().map(figure).sum::<f64>() / self.each.len() as f64
    }

    /// By how much the rate differs from run to run: its sample standard deviation as a share of
    /// its mean; nothing below two runs.
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

/// What so many thousandths of the values do not exceed; 0 of none. Puts them in order.
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
