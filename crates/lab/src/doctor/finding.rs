//! A finding: its subject, the value found, the consequence and the remedy.

use serde::{Deserialize, Serialize};

/// One line of a report.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Finding {
    pub part: Part,
    /// Its subject. Programs rely on these words.
    pub name: String,
    /// How much of it is there.
    pub level: Level,
    pub found: String,
    /// Its consequence.
    pub means: String,
    pub remedy: Option<Remedy>,
}

/// The parts of a report, in their order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The kernel and its io_uring.
    Ring,
    /// Processors, memory, limits.
    Machine,
    FileSystem,
    Files,
    /// The device and its queue.
    Device,
}

/// How much of something is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Full,
    /// Less than there could be.
    Degraded,
    Missing,
    /// Unknown; `found` says why.
    NotKnown,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Remedy {
    /// In words.
    pub what: String,
    pub command: Option<Command>,
}

/// A line for a shell.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Command {
    pub line: String,
    pub by: By,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    Root,
    User,
}

impl Finding {
    // The table of checks has the part and the name.
    fn new(level: Level, found: impl Into<String>, means: impl Into<String>) -> Self {
        let (part, name) = (Part::Ring, String::new());
        Self { part, name, level, found: found.into(), means: means.into(), remedy: None }
    }

    /// Sets its part and its name.
    pub(super) fn called(self, part: Part, name: &str) -> Self {
        assert!(self.name.is_empty(), "{}: a finding has one name", self.name);
        Self { part, name: name.to_owned(), ..self }
    }
}

/// A finding that has no remedy yet. It needs one.
pub(super) struct Lost(Finding);

impl Lost {
    /// Adds a remedy in words.
    pub(super) fn advise(self, what: impl Into<String>) -> Option<Finding> {
        self.with(what.into(), None)
    }

    /// Adds a remedy with a command for root.
    pub(super) fn root(self, what: impl Into<String>, line: impl Into<String>) -> Option<Finding> {
        self.with(what.into(), Some(Command { line: line.into(), by: By::Root }))
    }

    /// Adds a remedy with a command for the user.
    pub(super) fn user(self, what: impl Into<String>, line: impl Into<String>) -> Option<Finding> {
        self.with(what.into(), Some(Command { line: line.into(), by: By::User }))
    }

    fn with(self, what: String, command: Option<Command>) -> Option<Finding> {
        Some(Finding { remedy: Some(Remedy { what, command }), ..self.0 })
    }
}

/// Returns a finding of something that is fully there.
pub(super) fn full(found: impl Into<String>, means: impl Into<String>) -> Option<Finding> {
    Some(Finding::new(Level::Full, found, means))
}

/// Returns a finding of something that is fully there, and comes with an advice.
pub(super) fn advised(found: impl Into<String>, means: impl Into<String>) -> Lost {
    Lost(Finding::new(Level::Full, found, means))
}

/// Returns a finding of something that is less than it could be.
pub(super) fn degraded(found: impl Into<String>, means: impl Into<String>) -> Lost {
    Lost(Finding::new(Level::Degraded, found, means))
}

/// Returns a finding of something that is absent.
pub(super) fn missing(found: impl Into<String>, means: impl Into<String>) -> Lost {
    Lost(Finding::new(Level::Missing, found, means))
}

/// Returns a finding of something unknown.
pub(super) fn unknown(found: impl Into<String>, means: impl Into<String>) -> Option<Finding> {
    Some(Finding::new(Level::NotKnown, found, means))
}

/// Quotes a word of a shell's line where it must be.
pub(crate) fn quoted(word: impl AsRef<std::path::Path>) -> String {
    let word = word.as_ref().to_string_lossy().into_owned();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+:@%,=".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word;
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_shell_are_quoted_where_they_must_be() {
        assert_eq!(quoted("/mnt/a-b_c.d"), "/mnt/a-b_c.d");
        assert_eq!(quoted("/mnt/a b"), "'/mnt/a b'");
        assert_eq!(quoted("it's; rm"), r"'it'\''s; rm'");
        assert_eq!(quoted(""), "''");
    }
}
