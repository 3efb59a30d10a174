//! Throughput over time: a panel for each arm, all on one scale, a line for each round. A mean
//! hides a device that stalls every few seconds, or a cache that took the first half.

use super::Numbers;
use super::axis::Axis;
use super::key;
use super::svg::{self, ACROSS, Anchor, LETTER, LINE, Svg};
use crate::detail::Course;
use crate::report::figures;
use crate::report::reader::Reader;
use crate::report::summary;

const PLOT: f64 = 84.0;
const HEIGHT: f64 = PLOT + 3.0 * LINE;

/// Letters of a panel's name.
const NAME: usize = 34;

/// Points a line needs to be one.
const LEAST: usize = 3;

/// Points of a line at most: more are not seen.
const MOST: usize = 160;

struct Panel {
    arm: usize,
    name: String,
    /// Seconds and bytes per second, for each round.
    rounds: Vec<Vec<[f64; 2]>>,
}

/// The picture of a direction; none where nobody kept it.
pub(super) fn courses(
    reader: Reader<'_>,
    direction: &str,
    numbers: &mut Numbers,
) -> Option<String> {
    let mut panels = Vec::new();
    for (arm, name) in reader.placed_arms() {
        let lines = reader.flows(name, direction).map(|flow| line(&flow.course));
        let rounds: Vec<_> = lines.filter(|line| line.len() >= LEAST).collect();
        if !rounds.is_empty() {
            panels.push(Panel { arm, name: summary::name(name), rounds });
        }
    }
    (!panels.is_empty()).then(|| picture(&panels, direction, numbers))
}

/// Points of a course, of whole slots alone, several slots to a point where there are many.
fn line(course: &Course) -> Vec<[f64; 2]> {
    let speeds: Vec<f64> = course.bytes_per_s().collect();
    let joined = speeds.len().div_ceil(MOST).max(1);
    let seconds = course.interval_ns as f64 / 1e9;
    let points = speeds.chunks(joined).enumerate().map(|(number, chunk)| {
        let middle = (number * joined) as f64 + chunk.len() as f64 / 2.0;
        [middle * seconds, chunk.iter().sum::<f64>() / chunk.len() as f64]
    });
    points.collect()
}

fn picture(panels: &[Panel], direction: &str, numbers: &mut Numbers) -> String {
    let rows = panels.len().div_ceil(ACROSS);
    let mut svg = Svg::new(rows as f64 * HEIGHT + LINE);
    let points = || panels.iter().flat_map(|panel| panel.rounds.iter().flatten());
    let most = points().map(|point| point[1]).fold(0.0, f64::max);
    let longest = points().map(|point| point[0]).fold(0.0, f64::max);
    for (number, panel) in panels.iter().enumerate() {
        let [left, right, top] = svg::panel(number, HEIGHT);
        let (left, right, bottom) = (left + 7.0 * LETTER, right - 2.0 * LETTER, top + PLOT);
        let up = Axis::from_zero(most / 1e6, [bottom, top]);
        let across = Axis::from_zero(longest, [left, right]);
        svg.name([left, top - 5.0], Anchor::Start, &panel.name, NAME);
        svg.marks_up(&up, [left, right], figures::short);
        for mark in across.marks() {
            let told = figures::short(mark);
            svg.text("mark", [across.place(mark), bottom + LINE - 3.0], Anchor::Middle, &told);
        }
        for round in &panel.rounds {
            let places: Vec<[f64; 2]> = round
                .iter()
                .map(|[at, speed]| [across.place(*at), up.place(speed / 1e6)])
                .collect();
            svg.path(&format!("thin c{}", panel.arm % key::COLOURS), &places);
        }
    }
    let below = "MB/s by seconds since the start; a line for each round";
    svg.below(rows as f64 * HEIGHT + 8.0, below);
    let told = panels.iter().map(|panel| {
        let speeds = || panel.rounds.iter().flatten().map(|point| point[1] / 1e6);
        let (least, most) = (speeds().fold(f64::INFINITY, f64::min), speeds().fold(0.0, f64::max));
        format!("{}: from {} to {} MB/s", panel.name, figures::short(least), figures::short(most))
    });
    let verb = if direction == "read" { "read" } else { "written" };
    let description = format!("{below}. {}", told.collect::<Vec<_>>().join("; "));
    svg.figure(numbers, &format!("Bytes {verb} over time"), &description)
}
