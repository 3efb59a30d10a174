//! Tables of `docs/kernel-questions.md`: the published figures beside ours, and an answer to each
//! row.
//!
//! Ours agrees if its difference is shown and has the direction of the published one.

use std::collections::BTreeMap;

use crate::document::Part;
use crate::figure::{Blocks, Figure, NoFigure, Place};
use crate::list::List;
use crate::question::{Direction, Published, Questions, Row, Thread, Verdict};

/// Why a table cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The page names a thread that does not exist.
    #[error("no thread {0:?} in questions.toml")]
    Thread(String),
    /// A place names a figure that no page shows.
    #[error(transparent)]
    Figure(#[from] NoFigure),
    /// Figures of ours that do not make a change.
    #[error("{measure}: ours are {found:?}: use two values, or a ratio or change")]
    Change {
        /// The measure.
        measure: String,
        /// The figures.
        found: Vec<String>,
    },
    /// A figure comes from no measurement of the list.
    #[error("{0}: no such measurement in measurements.toml")]
    Measurement(String),
}

/// The data of the tables.
#[derive(Clone, Copy, Debug)]
pub struct Answers<'a> {
    /// Threads.
    pub questions: &'a Questions,
    /// Our figures.
    pub blocks: &'a Blocks,
    /// Commands.
    pub list: &'a List,
}

impl Answers<'_> {
    /// Returns a table with its heading.
    ///
    /// # Errors
    /// [`AnswerError`] if a thread or figure does not exist.
    pub fn table(&self, part: Part, thread: &str) -> Result<String, AnswerError> {
        if part == Part::Threads {
            return self.threads();
        }
        let found = self.questions.find(thread);
        let thread = found.ok_or_else(|| AnswerError::Thread(thread.to_owned()))?;
        match part {
            Part::Published => self.published(thread),
            Part::Commands => self.commands(thread),
            Part::Threads | Part::Answers => self.answers(thread),
        }
    }

    fn threads(&self) -> Result<String, AnswerError> {
        let mut text = "| thread | question | answer |\n|---|---|---|\n".to_owned();
        for Thread { title, question, answer, values, .. } in &self.questions.threads {
            let answer = self.filled(answer, values)?;
            text.push_str(&format!("| {title} | {question} | {answer} |\n"));
        }
        Ok(text)
    }

    fn published(&self, thread: &Thread) -> Result<String, AnswerError> {
        let mut text = "| # | measure | published | ours | |\n|---|---|---|---|---|\n".to_owned();
        for row in &thread.says {
            let number = thread.number_of(row);
            for one in &row.figures {
                let (ours, verdict) = self.ours(one)?;
                let (measure, published, verdict) = (&one.measure, published(one), said(verdict));
                text.push_str(&format!(
                    "| {number} | {measure} | {published} | {ours} | {verdict} |\n"
                ));
            }
        }
        Ok(text)
    }

    fn answers(&self, thread: &Thread) -> Result<String, AnswerError> {
        let mut text = "| # | the thread says | answer | |\n|---|---|---|---|\n".to_owned();
        for row in &thread.says {
            let verdict = match row.verdict {
                Some(verdict) => said(verdict).to_owned(),
                None => self.counted(row)?,
            };
            let answer = self.filled(&row.answer, &row.values)?;
            let number = thread.number_of(row);
            text.push_str(&format!("| {number} | {} | {answer} | {verdict} |\n", row.says));
        }
        Ok(text)
    }

    fn commands(&self, thread: &Thread) -> Result<String, AnswerError> {
        let mut used: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        let mut order: Vec<&str> = Vec::new();
        for row in &thread.says {
            for name in row.measurements() {
                let rows = used.entry(name).or_default();
                if rows.is_empty() {
                    order.push(name);
                }
                rows.push(thread.number_of(row));
            }
        }
        let mut text = "| command | output | rows |\n|---|---|---|\n".to_owned();
        for name in order {
            let missing = || AnswerError::Measurement(name.to_owned());
            let command = self.list.find(name).ok_or_else(missing)?.command.trim();
            let page = self.blocks.page(name).ok_or_else(missing)?;
            let command = match command.lines().count() {
                1 => command.to_owned(),
                // A script is shown on its page.
                _ => format!("cargo run --release -p forebay-measurements -- BUNDLE --only {name}"),
            };
            let mut rows = used.remove(name).unwrap_or_default();
            rows.dedup();
            let rows = rows.join(", ");
            text.push_str(&format!("| `{command}` | [{name}](measurements/{page}) | {rows} |\n"));
        }
        Ok(text)
    }

    /// Returns a sentence with its figures.
    fn filled(&self, words: &str, values: &BTreeMap<String, Place>) -> Result<String, AnswerError> {
        let mut text = words.to_owned();
        for (name, place) in values {
            let figures = self.blocks.find(place)?;
            let printed: Vec<String> = figures.iter().map(Figure::printed).collect();
            text = text.replace(&format!("{{{name}}}"), &printed.join(" to "));
        }
        Ok(text)
    }

    /// Returns our figures in words, and the verdict.
    fn ours(&self, one: &Published) -> Result<(String, Verdict), AnswerError> {
        if one.ours.is_empty() {
            return Ok(("not measured".to_owned(), Verdict::NotShown));
        }
        let mut figures = Vec::new();
        for place in &one.ours {
            figures.extend(self.blocks.find(place)?);
        }
        let printed: Vec<String> = figures.iter().map(Figure::printed).collect();
        let unknown =
            || AnswerError::Change { measure: one.measure.clone(), found: printed.clone() };
        let (change, is_shown) = change(&figures).ok_or_else(unknown)?;
        let unit = one.unit_behind();
        let text = match printed.as_slice() {
            [from, to, change] => format!("{from} to {to}{unit} ({change})"),
            [from, to] => {
                let mark = if is_shown { "" } else { "~" };
                format!("{from} to {to}{unit} ({mark}{change:+.1}%)")
            }
            _ => printed.join(" "),
        };
        let verdict = match (is_shown, Some(Direction::of(change)) == one.direction()) {
            (false, _) => Verdict::NotShown,
            (true, true) => Verdict::Agrees,
            (true, false) => Verdict::Opposite,
        };
        Ok((text, verdict))
    }

    /// Returns the verdicts on a row's figures: one word if all are the same.
    fn counted(&self, row: &Row) -> Result<String, AnswerError> {
        let mut counts: BTreeMap<Verdict, usize> = BTreeMap::new();
        for one in &row.figures {
            *counts.entry(self.ours(one)?.1).or_default() += 1;
        }
        if let [verdict] = counts.keys().collect::<Vec<_>>()[..] {
            return Ok(said(*verdict).to_owned());
        }
        let each = counts.iter().map(|(verdict, count)| format!("{}: {count}", said(*verdict)));
        Ok(each.collect::<Vec<_>>().join(", "))
    }
}

/// Returns the change of our figures in per cent, and whether a difference is shown.
fn change(ours: &[Figure]) -> Option<(f64, bool)> {
    match ours {
        [_, _, change] | [change] => Some((change.change()?, change.is_shown)),
        [from, to] => {
            let (before, after) = (from.value()?, to.value()?);
            let noise = from.deviation().unwrap_or(0.0) + to.deviation().unwrap_or(0.0);
            let is_shown = from.is_shown && to.is_shown && (after - before).abs() > noise;
            (before != 0.0).then(|| ((after / before - 1.0) * 100.0, is_shown))
        }
        _ => None,
    }
}

fn published(one: &Published) -> String {
    let unit = one.unit_behind();
    match (one.published, one.change(), one.direction) {
        (Some([from, to]), Some(change), _) => format!("{from} to {to}{unit} ({change:+.1}%)"),
        (_, _, Some(Direction::Higher)) => "higher".to_owned(),
        (_, _, Some(Direction::Lower)) => "lower".to_owned(),
        _ => "no difference".to_owned(),
    }
}

fn said(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Agrees => "agrees",
        Verdict::Opposite => "**opposite**",
        Verdict::NotShown => "not shown",
        Verdict::OutOfReach => "out of reach",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
<!-- measured: one -->
```
$ c

rate        100+-1   130+-1   +30%
same        100      101      +1%
noisy       100      130      ~+30%
spread      100+-20  130+-20
model       100      130
ratio       0.69 [0.55-0.86]
```
";
    const QUESTIONS: &str = "
[[thread]]
name = 't'
number = 3
rows = 2
title = 'T'
question = 'q?'
answer = 'by {x}'
values.x = 'one > ratio > 1'
[[thread.row]]
row = 1
says = 'faster'
answer = 'so'
";

    const LIST: &str = "[[measurement]]\nname = 'one'\nminutes = 1\ncommand = 'c'\n";

    fn table(part: Part, figures: &[(&str, [i32; 2])]) -> Result<String, String> {
        let mut text = QUESTIONS.to_owned();
        for (place, published) in figures {
            text.push_str(&format!(
                "[[thread.row.figure]]\nmeasure = 'm'\nunit = 'MB/s'\n\
                 published = {published:?}\nours = ['one > {place}']\n"
            ));
        }
        text.push_str("[[thread.row]]\nrow = 2\nsays = 'w'\nanswer = 'no'\nverdict = 'agrees'\n");
        let questions = Questions::parse(&text).unwrap();
        let mut blocks = Blocks::default();
        blocks.add("p.md", PAGE).unwrap();
        let list = List::parse(LIST).unwrap();
        let answers = Answers { questions: &questions, blocks: &blocks, list: &list };
        answers.table(part, "t").map_err(|error| error.to_string())
    }

    fn line(place: &str, published: [i32; 2]) -> String {
        let table = table(Part::Published, &[(place, published)]).unwrap();
        table.lines().nth(2).unwrap().to_owned()
    }

    #[test]
    fn the_verdict_is_the_direction_of_a_difference_that_is_shown() {
        let up = "| 3.1 | m | 10 to 20 MB/s (+100.0%) | ";
        let rate = "100 to 130 MB/s (+30%)";
        assert_eq!(line("rate > 1 2 3", [10, 20]), format!("{up}{rate} | agrees |"));
        assert_eq!(
            line("rate > 1 2 3", [20, 10]),
            format!("| 3.1 | m | 20 to 10 MB/s (-50.0%) | {rate} | **opposite** |")
        );
        assert!(line("rate > 1 2 3", [1000, 1001]).ends_with("| **opposite** |"));
        assert!(line("same > 1 2 3", [1000, 1001]).ends_with("| agrees |"));
        assert!(line("same > 1 2 3", [10, 20]).ends_with("| **opposite** |"));
        let noisy = "100 to 130 MB/s (~+30%)";
        assert_eq!(line("noisy > 1 2 3", [10, 20]), format!("{up}{noisy} | not shown |"));
        assert!(line("ratio > 1", [20, 10]).ends_with("| 0.69 [0.55-0.86] | agrees |"));
    }

    #[test]
    fn two_values_differ_if_they_do_by_more_than_their_deviations() {
        assert!(line("spread > 1 2", [10, 20]).ends_with("(~+30.0%) | not shown |"));
        assert!(line("model > 1 2", [10, 20]).ends_with("(+30.0%) | agrees |"));
    }

    #[test]
    fn a_row_counts_its_figures_and_words_have_theirs() {
        let rows = |figures: &[_]| table(Part::Answers, figures).unwrap();
        let both = rows(&[("rate > 1 2 3", [10, 20]), ("noisy > 1 2 3", [10, 20])]);
        assert!(both.contains("| 3.1 | faster | so | agrees: 1, not shown: 1 |\n"), "{both}");
        let same = rows(&[("rate > 1 2 3", [10, 20]), ("rate > 1 2 3", [10, 30])]);
        assert!(same.ends_with("| so | agrees |\n| 3.2 | w | no | agrees |\n"), "{same}");
        let one = [("rate > 1 2 3", [10, 20])];
        let threads = table(Part::Threads, &one).unwrap();
        assert!(threads.ends_with("| T | q? | by 0.69 [0.55-0.86] |\n"), "{threads}");
        let commands = table(Part::Commands, &one).unwrap();
        assert!(commands.ends_with("| `c` | [one](measurements/p.md) | 3.1 |\n"), "{commands}");
    }

    #[test]
    fn a_figure_that_is_missing_or_no_change_is_an_error() {
        let failed = |place: &str| table(Part::Published, &[(place, [1, 2])]).unwrap_err();
        assert!(failed("rate > 1 9").contains("field 9"), "{}", failed("rate > 1 9"));
        assert!(failed("rate > 1").starts_with("m: ours are [\"100\"]"), "{}", failed("rate > 1"));
    }
}
