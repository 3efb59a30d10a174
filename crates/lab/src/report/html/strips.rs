//! A strip for each arm with a dot for each round: what lies behind a mean.

use super::Numbers;
use super::axis::Axis;
use super::key::{class_of, fill};
use super::svg::{Anchor, LETTER, LINE, Svg, WIDTH};
use crate::report::figures;

const NAME: usize = 28;

/// Letters of what stands at the right.
const TOLD: usize = 18;

const STRIP: f64 = 24.0;

#[derive(Debug)]
pub(super) struct Strips {
    pub(super) title: String,
    pub(super) below: String,
    pub(super) strips: Vec<Strip>,
    /// Whether 1 is marked, which is the base.
    pub(super) one: bool,
    /// Share of 1 that is noise.
    pub(super) band: Option<f64>,
    /// Values as the axis has them.
    pub(super) shown: fn(f64) -> String,
    /// Whether they are bytes, which have other round values.
    pub(super) bytes: bool,
}

#[derive(Debug)]
pub(super) struct Strip {
    /// Its place among the arms of the job.
    pub(super) arm: usize,
    pub(super) name: String,
    /// Above nothing, a value for each round.
    pub(super) values: Vec<f64>,
    /// Lower end, middle, upper end.
    pub(super) interval: Option<[f64; 3]>,
    /// In words.
    pub(super) told: String,
}

impl Strips {
    /// The picture; none where there is nothing to show.
    pub(super) fn drawn(self, numbers: &mut Numbers) -> Option<String> {
        let shown = self.strips.iter().any(|strip| !strip.values.is_empty());
        shown.then(|| self.picture(numbers))
    }

    fn picture(self, numbers: &mut Numbers) -> String {
        let left = (NAME as f64 + 1.0) * LETTER;
        let right = WIDTH - (TOLD as f64 + 1.0) * LETTER;
        let bottom = 8.0 + STRIP * self.strips.len() as f64;
        let mut svg = Svg::new(bottom + 2.0 * LINE + 8.0);
        let values = self.strips.iter().flat_map(|strip| {
            let interval = strip.interval.into_iter().flatten().filter(|value| *value > 0.0);
            strip.values.iter().copied().chain(interval)
        });
        let one = self.one.then_some(1.0);
        let axis = Axis::of_powers(values.chain(one), [left + 6.0, right - 6.0]);
        if let (Some(band), true) = (self.band, self.one) {
            let (from, to) = (axis.place(1.0 / (1.0 + band)), axis.place(1.0 + band));
            let told = format!("noise floor {}", figures::percent(band));
            svg.rectangle("band", [from, 4.0], [to - from, bottom - 4.0], &told);
        }
        let marks = if self.bytes { axis.marks_of_bytes() } else { axis.marks() };
        svg.marks_across(&axis, marks, bottom, self.shown);
        if self.one {
            svg.line("one", [axis.place(1.0), 4.0], [axis.place(1.0), bottom]);
        }
        for (number, strip) in self.strips.iter().enumerate() {
            let y = 8.0 + STRIP * (number as f64 + 0.5);
            draw(&mut svg, strip, (y, left, right), (&axis, self.shown));
        }
        svg.below(bottom + 2.0 * LINE, &self.below);
        let told = self.strips.iter().map(|strip| format!("{}: {}", strip.name, strip.told));
        let description = format!("{}. {}", self.below, told.collect::<Vec<_>>().join("; "));
        svg.figure(numbers, &self.title, &description)
    }
}

fn draw(
    svg: &mut Svg,
    strip: &Strip,
    (y, left, right): (f64, f64, f64),
    (axis, shown): (&Axis, fn(f64) -> String),
) {
    svg.name([left - LETTER, y + 4.0], Anchor::End, &strip.name, NAME);
    svg.line("strip", [left, y], [right, y]);
    if let Some([low, middle, high]) = strip.interval.filter(|interval| interval[0] > 0.0) {
        let class = class_of(strip.arm);
        svg.line(&format!("interval {class}"), [axis.place(low), y], [axis.place(high), y]);
        let x = axis.place(middle);
        svg.line(&format!("interval {class}"), [x, y - 8.0], [x, y + 8.0]);
    }
    for (round, value) in strip.values.iter().enumerate() {
        let told = format!("{}, round {}: {}", strip.name, round + 1, shown(*value));
        svg.dot(&format!("round {}", fill(strip.arm)), [axis.place(*value), y], &told);
    }
    svg.text("told", [WIDTH - 2.0, y + 4.0], Anchor::End, &strip.told);
}
