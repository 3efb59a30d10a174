//! A report, as JSON and as text in 72 columns: problems first, the gravest one on top, each with
//! its remedy. The passed checks are counted in one line, or listed by their part if the user asks
//! for them.
//!
//! ```text
//! degraded   scheduler: mq-deadline
//!              every request takes its lock, and is ordered a second time
//!              -> until the next boot; for good by a rule of udev
//!              # echo none > /sys/block/vda/queue/scheduler
//! ```

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::facts::Kind;
use super::finding::{By, Command, Finding, Level, Part};
use crate::price::Measured;
use crate::progress::Verbosity;
use crate::text::broken;

const WIDTH: usize = 72;

/// Where a finding begins, and what belongs to it.
const MARGIN: usize = 11;
const INDENT: usize = 13;

/// Findings without which nothing works: if one of them is missing, the rest does not matter.
const ESSENTIAL: [&str; 3] = ["kernel", "engine", "access"];

/// All findings on a place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Report {
    pub schema: u32,
    pub version: String,
    /// When the place was examined, UTC.
    pub date: String,
    pub path: PathBuf,
    pub kind: Kind,
    /// The place and the machine, in a line.
    pub heading: String,
    /// Price of its disk, if it could be measured.
    #[serde(default)]
    pub price: Option<Measured>,
    pub strength: Strength,
    pub findings: Vec<Finding>,
}

/// How well Forebay works in a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strength {
    /// Nothing is in the way, as far as that is known.
    Full,
    /// It works, and something is lost.
    Degraded,
    /// It does not work.
    None,
}

impl Strength {
    /// Returns the strength of all findings: one that stops everything decides, and unknown ones do
    /// not count.
    pub(super) fn of(findings: &[Finding]) -> Self {
        let mut lost =
            findings.iter().filter(|one| matches!(one.level, Level::Degraded | Level::Missing));
        let stops_everything =
            |one: &Finding| one.level == Level::Missing && ESSENTIAL.contains(&one.name.as_str());
        match lost.clone().any(stops_everything) {
            true => Self::None,
            false if lost.next().is_some() => Self::Degraded,
            false => Self::Full,
        }
    }
}

impl Report {
    /// Returns the report as JSON, with a line end.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("words and numbers become JSON") + "\n"
    }

    /// Returns the report as text of 72 columns, problems first. Words that cannot be broken, such
    /// as paths, may be longer.
    pub fn text(&self, verbosity: Verbosity) -> String {
        let mut lines = folded(&self.heading, 0, "");
        lines.extend(self.price.iter().flat_map(|price| folded(&price.line(), 0, "")));
        let worth = self.price.iter().filter_map(Measured::worth_of_log);
        lines.extend(worth.flat_map(|worth| folded(&worth, 0, "")));
        for level in [Level::Missing, Level::Degraded, Level::NotKnown] {
            let mut of = self.of(level).peekable();
            if of.peek().is_some() {
                lines.push(String::new());
            }
            lines.extend(of.flat_map(of_finding));
        }
        lines.push(String::new());
        lines.extend(folded(&self.summary(verbosity), 0, ""));
        if verbosity == Verbosity::Verbose {
            let mut part = None;
            for finding in self.of(Level::Full) {
                if part.replace(finding.part) != Some(finding.part) {
                    lines.extend([String::new(), title(finding.part).to_owned()]);
                }
                lines.extend(of_finding(finding));
            }
        }
        lines.join("\n") + "\n"
    }

    fn of(&self, level: Level) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |finding| finding.level == level)
    }

    fn summary(&self, verbosity: Verbosity) -> String {
        let (passed, all) = (self.of(Level::Full).count(), self.findings.len());
        let hint = if verbosity == Verbosity::Brief { " (--verbose lists them)" } else { "" };
        let word = match self.strength {
            Strength::Full => "Forebay works at full strength here.",
            Strength::Degraded => "Forebay works here, but not at full strength.",
            Strength::None => "Forebay does not work here.",
        };
        let remedies = self.findings.iter().filter_map(|finding| finding.remedy.as_ref());
        let mut commands = remedies.filter_map(|remedy| remedy.command.as_ref());
        let is_roots = commands.any(|command| command.by == By::Root);
        let root = if is_roots { " Run commands after `#` as root." } else { "" };
        format!("{word} {passed} of {all} checks passed{hint}.{root}")
    }
}

fn title(part: Part) -> &'static str {
    match part {
        Part::Ring => "Kernel and io_uring",
        Part::Machine => "Machine and limits",
        Part::FileSystem => "File system",
        Part::Files => "Files there",
        Part::Device => "Device",
    }
}

fn of_finding(finding: &Finding) -> Vec<String> {
    let level = match finding.level {
        Level::Full => "full       ",
        Level::Degraded => "degraded   ",
        Level::Missing => "missing    ",
        Level::NotKnown => "not known  ",
    };
    let mut lines = folded(&format!("{}: {}", finding.name, finding.found), MARGIN, level);
    lines.extend(folded(&finding.means, INDENT, ""));
    if let Some(remedy) = &finding.remedy {
        lines.extend(folded(&format!("-> {}", remedy.what), INDENT, ""));
        lines.extend(remedy.command.iter().flat_map(of_command));
    }
    lines
}

/// Breaks a command into lines that a shell reads as one.
fn of_command(command: &Command) -> Vec<String> {
    let prompt = match command.by {
        By::Root => "# ",
        By::User => "$ ",
    };
    // Each but the last ends in a blank and a backslash.
    let mut lines = broken(words(&command.line), WIDTH - INDENT - 4);
    let (_, all_but_last) = lines.split_last_mut().expect("a command has a line");
    all_but_last.iter_mut().for_each(|line| line.push_str(" \\"));
    let begin = |at| if at == 0 { prompt } else { "  " };
    let indent = " ".repeat(INDENT);
    lines.iter().enumerate().map(|(at, line)| format!("{indent}{}{line}", begin(at))).collect()
}

/// Folds a paragraph from a column on. Its first line begins with `first`, which is as wide or
/// empty.
fn folded(paragraph: &str, indent: usize, first: &str) -> Vec<String> {
    let blank = " ".repeat(indent);
    let lines = broken(paragraph.split([' ', '\n']), WIDTH - indent);
    let begin = |at| if at == 0 && !first.is_empty() { first } else { blank.as_str() };
    lines.iter().enumerate().map(|(at, line)| format!("{}{line}", begin(at))).collect()
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    line.split(move |letter| {
        let ends = letter == ' ' && !is_quoted && !is_escaped;
        is_quoted ^= letter == '\'' && !is_escaped;
        is_escaped = letter == '\\' && !is_quoted && !is_escaped;
        ends
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_word_is_not_broken() {
        let line = r"umount '/mnt/a b' && rm 'it'\''s it' x";
        let expected = ["umount", "'/mnt/a b'", "&&", "rm", r"'it'\''s it'", "x"];
        assert_eq!(words(line).collect::<Vec<_>>(), expected);
        let command = Command { line: "echo 'a b' 'c d'".repeat(5), by: By::User };
        assert!(of_command(&command).iter().all(|line| line.matches('\'').count() % 2 == 0));
    }
}
