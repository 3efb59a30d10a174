//! The answer to a question as bars: the mean of each arm from zero, and a line for the interval of
//! its ratio to the base. The arm that measures noise is left out.

use super::Numbers;
use super::axis::Axis;
use super::key::{class_of, fill};
use super::svg::{Anchor, LETTER, LINE, Svg, WIDTH};
use crate::plan::again;
use crate::report::reader::Reader;
use crate::report::summary::name;
use crate::report::{figures, table};
use crate::schema::Row;

const NAME: usize = 24;

/// Letters to the right of a bar.
const VALUE: usize = 28;

/// Height of a bar with the space around it.
const STRIP: f64 = 28.0;

const BAR: f64 = 16.0;

/// One arm: its place among the arms of the job, its mean, and the interval of the mean.
struct Bar<'a> {
    arm: usize,
    row: &'a Row,
    interval: Option<[f64; 2]>,
    value: String,
}

/// The picture of a job; none if it has no figures.
pub(super) fn bars(reader: Reader<'_>, numbers: &mut Numbers) -> Option<String> {
    let (twin, metric) = (again(&reader.part.again), &reader.part.metric);
    let bar = |(arm, name): (usize, &str)| {
        let row = reader.row(name, metric)?;
        let (interval, ratio) = against_base(reader, name);
        let value = format!("{} {ratio}", told(metric, row.mean));
        (name != twin).then_some(Bar { arm, row, interval, value })
    };
    let bars: Vec<Bar<'_>> = reader.placed_arms().into_iter().filter_map(bar).collect();
    (!bars.is_empty()).then(|| picture(reader, &bars, numbers))
}

/// The interval in the metric's own unit, and the ratio as text.
fn against_base(reader: Reader<'_>, arm: &str) -> (Option<[f64; 2]>, String) {
    let Some(base) = reader.job.base.as_deref() else { return (None, String::new()) };
    if base == arm {
        return (None, "1 (base)".to_owned());
    }
    let found = reader.against_base(arm);
    let base = reader.row(base, &reader.part.metric);
    let interval = found.zip(base).filter(|(found, _)| found.ci_low < found.ci_high);
    let interval =
        interval.map(|(found, base)| [found.ci_low, found.ci_high].map(|end| end * base.mean));
    (interval, found.map_or_else(String::new, |found| table::marked(Some(found))))
}

fn picture(reader: Reader<'_>, bars: &[Bar<'_>], numbers: &mut Numbers) -> String {
    let metric = &reader.part.metric;
    let left = (NAME as f64 + 1.0) * LETTER;
    let right = WIDTH - (VALUE as f64 + 1.0) * LETTER;
    let bottom = 8.0 + STRIP * bars.len() as f64;
    let mut svg = Svg::new(bottom + 2.0 * LINE + 8.0);
    let ends = bars.iter().flat_map(|bar| {
        let interval = bar.interval.map_or(bar.row.mean, |[_, high]| high);
        [bar.row.mean, interval]
    });
    let axis = Axis::from_zero(ends.fold(0.0, f64::max), [left, right]);
    svg.marks_across(&axis, axis.marks(), bottom, |mark| told(metric, mark));
    for (place, bar) in bars.iter().enumerate() {
        let y = 8.0 + STRIP * (place as f64 + 0.5);
        let name = name(&bar.row.arm);
        svg.name([left - LETTER, y + 4.0], Anchor::End, &name, NAME);
        let about = format!("{name}: {}", bar.value);
        let size = [axis.place(bar.row.mean) - left, BAR];
        svg.rectangle(&format!("bar {}", fill(bar.arm)), [left, y - BAR / 2.0], size, &about);
        if let Some(interval) = bar.interval {
            let [low, high] = interval.map(|end| axis.place(end));
            svg.line(&format!("whisker {}", class_of(bar.arm)), [low, y], [high, y]);
            for x in [low, high] {
                svg.line(&format!("whisker {}", class_of(bar.arm)), [x, y - 5.0], [x, y + 5.0]);
            }
        }
        svg.text("told", [WIDTH - 2.0, y + 4.0], Anchor::End, &bar.value);
    }
    let better = super::better(bars[0].row.better);
    let base = reader.job.base.as_deref().map(name);
    let base = base.map(|base| format!("; line: 95 % interval of the ratio to {base}"));
    let below = format!("{better}{}", base.unwrap_or_default());
    svg.below(bottom + 2.0 * LINE, &below);
    let each = bars.iter().map(|bar| format!("{}: {}", name(&bar.row.arm), bar.value));
    let description = format!("{below}. {}", each.collect::<Vec<_>>().join("; "));
    svg.figure(numbers, &super::spoken(metric), &description)
}

fn told(metric: &str, value: f64) -> String {
    match metric {
        name if name.ends_with("bytes_per_s") => format!("{:.0} MB/s", value / 1e6),
        "iops" => format!("{} IOPS", figures::short(value)),
        "ns_per_io" => figures::microseconds(value / 1e3),
        name if name.ends_with("_us") => figures::microseconds(value),
        name if name.ends_with("_per_s") => format!("{}/s", figures::short(value)),
        _ => figures::short(value),
    }
}
