//! A metric of all arms: a bar from zero for the mean of each, a dot for each round, and a line for
//! the interval of its ratio to the base. The arm that measures noise is left out.

use super::svg::{Axis, LETTER, LINE, Numbers, Svg, WIDTH, class_of, fill};
use crate::metric::{Better, Metric};
use crate::probes;
use crate::reader::Reader;
use crate::reader::arm_name as name;
use crate::report::table::{marked, scale, shown};
use crate::schema::again;
use crate::schema::{Against, Row};
use crate::text::shortened;

/// Letters of a name at the left.
const NAME: usize = 24;

/// Letters to the right of a bar.
const VALUE: usize = 28;

/// Height of a bar with the space around it.
const STRIP: f64 = 28.0;

const BAR: f64 = 16.0;

struct Bar<'a> {
    /// Place among the arms of the result.
    arm: usize,
    row: &'a Row,
    /// Of the mean, in the metric's own unit.
    interval: Option<[f64; 2]>,
    value: String,
}

/// Returns the picture of a metric; none if no arm has it.
pub(super) fn bars(reader: Reader<'_>, metric: &str, numbers: &mut Numbers) -> Option<String> {
    let metric = probes::metric(metric)?;
    let twin = again(&reader.part.again);
    let bar = |(arm, name): (usize, &str)| {
        let row = reader.row(name, metric.name).filter(|_| name != twin)?;
        let (interval, ratio) = against_base(reader, name, metric);
        let value = format!("{} {ratio}", reported(metric, row.mean));
        Some(Bar { arm, row, interval, value })
    };
    let bars: Vec<Bar<'_>> = reader.placed_arms().into_iter().filter_map(bar).collect();
    (!bars.is_empty()).then(|| picture(reader, metric, &bars, numbers))
}

/// Returns the interval in the metric's own unit, and the ratio as text.
fn against_base(reader: Reader<'_>, arm: &str, metric: &Metric) -> (Option<[f64; 2]>, String) {
    let Some(base) = reader.job.base.as_deref() else { return (None, String::new()) };
    if base == arm {
        return (None, "1 (base)".to_owned());
    }
    let found = reader.compared(metric.name, Against { arm, base });
    let mean = reader.mean(base, metric.name);
    let interval = found.zip(mean).filter(|(found, _)| found.ci_low < found.ci_high);
    let interval =
        interval.map(|(found, mean)| [found.ci_low, found.ci_high].map(|end| end * mean));
    (interval, found.map_or_else(String::new, |found| marked(Some(found))))
}

fn picture(reader: Reader<'_>, metric: &Metric, bars: &[Bar<'_>], numbers: &mut Numbers) -> String {
    let left = (NAME as f64 + 1.0) * LETTER;
    let right = WIDTH - (VALUE as f64 + 1.0) * LETTER;
    let bottom = 8.0 + STRIP * bars.len() as f64;
    let mut svg = Svg::new(bottom + 2.0 * LINE + 8.0);
    let values = bars.iter().flat_map(|bar| {
        let rounds = bar.row.rounds.iter().flatten().copied();
        rounds.chain([bar.row.mean]).chain(bar.interval.into_iter().flatten())
    });
    let axis = Axis::from_zero(values.fold(0.0, f64::max), [left, right]);
    for mark in axis.marks() {
        let x = axis.place(mark);
        svg.line("grid", [x, 4.0], [x, bottom]);
        svg.text("mark middle", [x, bottom + LINE - 3.0], &reported(metric, mark));
    }
    for (place, bar) in bars.iter().enumerate() {
        let y = 8.0 + STRIP * (place as f64 + 0.5);
        let name = name(&bar.row.arm);
        svg.text("end", [left - LETTER, y + 4.0], &shortened(&name, NAME, NAME / 2));
        let size = [axis.place(bar.row.mean) - left, BAR];
        let about = format!("{name}: {}", bar.value);
        svg.rectangle(&format!("bar {}", fill(bar.arm)), [left, y - BAR / 2.0], size, &about);
        for (round, value) in bar.row.rounds.iter().enumerate() {
            let Some(value) = value else { continue };
            let about = format!("{name}, round {}: {}", round + 1, reported(metric, *value));
            svg.dot(&format!("round {}", fill(bar.arm)), [axis.place(*value), y], &about);
        }
        if let Some(interval) = bar.interval {
            let [low, high] = interval.map(|end| axis.place(end));
            let class = format!("whisker {}", class_of(bar.arm));
            svg.line(&class, [low, y], [high, y]);
            [low, high].iter().for_each(|x| svg.line(&class, [*x, y - 5.0], [*x, y + 5.0]));
        }
        svg.text("end", [WIDTH - 2.0, y + 4.0], &bar.value);
    }
    let better = match metric.better {
        Better::Higher => "more is better",
        Better::Lower => "less is better",
    };
    let base = reader.job.base.as_deref().map(name);
    let base = base.map(|base| format!("; line: 95 % interval of the ratio to {base}"));
    let below = format!("{better}; a dot for each round{}", base.unwrap_or_default());
    svg.below(bottom + 2.0 * LINE, &below);
    let each = bars.iter().map(|bar| format!("{}: {}", name(&bar.row.arm), bar.value));
    let description = format!("{below}. {}", each.collect::<Vec<_>>().join("; "));
    svg.figure(numbers, &spoken(metric), &description)
}

fn reported(metric: &Metric, value: f64) -> String {
    match metric.unit {
        "B/s" => format!("{:.0} MB/s", value / scale(metric).0),
        _ => shown(metric, value),
    }
}

fn spoken(metric: &Metric) -> String {
    match metric.name {
        "write_bytes_per_s" => "Bytes written per second".to_owned(),
        "read_bytes_per_s" => "Bytes read per second".to_owned(),
        "iops" => "I/Os per second".to_owned(),
        other => other.replace('_', " "),
    }
}
