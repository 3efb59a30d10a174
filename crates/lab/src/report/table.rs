//! Tables: columns as they are declared, and one renderer.

use std::borrow::Cow;

use crate::schema::{Against, Comparison, Row};
use crate::statistics::Verdict;

use super::column::{Cell, Column, Unit, When};
use super::figures::{ABSENT, in_brackets, mean_and_deviation};
use super::reader::Reader;

/// Text lines are no longer than this: what a mail has room for that is quoted once or twice.
pub(super) const WIDTH: usize = 72;

/// A table: column heads, and lines.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) heads: Vec<Head>,
    pub(super) lines: Vec<Vec<String>>,
}

/// The head of a column. The first column stands to the left, the others to the right.
#[derive(Clone, Debug)]
pub(super) struct Head {
    /// Over the head, where the head takes two lines.
    above: &'static str,
    head: Cow<'static, str>,
    width: usize,
}

fn head_of(column: &Column) -> Head {
    head(column.width, column.above, column.head)
}

fn is_shown(column: &Column, reader: Reader<'_>, arms: &[&str]) -> bool {
    match (column.when, column.metric()) {
        (When::Measured, Some(metric)) => arms.iter().any(|arm| reader.row(arm, metric).is_some()),
        _ => true,
    }
}

fn text_of(cell: Cell, reader: Reader<'_>, arm: &str) -> String {
    match cell {
        Cell::Arm => arm.to_owned(),
        Cell::Label => label(arm),
        Cell::Mean(metric, unit) => mean_of(reader.row(arm, metric), unit),
        Cell::Latency(metric, unit) => {
            let row = reader.row(arm, metric).or_else(|| reader.in_one_direction(arm, metric));
            mean_of(row, unit)
        }
        Cell::Spread(metric, unit) => spread_of(reader.row(arm, metric), unit),
        Cell::ToBase => reader.to_base(arm),
        Cell::Own => String::new(),
    }
}

pub(super) const fn head(width: usize, above: &'static str, head: &'static str) -> Head {
    Head { above, head: Cow::Borrowed(head), width }
}

/// A head that is not known beforehand.
pub(super) fn named_head(width: usize, head: &str) -> Head {
    Head { above: "", head: Cow::Owned(cut(head, width).to_owned()), width }
}

/// An arm's name as it is read.
pub(super) fn label(arm: &str) -> String {
    arm.replace('-', " ")
}

/// `1.69 [1.60-1.80]`; one round has no interval.
pub(super) fn with_interval(comparison: &Comparison) -> String {
    let Comparison { ratio: middle, ci_low, ci_high, p, .. } = comparison;
    // The test over one round always gives 1.
    in_brackets([*middle, *ci_low, *ci_high], ci_low == ci_high && *p >= 1.0)
}

/// The same with a mark if no difference is shown.
pub(super) fn marked(comparison: Option<&Comparison>) -> String {
    comparison.map_or_else(absent, |comparison| {
        let mark = if comparison.verdict == Verdict::NotShown { "~" } else { "" };
        format!("{mark}{}", with_interval(comparison))
    })
}

pub(super) fn mean_of(row: Option<&Row>, unit: Unit) -> String {
    row.map_or_else(absent, |row| unit(row.mean))
}

/// Mean and deviation, divided by a unit.
pub(super) fn spread_of(row: Option<&Row>, unit: f64) -> String {
    row.map_or_else(absent, |row| {
        mean_and_deviation(row.mean / unit, row.stddev.map(|sd| sd / unit))
    })
}

pub(super) fn absent() -> String {
    ABSENT.to_owned()
}

/// The beginning of a word that is too long: names are ASCII.
fn cut(word: &str, width: usize) -> &str {
    word.get(..width).unwrap_or(word)
}

impl Table {
    /// A line for each of these arms of a job, with the columns that are shown.
    pub(super) fn of_arms(columns: &[Column], reader: Reader<'_>, arms: &[&str]) -> Self {
        let shown = || columns.iter().filter(|column| is_shown(column, reader, arms));
        let line = |arm: &&str| shown().map(|column| text_of(column.cell, reader, arm)).collect();
        Self { heads: shown().map(head_of).collect(), lines: arms.iter().map(line).collect() }
    }

    /// A line for each pair, by the name it has, and a column for each metric: its ratio.
    pub(super) fn of_ratios<'a>(
        first: Head,
        metrics: &[(&str, &'static str)],
        reader: Reader<'_>,
        pairs: impl Iterator<Item = (&'a str, Against<'a>)>,
    ) -> Self {
        let line = |(name, pair): (&'a str, Against<'_>)| {
            let ratios = metrics.iter().map(|(metric, _)| marked(reader.compared(metric, pair)));
            (name.to_owned(), ratios.collect())
        };
        let others = metrics.iter().map(|(_, name)| head(17, "", name));
        Self::of_lines(first, others, pairs.map(line))
    }

    /// Lines by their names, with the cells behind them.
    pub(super) fn of_lines(
        first: Head,
        others: impl Iterator<Item = Head>,
        lines: impl Iterator<Item = (String, Vec<String>)>,
    ) -> Self {
        let line = |(name, cells)| std::iter::once(name).chain(cells).collect();
        Self {
            heads: std::iter::once(first).chain(others).collect(),
            lines: lines.map(line).collect(),
        }
    }

    /// As lines of at most [`WIDTH`] characters.
    pub(super) fn text(&self) -> Vec<String> {
        let line = |cells: Vec<&str>| {
            let mut text = String::new();
            for (place, (cell, head)) in cells.iter().zip(&self.heads).enumerate() {
                let width = head.width;
                text.push_str(&match place {
                    0 => format!("{:<width$}", cut(cell, width)),
                    _ => format!(" {cell:>width$}"),
                });
            }
            text.trim_end().to_owned()
        };
        let two_lines = self.heads.iter().any(|head| !head.above.is_empty());
        let above = two_lines.then(|| line(self.heads.iter().map(|head| head.above).collect()));
        let head = line(self.heads.iter().map(|head| &*head.head).collect());
        let body = self.lines.iter().map(|cells| line(cells.iter().map(String::as_str).collect()));
        above.into_iter().chain([head]).chain(body).collect()
    }

    /// Each head in one line.
    pub(super) fn heads(&self) -> impl Iterator<Item = String> + '_ {
        self.heads.iter().map(|head| match head.above.strip_suffix('-') {
            Some(start) => format!("{start}{}", head.head),
            None => format!("{} {}", head.above, head.head).trim().to_owned(),
        })
    }
}

/// Asserts that columns with the spaces between fit in a line, heads in columns, and that every
/// metric exists.
#[cfg(test)]
pub(super) fn assert_fits(columns: &[Column]) {
    for metric in columns.iter().filter_map(Column::metric) {
        assert!(crate::metric::find(metric).is_some(), "{metric}");
    }
    assert_heads_fit(&columns.iter().map(head_of).collect::<Vec<_>>());
}

#[cfg(test)]
pub(super) fn assert_heads_fit(heads: &[Head]) {
    let width: usize = heads.iter().map(|head| 1 + head.width).sum();
    assert!(width <= WIDTH + 1, "{width}");
    assert!(heads.iter().all(|head| head.head.len().max(head.above.len()) <= head.width));
}
