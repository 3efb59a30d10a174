//! How long operations took, of all rounds together: percentiles on an axis that gives each further
//! nine the same length, so that the few slow ones show.

use super::Numbers;
use super::axis::{Axis, nines};
use super::key;
use super::svg::{Anchor, LETTER, LINE, Svg, WIDTH};
use crate::detail::Bins;
use crate::plan::again;
use crate::report::figures;
use crate::report::reader::Reader;
use crate::report::summary;

const HEIGHT: f64 = 300.0;
const LEFT: f64 = 9.0 * LETTER;
const RIGHT: f64 = WIDTH - 3.0 * LETTER;

/// Marked shares, with their labels.
const SHARES: [(f64, &str); 8] = [
    (0.0, "0"),
    (0.5, "50"),
    (0.9, "90"),
    (0.99, "99"),
    (0.999, "99.9"),
    (0.9999, "99.99"),
    (0.99999, "99.999"),
    (0.999999, "99.9999"),
];

/// Operations a curve needs.
const LEAST: u64 = 20;

struct Curve {
    arm: usize,
    name: String,
    bins: Bins,
}

/// The picture of a direction, without the arm that measures noise; none if no latencies were kept.
pub(super) fn curves(reader: Reader<'_>, direction: &str, numbers: &mut Numbers) -> Option<String> {
    let twin = again(&reader.part.again);
    let curve = |(arm, name): (usize, &str)| {
        let bins = Bins::sum(reader.flows(name, direction).map(|flow| &flow.latency.bins));
        (name != twin && bins.count() >= LEAST).then(|| Curve {
            arm,
            name: summary::name(name),
            bins,
        })
    };
    let curves: Vec<Curve> = reader.placed_arms().into_iter().filter_map(curve).collect();
    (!curves.is_empty()).then(|| picture(&curves, direction, numbers))
}

fn picture(curves: &[Curve], direction: &str, numbers: &mut Numbers) -> String {
    let bottom = HEIGHT - LINE;
    let key_top = HEIGHT + LINE + 8.0;
    let mut svg = Svg::new(key_top + key::height(curves.len()));
    let furthest = curves.iter().map(|curve| last_share(&curve.bins)).fold(0.9, f64::max);
    let across = |share: f64| LEFT + (nines(share) / nines(furthest)).min(1.0) * (RIGHT - LEFT);
    let lengths = curves
        .iter()
        .flat_map(|curve| curve.bins.0.iter().map(|(nanos, _)| (*nanos).max(1) as f64));
    let up = Axis::of_powers(lengths, [bottom, 8.0]);
    svg.marks_up(&up, [LEFT, RIGHT], |mark| figures::microseconds(mark / 1e3));
    let mut free_from = 0.0;
    for (share, told) in SHARES.iter().filter(|(share, _)| *share <= furthest) {
        let x = across(*share);
        svg.line("grid", [x, 8.0], [x, bottom]);
        let half = (told.len() as f64 + 1.0) * LETTER / 2.0;
        if x - half >= free_from && x + half <= WIDTH {
            svg.text("mark", [x, bottom + LINE - 2.0], Anchor::Middle, told);
            free_from = x + half;
        }
    }
    svg.below(HEIGHT + LINE, "percentile of all rounds together");
    for curve in curves {
        svg.path(&format!("curve {}", key::class_of(curve.arm)), &points(&curve.bins, across, &up));
    }
    key::write(&mut svg, key_top, curves.iter().map(|curve| (curve.arm, curve.name.as_str())));
    let told = curves.iter().map(|curve| {
        let at =
            |share| figures::microseconds(curve.bins.quantile(share).unwrap_or(0) as f64 / 1e3);
        format!("{}: p50 {}, p99 {}, p99.9 {}", curve.name, at(0.5), at(0.99), at(0.999))
    });
    let description = told.collect::<Vec<_>>().join("; ");
    svg.figure(numbers, &format!("Latency of a {direction}"), &description)
}

/// Beyond it a percentile would be of less than one operation.
fn last_share(bins: &Bins) -> f64 {
    1.0 - 1.0 / bins.count().max(1) as f64
}

/// Steps of the cumulative distribution.
fn points(bins: &Bins, across: impl Fn(f64) -> f64, up: &Axis) -> Vec<[f64; 2]> {
    let all = bins.count() as f64;
    let last = last_share(bins);
    let mut points: Vec<[f64; 2]> = Vec::new();
    let mut seen = 0;
    for (nanos, count) in &bins.0 {
        let y = up.place((*nanos).max(1) as f64);
        let (from, to) = (seen as f64 / all, (seen + count) as f64 / all);
        seen += count;
        for share in [from, to] {
            let point = [across(share.min(last)), y];
            // Points too near to be seen are left out.
            if points.last().is_none_or(|[x, y]| (x - point[0]).abs() + (y - point[1]).abs() > 0.4)
            {
                points.push(point);
            }
        }
    }
    points
}
