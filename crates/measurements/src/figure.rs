//! Finds single figures in the measured blocks of the pages.
//!
//! A place names a block, lines to find one below the other, and fields of the last line:
//!
//! ```text
//! completion-xfs > C > BW (MB/s) > 1 2 3
//! ```
//!
//! A line is found by its first words, with runs of spaces as one; the last line stands before the
//! next empty one. Fields are counted after these words. An interval belongs to the field before.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::document::{DocumentError, Marker, figures};

/// Where a figure stands.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct Place {
    /// Name of the measurement.
    pub measurement: String,
    /// Starts of lines, from the outermost heading to the figure's own line.
    lines: Vec<String>,
    /// Numbers of the fields, from 1.
    fields: Vec<usize>,
}

/// A figure as a page shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Figure {
    /// Text without marks.
    text: String,
    /// Whether the comparison shows a difference.
    pub is_shown: bool,
}

/// The measured blocks of all pages.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Blocks(BTreeMap<String, Block>);

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Block {
    page: String,
    lines: Vec<String>,
}

/// A figure that the pages do not show.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{measurement}: no {what:?} in its block; correct the place in questions.toml")]
pub struct NoFigure {
    measurement: String,
    what: String,
}

impl TryFrom<String> for Place {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bad = || format!("{text:?}: use a form like \"measurement > heading > row > 1 2\"");
        let parts: Vec<String> = text.split(" > ").map(normal).collect();
        let [measurement, lines @ .., fields] = parts.as_slice() else { return Err(bad()) };
        let fields: Result<Vec<usize>, _> = fields.split(' ').map(str::parse).collect();
        let fields = fields.map_err(|_| bad())?;
        if lines.is_empty() || fields.contains(&0) {
            return Err(bad());
        }
        Ok(Self { measurement: measurement.clone(), lines: lines.to_vec(), fields })
    }
}

impl Blocks {
    /// Adds the blocks of a page. Several excerpts of one measurement are one block.
    ///
    /// # Errors
    /// [`DocumentError`] for an invalid marker.
    pub fn add(&mut self, page: &str, text: &str) -> Result<(), DocumentError> {
        let lines: Vec<&str> = text.lines().collect();
        for one in figures(text)? {
            if let Marker::Measured { name, .. } = one.marker {
                let block = self.0.entry(name).or_default();
                page.clone_into(&mut block.page);
                block.lines.extend(lines[one.lines].iter().map(|line| normal(line)));
            }
        }
        Ok(())
    }

    /// Returns the page with the block of a measurement.
    #[must_use]
    pub fn page(&self, measurement: &str) -> Option<&str> {
        self.0.get(measurement).map(|block| block.page.as_str())
    }

    /// Returns the figures of a place.
    ///
    /// # Errors
    /// [`NoFigure`] if a line or field of the place does not exist.
    pub fn find(&self, place: &Place) -> Result<Vec<Figure>, NoFigure> {
        let missing =
            |what: &str| NoFigure { measurement: place.measurement.clone(), what: what.to_owned() };
        let block = self.0.get(&place.measurement).ok_or_else(|| missing("block"))?;
        let mut rest = block.lines.as_slice();
        let (row, headings) = place.lines.split_last().ok_or_else(|| missing("row"))?;
        for heading in headings {
            let at = rest.iter().position(|line| after(line, heading).is_some());
            rest = &rest[at.ok_or_else(|| missing(heading))? + 1..];
        }
        // Without a heading the row may stand anywhere.
        let mut lines = rest.iter().take_while(|line| headings.is_empty() || !line.is_empty());
        let line = lines.find_map(|line| after(line, row)).ok_or_else(|| missing(row))?;
        let fields = fields(line);
        let is_shown = !line.ends_with("not shown");
        let field = |number: &usize| {
            let field = fields.get(number - 1);
            field.ok_or_else(|| missing(&format!("field {number} of {row}")))
        };
        place.fields.iter().map(|number| Ok(Figure::new(field(number)?, is_shown))).collect()
    }
}

impl Figure {
    fn new(field: &str, is_shown: bool) -> Self {
        let text = field.trim_start_matches(['~', '!']).to_owned();
        Self { text, is_shown: is_shown && !field.starts_with('~') }
    }

    /// Returns the text without a deviation.
    #[must_use]
    pub fn printed(&self) -> String {
        let mark = if self.is_shown { "" } else { "~" };
        let text = self.text.split_once("+-").map_or(self.text.as_str(), |(mean, _)| mean);
        format!("{mark}{text}")
    }

    /// Returns the number, in the units of its text (microseconds for times).
    #[must_use]
    pub fn value(&self) -> Option<f64> {
        number(&self.text)
    }

    /// Returns the deviation, if the text has one.
    #[must_use]
    pub fn deviation(&self) -> Option<f64> {
        number(self.text.split_once("+-")?.1)
    }

    /// Returns the difference in per cent, if the figure is a difference or a ratio.
    #[must_use]
    pub fn change(&self) -> Option<f64> {
        if self.text.contains('[') && !self.text.starts_with(['+', '-']) {
            return Some((self.value()? - 1.0) * 100.0);
        }
        self.text.ends_with('%').then(|| self.value()).flatten()
    }
}

/// Returns the rest of a line that starts with these words.
fn after<'a>(line: &'a str, words: &str) -> Option<&'a str> {
    line.strip_prefix(words).filter(|rest| rest.is_empty() || rest.starts_with(' '))
}

fn normal(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Splits a line at its spaces. An interval and a lone `%` belong to the field before.
fn fields(line: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for word in line.split(' ').filter(|word| !word.is_empty()) {
        match found.last_mut() {
            Some(last) if word.starts_with(['[', '(']) || word == "%" => {
                last.extend([" ", word]);
            }
            _ => found.push(word.to_owned()),
        }
    }
    found
}

/// Reads the number at the start of a text.
fn number(text: &str) -> Option<f64> {
    let is_part = |letter: char| letter.is_ascii_digit() || "+-.".contains(letter);
    let sign = usize::from(text.starts_with(['+', '-']));
    let end = text[sign..].find(|letter| !is_part(letter) || letter == '+').map(|end| end + sign);
    let (digits, unit) = text.split_at(end.unwrap_or(text.len()));
    let factor = match unit.split(['+', ' ', '[']).next().unwrap_or_default() {
        "k" | "ms" => 1e3,
        "M" | "s" => 1e6,
        _ => 1.0,
    };
    digits.parse::<f64>().ok().map(|digits| digits * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
<!-- measured: one -->
```
$ c

A seq
             first       second    delta
BW (MB/s)  1696+-148  1769+-216  ~+4.3%
own cs     11.6k+-3k  .8M+-.3M   +105%

B seq
cs         1          2          -3%
factor          2 hash : 1   holes 1.34 [1.28-1.41]    better
factor      group : hash   2 holes 0.69 [0.55-0.86] not shown
```
";

    fn find(place: &str) -> Result<Vec<Figure>, String> {
        let mut blocks = Blocks::default();
        blocks.add("page.md", PAGE).unwrap();
        assert_eq!(blocks.page("one"), Some("page.md"));
        let place = Place::try_from(place.to_owned())?;
        blocks.find(&place).map_err(|error| error.to_string())
    }

    #[test]
    fn a_figure_is_found_by_its_headings_its_row_and_its_field() {
        let found = find("one > A seq > BW (MB/s) > 1 2 3").unwrap();
        assert_eq!(
            found.iter().map(Figure::printed).collect::<Vec<_>>(),
            ["1696", "1769", "~+4.3%"]
        );
        assert_eq!(found[0].deviation(), Some(148.0));
        assert_eq!((found[2].change(), found[2].is_shown), (Some(4.3), false));
        let found = find("one > A seq > own cs > 1 2 3").unwrap();
        assert_eq!((found[0].value(), found[0].deviation()), (Some(11_600.0), Some(3_000.0)));
        assert_eq!((found[1].value(), found[1].deviation()), (Some(800_000.0), Some(300_000.0)));
        assert_eq!((found[2].change(), found[2].is_shown), (Some(105.0), true));
    }

    #[test]
    fn a_ratio_keeps_its_interval_and_a_verdict_at_the_end_counts() {
        let better = &find("one > B seq > factor 2 hash : 1 holes > 1").unwrap()[0];
        assert_eq!((better.printed().as_str(), better.is_shown), ("1.34 [1.28-1.41]", true));
        assert!((better.change().unwrap() - 34.0).abs() < 1e-9);
        let other = &find("one > factor group : hash 2 holes > 1").unwrap()[0];
        assert_eq!(other.printed(), "~0.69 [0.55-0.86]");
    }

    #[test]
    fn a_figure_of_another_section_is_not_taken() {
        for (place, missing) in [
            ("two > A seq > 1", "two: no \"block\""),
            ("one > C seq > cs > 1", "one: no \"C seq\""),
            // In B alone; A ends at its empty line.
            ("one > A seq > cs > 1", "one: no \"cs\""),
            ("one > B seq > cs > 4", "one: no \"field 4 of cs\""),
            ("one > B seq > c > 1", "one: no \"c\""),
        ] {
            let error = find(place).unwrap_err();
            assert!(error.starts_with(missing), "{error}");
        }
    }

    #[test]
    fn a_place_without_a_row_or_a_field_is_refused() {
        for bad in ["one > 1", "one > A > BW", "one > A > BW > 0", ""] {
            let error = find(bad).unwrap_err();
            assert!(error.contains("use a form like"), "{error}");
        }
    }
}
