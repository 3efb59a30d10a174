//! Time that completions were held to end together, where any arm held some: a panel for each arm
//! that counts that, all with the same ranges, so that one can be set against the other.

use std::collections::BTreeMap;

use super::Numbers;
use super::histograms::{Histograms, Panel};
use crate::report::figures;
use crate::report::reader::Reader;
use crate::report::summary;

/// Power of two of nanoseconds; shorter holds are one range.
const SHORTEST: u32 = 10;

/// How many were held, by the power of two of the nanoseconds; nothing for those that were not.
type Doublings = BTreeMap<Option<u32>, u64>;

/// The picture; none where nothing was held.
pub(super) fn holds<'a>(reader: Reader<'a>, numbers: &mut Numbers) -> Option<String> {
    let counted = |(arm, name): (usize, &'a str)| {
        let mut sum = Doublings::new();
        for (least, count) in reader.cells(name).flat_map(|cell| &cell.detail.holds.0) {
            let doubling = least.checked_ilog2().map(|doubling| doubling.max(SHORTEST - 1));
            *sum.entry(doubling).or_insert(0) += count;
        }
        (!sum.is_empty()).then_some((arm, name, sum))
    };
    let arms_held: Vec<(usize, &str, Doublings)> =
        reader.placed_arms().into_iter().filter_map(counted).collect();
    let held = || arms_held.iter().flat_map(|(.., sum)| sum.keys().flatten().copied());
    let (least, most) = (held().min()?, held().max()?);
    let panel = |(arm, name, sum): &(usize, &'a str, Doublings)| {
        let ranges = std::iter::once(None).chain((least..=most).map(Some));
        let bars =
            ranges.map(|doubling| (range(doubling), sum.get(&doubling).copied().unwrap_or(0)));
        Panel { arm: *arm, name: summary::name(name), bars: bars.collect() }
    };
    Histograms {
        title: "Time that completions were held to end together",
        below: "how long, and the share of completions that were held so long, all rounds together",
        counted: "completions",
        panels: arms_held.iter().map(panel).collect(),
    }
    .drawn(numbers)
}

/// `not held`, `below 1us`, `131-262us`, `0.52-1.05ms`.
fn range(doubling: Option<u32>) -> String {
    let Some(doubling) = doubling else { return "not held".to_owned() };
    let micros = |doubling: u32| 2f64.powi(doubling as i32) / 1e3;
    if doubling < SHORTEST {
        return format!("below {}us", figures::plain(micros(SHORTEST).floor()));
    }
    let (from, upto) = (micros(doubling), micros(doubling + 1));
    let (unit, name) = match upto {
        upto if upto < 1e3 => (1.0, "us"),
        upto if upto < 1e6 => (1e3, "ms"),
        _ => (1e6, "s"),
    };
    format!("{}-{}{name}", figures::three_digits(from / unit), figures::three_digits(upto / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_told_in_one_unit() {
        assert_eq!([None, Some(9)].map(range), ["not held", "below 1us"]);
        assert_eq!(
            [10, 14, 17].map(|doubling| range(Some(doubling))),
            ["1.02-2.05us", "16.4-32.8us", "131-262us"]
        );
        assert_eq!(
            [19, 20, 29].map(|doubling| range(Some(doubling))),
            ["0.52-1.05ms", "1.05-2.10ms", "0.54-1.07s"]
        );
    }
}
