//! The tables: what stands in each cell, and the cells as text or as markdown.

use std::borrow::Cow;

use crate::schema::{Comparison, Row};
use crate::statistics::Verdict;

use super::figures::{ABSENT, mean_and_deviation, ratio};

/// Text lines are no longer than this: what a mail has room for that is quoted once or twice.
pub(super) const WIDTH: usize = 72;

/// A table: column heads, and a line per arm.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) columns: Cow<'static, [Column]>,
    pub(super) lines: Vec<Vec<String>>,
}

/// A column. The first is the arm's name and stands to the left, the others to the right.
#[derive(Clone, Debug)]
pub(super) struct Column {
    /// Over the head, where the head takes two lines.
    above: Cow<'static, str>,
    head: Cow<'static, str>,
    width: usize,
}

pub(super) const fn column(width: usize, above: &'static str, head: &'static str) -> Column {
    Column { above: Cow::Borrowed(above), head: Cow::Borrowed(head), width }
}

/// A column whose head is not known beforehand.
pub(super) fn named_column(width: usize, head: &str) -> Column {
    Column { above: Cow::Borrowed(""), head: Cow::Owned(cut(head, width).to_owned()), width }
}

/// An arm's name as it is read.
pub(super) fn label(arm: &str) -> String {
    arm.replace('-', " ")
}

/// `1.69 [1.60-1.80]`; one round has no interval.
pub(super) fn with_interval(comparison: &Comparison) -> String {
    let Comparison { ratio: middle, ci_low, ci_high, p, .. } = comparison;
    // The test over one round always gives 1.
    if ci_low == ci_high && *p >= 1.0 {
        return ratio(*middle);
    }
    format!("{} [{}-{}]", ratio(*middle), ratio(*ci_low), ratio(*ci_high))
}

/// The same with what may be said of it.
pub(super) fn marked(comparison: Option<&Comparison>) -> String {
    comparison.map_or_else(absent, |comparison| {
        let mark = if comparison.verdict == Verdict::NotShown { "~" } else { "" };
        format!("{mark}{}", with_interval(comparison))
    })
}

pub(super) fn mean_of(row: Option<&Row>, shown: fn(f64) -> String) -> String {
    row.map_or_else(absent, |row| shown(row.mean))
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
    /// As lines of at most [`WIDTH`] characters.
    pub(super) fn text(&self) -> Vec<String> {
        let line = |cells: Vec<&str>| {
            let mut text = String::new();
            for (place, (cell, column)) in cells.iter().zip(self.columns.iter()).enumerate() {
                let width = column.width;
                let cell = if place == 0 { cut(cell, width) } else { cell };
                text.push_str(&if place == 0 {
                    format!("{cell:<width$}")
                } else {
                    format!(" {cell:>width$}")
                });
            }
            text.trim_end().to_owned()
        };
        let two_lines = self.columns.iter().any(|column| !column.above.is_empty());
        let above =
            two_lines.then(|| line(self.columns.iter().map(|column| &*column.above).collect()));
        let head = line(self.columns.iter().map(|column| &*column.head).collect());
        let body = self.lines.iter().map(|cells| line(cells.iter().map(String::as_str).collect()));
        above.into_iter().chain([head]).chain(body).collect()
    }

    /// Each head in one line.
    pub(super) fn heads(&self) -> impl Iterator<Item = String> + '_ {
        self.columns.iter().map(|column| match column.above.strip_suffix('-') {
            Some(start) => format!("{start}{}", column.head),
            None => format!("{} {}", column.above, column.head).trim().to_owned(),
        })
    }

    /// As a markdown table.
    pub(super) fn markdown(&self) -> Vec<String> {
        let head = self.heads();
        let rule = self
            .columns
            .iter()
            .enumerate()
            .map(|(place, _)| if place == 0 { "---" } else { "---:" });
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

/// That columns with the spaces between fit in a line, and heads in columns.
#[cfg(test)]
pub(super) fn assert_fits(columns: &[Column]) {
    let width: usize = columns.iter().map(|column| 1 + column.width).sum();
    assert!(width <= WIDTH + 1, "{width}");
    assert!(columns.iter().all(|column| column.head.len().max(column.above.len()) <= column.width));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_too_long_is_cut_and_the_rest_stays_in_line() {
        let columns = vec![column(5, "", "arm"), named_column(4, "device-long")];
        let lines = vec![vec!["abcdefgh".to_owned(), "1.5".to_owned()]];
        let table = Table { columns: columns.into(), lines };
        assert_eq!(table.text(), ["arm   devi", "abcde  1.5"]);
        assert_eq!(table.markdown()[2], "| abcdefgh | 1.5 |");
    }

    #[test]
    fn a_head_of_two_lines_is_one_where_there_is_room() {
        let columns =
            vec![column(5, "", "arm"), column(6, "reqs /", "run"), column(6, "sched-", "uled")];
        let table = Table { columns: columns.into(), lines: Vec::new() };
        assert_eq!(table.heads().collect::<Vec<_>>(), ["arm", "reqs / run", "scheduled"]);
        assert_eq!(table.text(), ["      reqs / sched-", "arm      run   uled"]);
    }
}
