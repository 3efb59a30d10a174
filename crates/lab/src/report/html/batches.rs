//! How many requests went with each call that handed some over, where an arm counts that: a panel for each.

use super::Numbers;
use super::key;
use super::svg::{Anchor, LETTER, LINE, Svg, WIDTH, shortened};
use crate::report::figures;
use crate::schema::{Document, PartJob};

const ACROSS: usize = 2;
const PANEL: f64 = WIDTH / ACROSS as f64;
const BAR: f64 = 16.0;

/// Letters of a panel's name.
const NAME: usize = 34;

struct Panel<'a> {
    arm: usize,
    name: &'a str,
    /// The least of each range and how many there were, all rounds together.
    ranges: Vec<(u64, u64)>,
}

/// The picture; none where nobody counted.
pub(super) fn batches(
    document: &Document,
    job: &PartJob,
    arms: &[&str],
    numbers: &mut Numbers,
) -> Option<String> {
    let mut panels = Vec::new();
    for (arm, name) in arms.iter().enumerate() {
        let mut sum = std::collections::BTreeMap::new();
        for (least, count) in document.cells_of(&job.name, name).flat_map(|cell| &cell.detail.batches) {
            *sum.entry(*least).or_insert(0) += count;
        }
        if !sum.is_empty() {
            panels.push(Panel { arm, name, ranges: sum.into_iter().collect() });
        }
    }
    (!panels.is_empty()).then(|| picture(&panels, numbers))
}

fn picture(panels: &[Panel<'_>], numbers: &mut Numbers) -> String {
    let bars = panels.iter().map(|panel| panel.ranges.len()).max().unwrap_or(0);
    let height = bars as f64 * BAR + 2.0 * LINE;
    let rows = panels.len().div_ceil(ACROSS);
    let mut svg = Svg::new(rows as f64 * height + LINE);
    let mut told = Vec::new();
    for (number, panel) in panels.iter().enumerate() {
        let left = (number % ACROSS) as f64 * PANEL + 11.0 * LETTER;
        let right = ((number % ACROSS) as f64 + 1.0) * PANEL - 8.0 * LETTER;
        let top = (number / ACROSS) as f64 * height + LINE;
        svg.text("name", [left - 10.0 * LETTER, top - 5.0], Anchor::Start, &shortened(panel.name, NAME));
        let all: u64 = panel.ranges.iter().map(|(_, count)| count).sum();
        let mut shares = Vec::new();
        for (place, (least, count)) in panel.ranges.iter().enumerate() {
            let y = top + place as f64 * BAR;
            let share = *count as f64 / all.max(1) as f64;
            let (range, percent) = (range(*least), figures::percent(share));
            svg.text("mark", [left - LETTER, y + 12.0], Anchor::End, &range);
            let about = format!("{range} requests: {count} calls");
            svg.rectangle(
                &key::fill(panel.arm),
                [left, y + 2.0],
                [share * (right - left), BAR - 4.0],
                &about,
            );
            let x = left + share * (right - left) + 0.5 * LETTER;
            svg.text("mark", [x, y + 12.0], Anchor::Start, &percent);
            shares.push(format!("{range}: {percent}"));
        }
        told.push(format!("{}: {}", panel.name, shares.join(", ")));
    }
    let below = "requests of a call, and the share of calls that had so many, all rounds together";
    svg.text("mark", [WIDTH / 2.0, rows as f64 * height + 8.0], Anchor::Middle, below);
    let description = format!("{below}. {}", told.join("; "));
    svg.figure(numbers, "How many requests were handed over together", &description)
}

/// `1`, `4-7`.
fn range(least: u64) -> String {
    match least {
        0 | 1 => least.to_string(),
        least => format!("{least}-{}", least * 2 - 1),
    }
}
