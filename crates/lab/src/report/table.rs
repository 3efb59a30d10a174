//! The one table of all results: a line for each arm, a column for each figure, as wide as their
//! content. Columns that do not fit in a line make a further table of the same arms.
//!
//! ```text
//! arm             MB/s      ratio [95 %]  memory      figures of the probe, in its order
//! kernel-bounded  246+-8.3      1 (base)   64MiB
//! forebay         415+-14  1.69 [1.63-1.76]  66MiB
//! ```

use crate::figures::{
    ABSENT, count, in_brackets, mean_and_deviation, number, percent, size, three_digits, time,
};
use crate::metric::Metric;
use crate::probes;
use crate::schema::again;
use crate::schema::{Against, Comparison, Difference, Row};
use crate::text::shortened;

use crate::reader::Reader;

/// Text lines are no longer than this: a mail has room for it, quoted once or twice.
pub(crate) const WIDTH: usize = 72;

/// Letters of a name at most.
const NAME: usize = 26;

/// A column: its head, whose two lines a bar divides, and a cell for each line.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) head: String,
    pub(crate) cells: Vec<String>,
}

/// Columns of equal length. The first stands to the left, the others to the right.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) columns: Vec<Column>,
}

impl Column {
    pub(crate) fn new(head: &str, cells: impl Iterator<Item = String>) -> Self {
        Self { head: head.to_owned(), cells: cells.collect() }
    }

    /// Returns the column of names.
    pub(crate) fn names<'a>(head: &str, names: impl Iterator<Item = &'a str>) -> Self {
        Self::new(head, names.map(|name| shortened(name, NAME, NAME / 2)))
    }

    fn width(&self) -> usize {
        let texts = self.head.split('|').chain(self.cells.iter().map(String::as_str));
        texts.map(|text| text.chars().count()).max().unwrap_or(0)
    }
}

impl Table {
    /// Divides columns into tables that fit in a line, each behind the names.
    pub(crate) fn split(names: &Column, columns: Vec<Column>) -> Vec<Self> {
        let mut tables: Vec<Self> = Vec::new();
        let mut left = 0;
        for column in columns {
            assert_eq!(column.cells.len(), names.cells.len(), "{}", column.head);
            let needed = 1 + column.width();
            match tables.last_mut().filter(|_| needed <= left) {
                Some(table) => table.columns.push(column),
                None => {
                    left = WIDTH.saturating_sub(names.width());
                    tables.push(Self { columns: vec![names.clone(), column] });
                }
            }
            left = left.saturating_sub(needed);
        }
        tables
    }

    /// Returns the table as lines of text.
    pub(crate) fn text(&self) -> Vec<String> {
        let widths: Vec<usize> = self.columns.iter().map(Column::width).collect();
        let line = |cell: &dyn Fn(&Column) -> String| {
            let cells = self.columns.iter().zip(&widths).enumerate();
            let texts = cells.map(|(place, (column, width))| match place {
                0 => format!("{:<width$}", cell(column)),
                _ => format!(" {:>width$}", cell(column)),
            });
            texts.collect::<String>().trim_end().to_owned()
        };
        let two_lines = self.columns.iter().any(|column| column.head.contains('|'));
        let above =
            |column: &Column| column.head.split_once('|').map_or("", |(above, _)| above).to_owned();
        let head = |column: &Column| column.head.rsplit('|').next().unwrap_or_default().to_owned();
        let mut lines = Vec::new();
        if two_lines {
            lines.push(line(&above));
        }
        lines.push(line(&head));
        let length = self.columns.first().map_or(0, |names| names.cells.len());
        let alike = self.columns.iter().all(|column| column.cells.len() == length);
        assert!(alike, "each column has a cell for each line");
        lines.extend((0..length).map(|at| line(&|column: &Column| column.cells[at].clone())));
        lines
    }
}

/// Returns the tables of a job: its arms with the figures of its probe, and the pairs that are
/// compared besides those with the base.
pub(crate) fn of_job(reader: Reader<'_>, figures: &[&str], compared: &[&str]) -> Vec<Table> {
    let arms = reader.arms();
    let names = Column::names("arm", arms.iter().copied());
    let metric = reader.part.metric.as_str();
    let each = |head: &str, cell: &dyn Fn(&str) -> String| {
        Column::new(head, arms.iter().map(|arm| cell(arm)))
    };
    let main = probes::metric(metric);
    let (divisor, unit) = main.map_or((1.0, ""), scale);
    let head = main.map_or(metric, |metric| metric.head);
    let mut columns =
        vec![each(&format!("{head}{unit}"), &|arm| spread(reader.row(arm, metric), divisor))];
    columns.push(each("ratio [95 %]", &|arm| to_base(reader, arm)));
    let differs =
        |arm: &str| reader.document.differences.iter().find(|one| is_of(one, reader, arm));
    if arms.iter().any(|arm| differs(arm).is_some()) {
        let unit = main.map_or("", |metric| metric.unit);
        let cell = |arm: &str| differs(arm).map_or_else(absent, difference);
        columns.push(each(&format!("{unit} more [95 %]"), &cell));
    }
    columns.extend(shown_figures(reader, figures).map(|metric| {
        each(metric.head, &|arm| {
            reader.mean(arm, metric.name).map_or_else(absent, |mean| shown(metric, mean))
        })
    }));
    let mut tables = Table::split(&names, columns);
    tables.extend(pairs(reader, compared));
    tables
}

/// Returns the figures that any arm has, without the metric of the part: those of the probe in its
/// order, then those that were counted in the kernel.
pub(crate) fn shown_figures<'a>(
    reader: Reader<'a>,
    figures: &'a [&str],
) -> impl Iterator<Item = &'static Metric> + 'a {
    let kernel =
        probes::metrics().filter(|metric| metric.name.starts_with(crate::batching::PREFIX));
    let own = figures.iter().filter_map(|name| probes::metric(name));
    let all = own.chain(kernel).filter(move |metric| metric.name != reader.part.metric);
    all.filter(move |metric| reader.has(metric.name))
}

/// Returns the ratios of pairs, a line each: every arm to the base if more metrics are compared,
/// and the pairs that a suite asks for.
fn pairs(reader: Reader<'_>, compared: &[&str]) -> Vec<Table> {
    /// Metrics beside that of the part that fit in a line.
    const BESIDES: usize = 2;
    let metric = reader.part.metric.as_str();
    let besides = compared.iter().filter(|name| **name != metric && reader.has(name));
    let metrics: Vec<&str> = [metric].into_iter().chain(besides.take(BESIDES).copied()).collect();
    let base = reader.job.base.as_deref();
    let twin = again(&reader.part.again);
    let is_noise = |one: &Comparison| one.arm == twin && one.base == reader.part.again;
    let of_job = reader.document.comparisons.iter().filter(|one| one.job == reader.job.name);
    let listed = of_job.filter(|one| one.metric == metric && !is_noise(one));
    let listed: Vec<&Comparison> =
        listed.filter(|one| metrics.len() > 1 || Some(one.base.as_str()) != base).collect();
    let name = |one: &&Comparison| format!("{} : {}", one.arm, one.base);
    let names = Column::new("pair", listed.iter().map(name));
    let ratios = metrics.iter().map(|name| {
        let head = probes::metric(name).map_or(*name, |metric| metric.head).replace('|', " ");
        let cell = |one: &&Comparison| {
            let pair = Against { arm: &one.arm, base: &one.base };
            marked(reader.compared(name, pair))
        };
        Column::new(&head, listed.iter().map(cell))
    });
    if listed.is_empty() { Vec::new() } else { Table::split(&names, ratios.collect()) }
}

fn is_of(one: &Difference, reader: Reader<'_>, arm: &str) -> bool {
    one.job == reader.job.name && one.arm == arm && one.metric == reader.part.metric
}

/// Returns `+12 [10..15]`, in the unit of the metric.
fn difference(found: &Difference) -> String {
    let signed = |value: f64| {
        let sign = if value < 0.0 { "-" } else { "+" };
        format!("{sign}{}", three_digits(value.abs()))
    };
    let mark = if found.shown { "" } else { "~" };
    format!("{mark}{} [{}..{}]", signed(found.value), signed(found.ci_low), signed(found.ci_high))
}

fn to_base(reader: Reader<'_>, arm: &str) -> String {
    match reader.job.base.as_deref() {
        Some(base) if base == arm => "1 (base)".to_owned(),
        Some(_) => marked(reader.against_base(arm)),
        None => absent(),
    }
}

/// Returns `1.69 [1.60-1.80]`; one round has no interval.
pub(crate) fn with_interval(comparison: &Comparison) -> String {
    let Comparison { ratio: middle, ci_low, ci_high, p, .. } = comparison;
    // The test over one round always gives 1.
    in_brackets([*middle, *ci_low, *ci_high], ci_low == ci_high && *p >= 1.0)
}

/// Returns the same with a mark if no difference is shown.
pub(crate) fn marked(comparison: Option<&Comparison>) -> String {
    let shown = |found: &Comparison| format!("{}{}", found.mark(), with_interval(found));
    comparison.map_or_else(absent, shown)
}

/// Returns mean and deviation, divided by a unit.
pub(crate) fn spread(row: Option<&Row>, unit: f64) -> String {
    row.map_or_else(absent, |row| {
        let text = mean_and_deviation(row.mean / unit, row.stddev.map(|sd| sd / unit));
        text.trim_end().to_owned()
    })
}

/// Returns by what values of a metric are divided where they stand with their deviation, and the
/// unit that the head then needs.
pub(crate) fn scale(metric: &Metric) -> (f64, &'static str) {
    match metric.unit {
        "B/s" => (1e6, ""),
        "B" => ((1u64 << 20) as f64, " MiB"),
        "us" => (1.0, " us"),
        _ => (1.0, ""),
    }
}

/// Returns a value of a metric as it stands in a table.
pub(crate) fn shown(metric: &Metric, value: f64) -> String {
    match metric.unit {
        "B/s" => three_digits(value / 1e6),
        "B" => size(value),
        "us" => time(value),
        "s" => time(value * 1e6),
        "ns" => three_digits(value),
        "1/s" if metric.name.starts_with("kernel_") => count(value),
        "1/s" => three_digits(value),
        _ if metric.name.ends_with("_share") => percent(value),
        _ => number(value),
    }
}

pub(crate) fn absent() -> String {
    ABSENT.to_owned()
}
