//! How many requests went with each call that handed some over, where an arm counts that: a panel
//! for each.

use std::collections::BTreeMap;

use super::Numbers;
use super::histograms::{Histograms, Panel};
use crate::report::reader::Reader;
use crate::report::summary;

pub(super) fn batches(reader: Reader<'_>, numbers: &mut Numbers) -> Option<String> {
    let mut panels = Vec::new();
    for (arm, name) in reader.placed_arms() {
        let mut sum = BTreeMap::new();
        for (least, count) in reader.cells(name).flat_map(|cell| &cell.detail.batches) {
            *sum.entry(*least).or_insert(0) += count;
        }
        if !sum.is_empty() {
            let bars = sum.into_iter().map(|(least, count)| (range(least), count)).collect();
            panels.push(Panel { arm, name: summary::name(name), bars });
        }
    }
    Histograms {
        title: "How many requests were handed over together",
        below: "requests per call, as a share of the calls of all rounds",
        counted: "calls",
        panels,
    }
    .drawn(numbers)
}

/// `1`, `4-7`.
fn range(least: u64) -> String {
    match least {
        0 | 1 => least.to_string(),
        least => format!("{least}-{}", least * 2 - 1),
    }
}
