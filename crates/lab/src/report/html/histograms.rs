//! Counts by their size: a panel for each arm, a bar for each range.

use super::Numbers;
use super::key;
use super::svg::{self, ACROSS, Anchor, LETTER, LINE, Svg};
use crate::report::figures;

const BAR: f64 = 16.0;

/// Letters of a panel's name.
const NAME: usize = 34;

#[derive(Debug)]
pub(super) struct Histograms {
    pub(super) title: &'static str,
    /// Label of the axis.
    pub(super) below: &'static str,
    pub(super) counted: &'static str,
    pub(super) panels: Vec<Panel>,
}

#[derive(Debug)]
pub(super) struct Panel {
    /// Its place among the arms.
    pub(super) arm: usize,
    pub(super) name: String,
    /// Each range in words, and how many there were, all rounds together.
    pub(super) bars: Vec<(String, u64)>,
}

impl Histograms {
    pub(super) fn drawn(&self, numbers: &mut Numbers) -> Option<String> {
        (!self.panels.is_empty()).then(|| self.picture(numbers))
    }

    fn picture(&self, numbers: &mut Numbers) -> String {
        let bars = || self.panels.iter().flat_map(|panel| &panel.bars);
        let letters = bars().map(|(range, _)| range.chars().count()).max().unwrap_or(0);
        let most = self.panels.iter().map(|panel| panel.bars.len()).max().unwrap_or(0);
        let height = most as f64 * BAR + 2.0 * LINE;
        let rows = self.panels.len().div_ceil(ACROSS);
        let mut svg = Svg::new(rows as f64 * height + LINE);
        let mut told = Vec::new();
        for (number, panel) in self.panels.iter().enumerate() {
            let [start, right, top] = svg::panel(number, height);
            let (start, right) = (start + LETTER, right - 8.0 * LETTER);
            let left = start + (letters as f64 + 1.0) * LETTER;
            svg.name([start, top - 5.0], Anchor::Start, &panel.name, NAME);
            let all: u64 = panel.bars.iter().map(|(_, count)| count).sum();
            let mut shares = Vec::new();
            for (place, (range, count)) in panel.bars.iter().enumerate() {
                let y = top + place as f64 * BAR;
                svg.text("mark", [left - LETTER, y + 12.0], Anchor::End, range);
                // Nothing at all is not few.
                if *count == 0 {
                    continue;
                }
                let share = *count as f64 / all as f64;
                let (width, percent) = (share * (right - left), figures::percent(share));
                let about = format!("{range}: {count} {}", self.counted);
                svg.rectangle(&key::fill(panel.arm), [left, y + 2.0], [width, BAR - 4.0], &about);
                svg.text("mark", [left + width + 0.5 * LETTER, y + 12.0], Anchor::Start, &percent);
                shares.push(format!("{range}: {percent}"));
            }
            told.push(format!("{}: {}", panel.name, shares.join(", ")));
        }
        svg.below(rows as f64 * height + 8.0, self.below);
        let description = format!("{}. {}", self.below, told.join("; "));
        svg.figure(numbers, self.title, &description)
    }
}
