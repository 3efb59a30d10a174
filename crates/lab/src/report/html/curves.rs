//! How long operations took, of all rounds together: percentiles on an axis that gives each further
//! nine the same length, so that the few slow ones show.

use super::svg::{Axis, LETTER, LINE, Numbers, Svg, WIDTH, class_of};
use crate::detail::Bins;
use crate::figures::microseconds;
use crate::reader::Reader;
use crate::reader::arm_name as name;
use crate::schema::again;
use crate::text::shortened;

const HEIGHT: f64 = 300.0;
const LEFT: f64 = 9.0 * LETTER;
const RIGHT: f64 = WIDTH - 3.0 * LETTER;

/// Columns of the key, and letters of a name in it.
const COLUMNS: usize = 3;
const NAME: usize = 28;

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

/// Returns the picture of a direction, without the arm that measures noise; none if no latencies
/// were kept.
pub(super) fn curves(reader: Reader<'_>, direction: &str, numbers: &mut Numbers) -> Option<String> {
    let twin = again(&reader.part.again);
    let curve = |(arm, of): (usize, &str)| {
        let bins = reader.latencies(of, direction);
        (of != twin && bins.count() >= LEAST).then(|| Curve { arm, name: name(of), bins })
    };
    let curves: Vec<Curve> = reader.placed_arms().into_iter().filter_map(curve).collect();
    (!curves.is_empty()).then(|| picture(&curves, direction, numbers))
}

fn picture(curves: &[Curve], direction: &str, numbers: &mut Numbers) -> String {
    let bottom = HEIGHT - LINE;
    let key_top = HEIGHT + LINE + 8.0;
    let mut svg = Svg::new(key_top + curves.len().div_ceil(COLUMNS) as f64 * LINE + 6.0);
    let furthest = curves.iter().map(|curve| last_share(&curve.bins)).fold(0.9, f64::max);
    let across = |share: f64| LEFT + (nines(share) / nines(furthest)).min(1.0) * (RIGHT - LEFT);
    let lengths = curves
        .iter()
        .flat_map(|curve| curve.bins.0.iter().map(|(nanos, _)| (*nanos).max(1) as f64));
    let up = Axis::of_powers(lengths, [bottom, 8.0]);
    for mark in up.marks() {
        let y = up.place(mark);
        svg.line("grid", [LEFT, y], [RIGHT, y]);
        svg.text("mark end", [LEFT - LETTER, y + 4.0], &microseconds(mark / 1e3));
    }
    let mut free_from = 0.0;
    for (share, reported) in SHARES.iter().filter(|(share, _)| *share <= furthest) {
        let x = across(*share);
        svg.line("grid", [x, 8.0], [x, bottom]);
        let half = (reported.len() as f64 + 1.0) * LETTER / 2.0;
        if x - half >= free_from && x + half <= WIDTH {
            svg.text("mark middle", [x, bottom + LINE - 2.0], reported);
            free_from = x + half;
        }
    }
    svg.below(HEIGHT + LINE, "percentile of all rounds together");
    for (number, curve) in curves.iter().enumerate() {
        let class = format!("curve {}", class_of(curve.arm));
        svg.path(&class, &points(&curve.bins, across, &up));
        let x = (number % COLUMNS) as f64 * WIDTH / COLUMNS as f64 + 8.0;
        let y = key_top + ((number / COLUMNS) as f64 + 0.5) * LINE;
        svg.line(&class, [x, y], [x + 3.0 * LETTER, y]);
        svg.text("", [x + 4.0 * LETTER, y + 4.0], &shortened(&curve.name, NAME, NAME / 2));
    }
    let reported = curves.iter().map(|curve| {
        let at = |share| microseconds(curve.bins.quantile(share).unwrap_or(0) as f64 / 1e3);
        format!("{}: p50 {}, p99 {}, p99.9 {}", curve.name, at(0.5), at(0.99), at(0.999))
    });
    let description = reported.collect::<Vec<_>>().join("; ");
    svg.figure(numbers, &format!("Latency of a {direction}"), &description)
}

/// Returns the place of a share on the axis: 0, 0.9, 0.99 and 0.999 are equally far apart.
fn nines(share: f64) -> f64 {
    -(1.0 - share).max(1e-9).log10()
}

/// Returns the share beyond which a percentile would be of less than one operation.
fn last_share(bins: &Bins) -> f64 {
    1.0 - 1.0 / bins.count().max(1) as f64
}

/// Returns the steps of the cumulative distribution.
fn points(bins: &Bins, across: impl Fn(f64) -> f64, up: &Axis) -> Vec<[f64; 2]> {
    let (all, last) = (bins.count() as f64, last_share(bins));
    let mut points: Vec<[f64; 2]> = Vec::new();
    let mut seen = 0;
    for (nanos, count) in &bins.0 {
        let y = up.place((*nanos).max(1) as f64);
        let ends = [seen as f64 / all, (seen + count) as f64 / all];
        seen += count;
        for share in ends {
            let point = [across(share.min(last)), y];
            // Points too near to be seen are left out.
            let is_apart = |[x, y]: &[f64; 2]| (x - point[0]).abs() + (y - point[1]).abs() > 0.4;
            if points.last().is_none_or(is_apart) {
                points.push(point);
            }
        }
    }
    debug_assert_eq!(seen, bins.count(), "each operation is in one step");
    points
}
