//! The tables: what stands in each cell, and the cells as text or as markdown.

use crate::compare::judge::THROUGHPUT;
use crate::schema::{Comparison, Document};
use crate::statistics::Verdict;

use super::figures::{ABSENT, bytes, count, mean_and_deviation, microseconds, per_io, ratio};

/// Text lines are no longer than this.
pub(super) const WIDTH: usize = 80;

/// A table: column heads, and a line per arm.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) columns: &'static [Column],
    pub(super) lines: Vec<Vec<String>>,
}

/// A column. The first is the arm's name and stands to the left, the others to the right.
#[derive(Debug)]
pub(super) struct Column {
    /// Over the head, where the head takes two lines.
    above: &'static str,
    head: &'static str,
    width: usize,
}

pub(super) const fn column(width: usize, above: &'static str, head: &'static str) -> Column {
    Column { above, head, width }
}

/// The widths, with the spaces between and the two before, make [`WIDTH`].
const MAIN: &[Column] = &[
    column(24, "", "arm"),
    column(10, "", "MB/s"),
    column(17, "", "ratio [95 %]"),
    column(8, "", "memory"),
    column(6, "sync", "p99"),
    column(8, "extents", "per file"),
];

const COSTS: &[Column] = &[
    column(24, "", "arm"),
    column(7, "own", "cs/I/O"),
    column(7, "system", "cs/I/O"),
    column(7, "CPU us", "per I/O"),
    column(9, "doorbells", "per I/O"),
    column(9, "written", "per asked"),
    column(8, "peak", "dirty"),
];

/// The first table: how fast, with how much memory, how long a sync takes beside it, and what it leaves behind.
pub(super) fn main(document: &Document, base: Option<&str>) -> Table {
    let lines = document.arms().into_iter().map(|arm| {
        let speed = document.row(arm, THROUGHPUT);
        let speed = speed.map(|row| mean_and_deviation(row.mean / 1e6, row.stddev.map(|sd| sd / 1e6)));
        vec![
            label(arm),
            speed.unwrap_or_else(absent),
            ratio_to(document, base, arm),
            mean_of(document, arm, "peak_memory_bytes", bytes),
            mean_of(document, arm, "sync_probe_p99_us", microseconds),
            mean_of(document, arm, "extents_per_file", count),
        ]
    });
    Table { columns: MAIN, lines: lines.collect() }
}

/// The second table: what an I/O costs.
pub(super) fn costs(document: &Document) -> Table {
    let lines = document.arms().into_iter().map(|arm| {
        vec![
            label(arm),
            mean_of(document, arm, "context_switches_per_io", per_io),
            mean_of(document, arm, "system_context_switches_per_io", per_io),
            mean_of(document, arm, "cpu_us_per_io", per_io),
            mean_of(document, arm, "doorbells_per_io", per_io),
            mean_of(document, arm, "written_per_asked", per_io),
            mean_of(document, arm, "peak_dirty_bytes", bytes),
        ]
    });
    Table { columns: COSTS, lines: lines.collect() }
}

/// An arm's name as it is read.
pub(super) fn label(arm: &str) -> String {
    arm.replace('-', " ")
}

/// The comparison of an arm with another, by throughput.
pub(super) fn compared<'a>(document: &'a Document, base: &str, arm: &str) -> Option<&'a Comparison> {
    let mut comparisons = document.comparisons.iter();
    comparisons.find(|one| one.metric == THROUGHPUT && one.base == base && one.arm == arm)
}

/// `1.69 [1.60-1.80]`.
pub(super) fn with_interval(comparison: &Comparison) -> String {
    let Comparison { ratio: middle, ci_low, ci_high, .. } = comparison;
    format!("{} [{}-{}]", ratio(*middle), ratio(*ci_low), ratio(*ci_high))
}

fn ratio_to(document: &Document, base: Option<&str>, arm: &str) -> String {
    let Some(base) = base else { return absent() };
    if base == arm {
        return "1 (base)".to_owned();
    }
    compared(document, base, arm).map_or_else(absent, |comparison| {
        let mark = if comparison.verdict == Verdict::NotShown { "~" } else { "" };
        format!("{mark}{}", with_interval(comparison))
    })
}

fn mean_of(document: &Document, arm: &str, metric: &str, shown: fn(f64) -> String) -> String {
    document.row(arm, metric).map_or_else(absent, |row| shown(row.mean))
}

fn absent() -> String {
    ABSENT.to_owned()
}

impl Table {
    /// As lines of at most [`WIDTH`] characters.
    pub(super) fn text(&self) -> Vec<String> {
        let line = |cells: Vec<&str>| {
            let mut text = " ".to_owned();
            for (place, (cell, column)) in cells.iter().zip(self.columns).enumerate() {
                let width = column.width;
                text.push_str(&if place == 0 {
                    format!(" {cell:<width$}")
                } else {
                    format!(" {cell:>width$}")
                });
            }
            text.trim_end().to_owned()
        };
        let two_lines = self.columns.iter().any(|column| !column.above.is_empty());
        let above = two_lines.then(|| line(self.columns.iter().map(|column| column.above).collect()));
        let head = line(self.columns.iter().map(|column| column.head).collect());
        let body = self.lines.iter().map(|cells| line(cells.iter().map(String::as_str).collect()));
        above.into_iter().chain([head]).chain(body).collect()
    }

    /// As a markdown table.
    pub(super) fn markdown(&self) -> Vec<String> {
        let head =
            self.columns.iter().map(|column| format!("{} {}", column.above, column.head).trim().to_owned());
        let rule = self.columns.iter().enumerate().map(|(place, _)| if place == 0 { "---" } else { "---:" });
        let row = |cells: Vec<String>| format!("| {} |", cells.join(" | "));
        let body = self.lines.iter().map(|cells| {
            let cells = cells.iter().map(|cell| cell.trim().replace('|', "\\|"));
            row(cells.collect())
        });
        let head = row(head.collect());
        let rule = format!("|{}|", rule.collect::<Vec<_>>().join("|"));
        [head, rule].into_iter().chain(body).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_fit_the_width() {
        for columns in [MAIN, COSTS] {
            let width: usize = columns.iter().map(|column| 1 + column.width).sum();
            assert!(width < WIDTH, "{width}");
            assert!(columns.iter().all(|column| column.head.len().max(column.above.len()) <= column.width));
        }
    }

    #[test]
    fn every_arm_has_room_for_its_name() {
        assert!(crate::compare::ARMS.iter().all(|arm| arm.name().len() <= MAIN[0].width));
    }
}
