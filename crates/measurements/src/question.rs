//! Four threads of the kernel lists, row by row: `docs/measurements/questions.toml`.
//!
//! A row is something that a thread says. It has published figures, each with the place of ours,
//! or an answer in words with a verdict. Every number from 1 to the last of its thread has a row.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::figure::Place;

/// The file's content.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Questions {
    /// Threads, in the order of the page.
    #[serde(rename = "thread")]
    pub threads: Vec<Thread>,
}

/// A thread of a list.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Thread {
    /// Name, as the markers of the page use it.
    pub name: String,
    /// First part of the number of its rows.
    pub number: u32,
    /// Number of its last row.
    pub rows: u32,
    /// Heading of the thread on the page.
    pub title: String,
    /// Its question.
    pub question: String,
    /// The answer in one sentence; `{NAME}` stands for a value.
    pub answer: String,
    /// Places of the answer's values.
    #[serde(default)]
    pub values: BTreeMap<String, Place>,
    /// Its rows.
    #[serde(rename = "row")]
    pub says: Vec<Row>,
}

/// Something that a thread says.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Second part of its number.
    pub row: u32,
    /// The thread's words, or a summary.
    pub says: String,
    /// Answer, or the reason of the verdict; `{NAME}` stands for a value.
    pub answer: String,
    /// Places of the answer's values.
    #[serde(default)]
    pub values: BTreeMap<String, Place>,
    /// `None` if figures decide.
    pub verdict: Option<Verdict>,
    /// Published figures.
    #[serde(rename = "figure", default)]
    pub figures: Vec<Published>,
}

/// A published change and the place of ours.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Measure.
    pub measure: String,
    /// Unit of the values; empty for numbers.
    #[serde(default)]
    pub unit: String,
    /// Published values, before and after the change.
    pub published: Option<[f64; 2]>,
    /// Published change in per cent; `None` means that it is computed from the values.
    pub change: Option<f64>,
    /// Statement of the thread if it gives no values.
    pub direction: Option<Direction>,
    /// Places of ours: two values, two values and their change, or a ratio. None: not measured.
    #[serde(default)]
    pub ours: Vec<Place>,
}

/// Direction of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// More.
    Higher,
    /// Less.
    Lower,
    /// No difference.
    Same,
}

/// Change, in per cent, below which there is no difference.
pub const NO_DIFFERENCE: f64 = 1.5;

impl Direction {
    /// Returns the direction of a change in per cent.
    #[must_use]
    pub fn of(change: f64) -> Self {
        match change {
            _ if change.abs() < NO_DIFFERENCE => Self::Same,
            _ if change > 0.0 => Self::Higher,
            _ => Self::Lower,
        }
    }
}

impl Published {
    /// Returns the published change in per cent, if the thread gives values.
    #[must_use]
    pub fn change(&self) -> Option<f64> {
        let computed = || self.published.map(|[from, to]| (to / from - 1.0) * 100.0);
        self.change.or_else(computed)
    }

    /// Returns the unit as it stands behind a value: nothing for numbers.
    #[must_use]
    pub fn unit_behind(&self) -> String {
        if self.unit.is_empty() { String::new() } else { format!(" {}", self.unit) }
    }

    /// Returns the published direction.
    #[must_use]
    pub fn direction(&self) -> Option<Direction> {
        self.direction.or_else(|| self.change().map(Direction::of))
    }
}

/// How ours stands to the thread.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The same direction, or the same statement.
    Agrees,
    /// The other direction.
    Opposite,
    /// No difference is shown, or it was not measured.
    NotShown,
    /// This project or machine cannot answer it.
    OutOfReach,
}

/// Why a list of questions was refused.
#[derive(Debug, thiserror::Error)]
pub enum QuestionError {
    /// Not valid TOML of this form.
    #[error("{0}")]
    Form(#[from] toml::de::Error),
    /// A row is missing, or there twice.
    #[error("thread {thread}: row {row} must be there once")]
    Rows {
        /// Name of the thread.
        thread: String,
        /// Number of the row.
        row: u32,
    },
    /// A row is incomplete.
    #[error("row {number}: {why}")]
    Row {
        /// Number of the row.
        number: String,
        /// Remedy.
        why: &'static str,
    },
}

impl Questions {
    /// Parses the file and checks that each thread has every row once.
    ///
    /// # Errors
    /// [`QuestionError`] for a file of another form or with missing rows.
    pub fn parse(text: &str) -> Result<Self, QuestionError> {
        let questions: Self = toml::from_str(text)?;
        for thread in &questions.threads {
            let mut open: BTreeSet<u32> = (1..=thread.rows).collect();
            for row in &thread.says {
                if !open.remove(&row.row) {
                    return Err(thread.lacks(row.row));
                }
                let lacks_claim = |one: &Published| one.direction().is_none();
                let why = if row.figures.is_empty() != row.verdict.is_some() {
                    "give figures or a verdict"
                } else if row.figures.iter().any(lacks_claim) {
                    "give published values or a direction"
                } else {
                    continue;
                };
                return Err(QuestionError::Row { number: thread.number_of(row), why });
            }
            if let Some(row) = open.first() {
                return Err(thread.lacks(*row));
            }
        }
        Ok(questions)
    }

    /// Returns the thread of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Thread> {
        self.threads.iter().find(|thread| thread.name == name)
    }
}

impl Thread {
    /// Returns the number of a row, as `0.22`.
    #[must_use]
    pub fn number_of(&self, row: &Row) -> String {
        format!("{}.{}", self.number, row.row)
    }

    fn lacks(&self, row: u32) -> QuestionError {
        QuestionError::Rows { thread: self.name.clone(), row }
    }
}

impl Row {
    /// Returns the measurements that the row's figures are from.
    pub fn measurements(&self) -> impl Iterator<Item = &str> {
        let ours = self.figures.iter().flat_map(|figure| &figure.ours);
        ours.chain(self.values.values()).map(|place| place.measurement.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "[[thread]]\nname = 't'\nnumber = 3\nrows = 1\ntitle = 'T'\n\
                       question = 'q?'\nanswer = 'a'\n[[thread.row]]\nrow = 1\nsays = 's'\n\
                       answer = 'b'\nverdict = 'out-of-reach'\n";
    const FIGURE: &str = "[[thread.row.figure]]\nmeasure = 'm'\nunit = ''\n\
                          published = [1, 2.5]\nours = ['m > r > 1']\n";

    #[test]
    fn a_list_is_read() {
        let questions = Questions::parse(ONE).unwrap();
        let thread = questions.find("t").unwrap();
        assert_eq!(thread.number_of(&thread.says[0]), "3.1");
        assert_eq!(thread.says[0].verdict, Some(Verdict::OutOfReach));
        assert_eq!(questions.find("u"), None);
    }

    #[test]
    fn a_missing_row_or_verdict_is_refused() {
        for (text, expected) in [
            (ONE.replace("rows = 1", "rows = 2"), "thread t: row 2 must be there once"),
            (ONE.replace("row = 1\n", "row = 2\n"), "thread t: row 2 must be there once"),
            (ONE.replace("verdict = 'out-of-reach'\n", ""), "row 3.1: give figures or a verdict"),
            (format!("{ONE}{FIGURE}"), "row 3.1: give figures or a verdict"),
            (
                ONE.replace(
                    "verdict = 'out-of-reach'\n",
                    &FIGURE.replace("published = [1, 2.5]\n", ""),
                ),
                "row 3.1: give published values or a direction",
            ),
            (ONE.replace("'out-of-reach'", "'maybe'"), "unknown variant `maybe`"),
            (format!("{ONE}{}", FIGURE.replace(" > 1", "")), "use a form like"),
        ] {
            let refused = Questions::parse(&text).unwrap_err().to_string();
            assert!(refused.contains(expected), "{refused}");
        }
        let figures = ONE.replace("verdict = 'out-of-reach'\n", FIGURE);
        assert_eq!(Questions::parse(&figures).unwrap().threads[0].says[0].figures.len(), 1);
    }
}
