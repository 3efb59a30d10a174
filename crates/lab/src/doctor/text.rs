//! A report as text, in 72 columns: problems first, the gravest one on top, each with its remedy.
//! The passed checks are counted in one line, or listed by their part if the user asks for them.
//!
//! ```text
//! degraded   scheduler: mq-deadline
//!              every request takes its lock, and is ordered a second time
//!              -> until the next boot; for good by a rule of udev
//!              # echo none > /sys/block/vda/queue/scheduler
//! ```

use super::finding::{By, Command, Finding, Level, Part};
use super::{Report, Strength};
use crate::progress::Verbosity;
use crate::text::broken;

const WIDTH: usize = 72;

/// Where a finding begins, and what belongs to it.
const MARGIN: usize = 11;
const INDENT: usize = 13;

/// Prints a report.
pub(super) fn text(report: &Report, verbosity: Verbosity) -> String {
    let mut lines = folded(&report.heading, 0, "");
    lines.extend(report.price.iter().flat_map(|price| folded(&price.line(), 0, "")));
    let of = |level: Level| report.findings.iter().filter(move |finding| finding.level == level);
    for level in [Level::Missing, Level::Degraded, Level::NotKnown] {
        if of(level).next().is_some() {
            lines.push(String::new());
        }
        lines.extend(of(level).flat_map(of_finding));
    }
    lines.push(String::new());
    lines.extend(folded(&summary(report, verbosity), 0, ""));
    if verbosity == Verbosity::Verbose {
        lines.extend(passed(report));
    }
    lines.join("\n") + "\n"
}

/// Lists every check that passed, by its part.
fn passed(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    let mut parts: Vec<Part> = Vec::new();
    for finding in report.findings.iter().filter(|finding| finding.level == Level::Full) {
        if parts.last() != Some(&finding.part) {
            parts.push(finding.part);
            lines.extend([String::new(), finding.part.title().to_owned()]);
        }
        lines.extend(of_finding(finding));
    }
    lines
}

fn of_finding(finding: &Finding) -> Vec<String> {
    let first = format!("{:9}  ", finding.level.word());
    let mut lines = folded(&format!("{}: {}", finding.name, finding.found), MARGIN, &first);
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
    assert!(!lines.is_empty(), "a command has a line");
    let last = lines.len() - 1;
    lines[..last].iter_mut().for_each(|line| line.push_str(" \\"));
    let begin = |at| if at == 0 { prompt } else { "  " };
    let indent = " ".repeat(INDENT);
    lines.iter().enumerate().map(|(at, line)| format!("{indent}{}{line}", begin(at))).collect()
}

fn summary(report: &Report, verbosity: Verbosity) -> String {
    let passed = report.findings.iter().filter(|finding| finding.level == Level::Full).count();
    let all = report.findings.len();
    let hint = if verbosity == Verbosity::Brief { " (--verbose lists them)" } else { "" };
    let of = format!("{passed} of {all} checks passed{hint}.");
    let word = match report.strength {
        Strength::Full => "Forebay works at full strength here.",
        Strength::Degraded => "Forebay works here, but not at full strength.",
        Strength::None => "Forebay does not work here.",
    };
    let mut commands =
        report.findings.iter().filter_map(|finding| finding.remedy.as_ref()?.command.as_ref());
    let is_roots = commands.any(|command| command.by == By::Root);
    let root = if is_roots { " Run commands after `#` as root." } else { "" };
    format!("{word} {of}{root}")
}

/// Folds a paragraph from a column on; its first line begins with `first`, which is as wide or empty.
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
