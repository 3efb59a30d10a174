//! How a cell went, beyond its figures: every latency by its length, and the time of its process.
//! A table has room for a percentile; curves and other programs need all values.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// How a cell went.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Detail {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<Flow>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<Flow>,
    pub usage: ProcessUse,
    #[serde(default, skip_serializing_if = "Holds::is_empty")]
    pub holds: Holds,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Flow {
    pub operations: u64,
    pub bytes: u64,
    pub runtime_ns: u64,
    pub latency: Latency,
}

/// How long operations took, in nanoseconds, from before they were handed over until their end was
/// seen.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Latency {
    pub least_ns: u64,
    pub most_ns: u64,
    pub mean_ns: f64,
    pub stddev_ns: f64,
    pub bins: Bins,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ProcessUse {
    pub user_us: u64,
    pub system_us: u64,
    pub context_switches: u64,
    pub major_faults: u64,
    pub minor_faults: u64,
}

impl Detail {
    /// Returns the directions that were used, each with its name.
    pub fn flows(&self) -> impl Iterator<Item = (&'static str, &Flow)> {
        let named = [("read", self.read.as_ref()), ("write", self.write.as_ref())];
        named.into_iter().filter_map(|(name, flow)| Some((name, flow?)))
    }
}

impl Latency {
    /// Returns the counts of a histogram in nanoseconds.
    pub fn of(histogram: &Histogram<u64>) -> Self {
        if histogram.is_empty() {
            return Self::default();
        }
        debug_assert!(histogram.min() <= histogram.max(), "the least is above the most");
        Self {
            least_ns: histogram.min(),
            most_ns: histogram.max(),
            mean_ns: histogram.mean(),
            stddev_ns: histogram.stdev(),
            bins: Bins::of(histogram),
        }
    }
}

/// Bins to each doubling, as a power of two.
const BITS: u32 = 6;

/// Counts by length: each bin's middle in nanoseconds, and how many are in it; shortest first. The
/// bins are fio's, 64 to each doubling: a bin is at most 1/64 wide, and counts of both programs can
/// be added. Percentiles of several cells come of the sum of their bins, never of a mean of
/// percentiles.
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

/// How long completions were held so that they end together: the least of each range in
/// nanoseconds, four ranges to a doubling and zero if not held, with the number of completions; the
/// shortest first. A completion counts as held as long as the first of those it ended with; time
/// inside the device is not included.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Holds(pub Vec<(u64, u64)>);

impl Holds {
    /// Returns holds as an engine counts them: from its start on.
    pub fn of(counted: impl IntoIterator<Item = (Duration, u64)>) -> Self {
        let nanos = |(least, count): (Duration, u64)| (least.as_nanos() as u64, count);
        Self(counted.into_iter().map(nanos).collect())
    }

    /// Returns those that were counted since.
    pub fn since(&self, before: &Self) -> Self {
        let before: BTreeMap<u64, u64> = before.0.iter().copied().collect();
        debug_assert!(self.count() >= before.values().sum(), "counts of an engine only grow");
        let more =
            self.0.iter().map(|(least, count)| (*least, count - before.get(least).unwrap_or(&0)));
        Self(more.filter(|(_, count)| *count > 0).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn count(&self) -> u64 {
        self.0.iter().map(|(_, count)| count).sum()
    }
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

    #[test]
    fn those_of_a_time_are_what_was_counted_in_it() {
        let micros = |counted: &[(u64, u64)]| {
            Holds::of(counted.iter().map(|&(micros, count)| (Duration::from_micros(micros), count)))
        };
        let (before, after) = (micros(&[(0, 10), (5, 2)]), micros(&[(0, 10), (5, 3), (40, 7)]));
        assert_eq!(after.since(&before), Holds(vec![(5_000, 1), (40_000, 7)]));
        assert_eq!((after.since(&before).count(), after.since(&Holds::default()).count()), (8, 20));
        assert!(after.since(&after).is_empty() && !before.is_empty());
    }
}
