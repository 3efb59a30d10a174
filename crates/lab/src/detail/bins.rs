//! Latencies by their length, in the bins that fio has: 64 to each doubling, so that a bin is at
//! most 1/64 wide and counts of both programs can be added. Percentiles of several cells come of
//! the sum of their bins, never of a mean of percentiles.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Bins to each doubling, as a power of two.
const BITS: u32 = 6;

/// Counts by length: each bin's middle in nanoseconds, and how many are in it; shortest first.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Bins(pub Vec<(u64, u64)>);

impl Bins {
    /// Returns the counts of a histogram in nanoseconds.
    pub fn of(histogram: &Histogram<u64>) -> Self {
        let mut counts = BTreeMap::new();
        for value in histogram.iter_recorded() {
            *counts.entry(middle(value.value_iterated_to())).or_insert(0) += value.count_at_value();
        }
        Self(counts.into_iter().collect())
    }

    /// Returns the sum of several.
    pub fn sum<'a>(all: impl IntoIterator<Item = &'a Bins>) -> Self {
        let mut counts = BTreeMap::new();
        for (nanos, count) in all.into_iter().flat_map(|bins| &bins.0) {
            *counts.entry(*nanos).or_insert(0) += count;
        }
        Self(counts.into_iter().collect())
    }

    pub fn count(&self) -> u64 {
        self.0.iter().map(|(_, count)| count).sum()
    }

    /// Returns the length that this share of them does not exceed, in nanoseconds; none of nothing.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        debug_assert!((0.0..=1.0).contains(&share), "{share} is no share");
        let wanted = (self.count() as f64 * share).ceil() as u64;
        let mut seen = 0;
        let reached = self.0.iter().find(|(_, count)| {
            seen += count;
            seen >= wanted
        });
        reached.or(self.0.last()).map(|(nanos, _)| *nanos)
    }
}

/// Returns the middle of the bin a length is in.
fn middle(nanos: u64) -> u64 {
    let top = 63 - nanos.max(1).leading_zeros();
    debug_assert!(top < 64, "{nanos} has its highest bit at {top}");
    // Short ones have a bin each.
    let Some(shift) = top.checked_sub(BITS).filter(|shift| *shift > 0) else { return nanos };
    (nanos >> shift << shift) + (1 << (shift - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bins(values: &[u64]) -> Bins {
        let mut histogram = Histogram::new_with_bounds(1, 3_600_000_000_000, 3).unwrap();
        values.iter().for_each(|value| histogram.record(*value).unwrap());
        Bins::of(&histogram)
    }

    #[test]
    fn a_bin_is_a_sixty_fourth_wide() {
        assert_eq!([0, 1, 64, 127].map(middle), [0, 1, 64, 127]);
        // As fio's own arithmetic has it: 128 and 129 are one bin, whose middle is 129.
        assert_eq!([128, 129, 130].map(middle), [129, 129, 131]);
        let mut value = 1;
        while value < 3_600_000_000_000_u64 {
            let off = middle(value).abs_diff(value) as f64 / value as f64;
            assert!(off <= 1.0 / 64.0, "{value}: {off}");
            value += value / 97 + 1;
        }
    }

    #[test]
    fn quantiles_are_those_of_all_together() {
        let (low, high) = (bins(&[100; 90]), bins(&[100_000; 10]));
        let both = Bins::sum([&low, &high]);
        assert_eq!(both.count(), 100);
        assert_eq!(both.quantile(0.5), Some(100));
        assert_eq!(both.quantile(0.9), Some(100));
        assert!(both.quantile(0.91).unwrap().abs_diff(100_000) < 1600);
        assert_eq!(both.quantile(1.0), both.quantile(0.999));
        assert_eq!(Bins::default().quantile(0.5), None);
    }
}
