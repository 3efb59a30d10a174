//! A finding: its subject, the value found, the consequence and the remedy.

use serde::{Deserialize, Serialize};

/// Findings without which nothing works: if one of them is missing, the rest does not matter.
const ESSENTIAL: [&str; 3] = ["kernel", "engine", "access"];

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
    /// Nothing.
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

impl Part {
    /// Returns its title in a report.
    pub(super) fn title(self) -> &'static str {
        match self {
            Part::Ring => "Kernel and io_uring",
            Part::Machine => "Machine and limits",
            Part::FileSystem => "File system",
            Part::Files => "Files there",
            Part::Device => "Device",
        }
    }
}

impl Level {
    /// Returns its word in a report.
    pub(super) fn word(self) -> &'static str {
        match self {
            Level::Full => "full",
            Level::Degraded => "degraded",
            Level::Missing => "missing",
            Level::NotKnown => "not known",
        }
    }
}

impl Finding {
    fn new(level: Level, found: impl Into<String>) -> Self {
        // The table of checks has the part and the name.
        let (part, name, means) = (Part::Ring, String::new(), String::new());
        Self { part, name, level, found: found.into(), means, remedy: None }
    }

    /// Gives it a name.
    pub(super) fn named(self, name: &str) -> Self {
        assert!(self.name.is_empty(), "{}: a finding has one name", self.name);
        Self { name: name.to_owned(), ..self }
    }

    /// Sets its part.
    pub(super) fn of(self, part: Part) -> Self {
        Self { part, ..self }
    }

    /// Sets its consequence.
    pub(super) fn means(self, means: impl Into<String>) -> Self {
        Self { means: means.into(), ..self }
    }

    /// Adds a remedy in words.
    pub(super) fn remedy(self, what: impl Into<String>) -> Self {
        Self { remedy: Some(Remedy { what: what.into(), command: None }), ..self }
    }

    /// Adds a remedy with a command for root.
    pub(super) fn root(self, what: impl Into<String>, line: impl Into<String>) -> Self {
        self.command(what.into(), By::Root, line.into())
    }

    /// Adds a remedy with a command for the user.
    pub(super) fn user(self, what: impl Into<String>, line: impl Into<String>) -> Self {
        self.command(what.into(), By::User, line.into())
    }

    fn command(self, what: String, by: By, line: String) -> Self {
        Self { remedy: Some(Remedy { what, command: Some(Command { line, by }) }), ..self }
    }

    /// Returns whether nothing works because of it.
    pub(super) fn stops_everything(&self) -> bool {
        self.level == Level::Missing && ESSENTIAL.contains(&self.name.as_str())
    }
}

/// Returns a finding of something that is fully there.
pub(super) fn full(found: impl Into<String>) -> Finding {
    Finding::new(Level::Full, found)
}

/// Returns a finding of something that is less than it could be.
pub(super) fn degraded(found: impl Into<String>) -> Finding {
    Finding::new(Level::Degraded, found)
}

/// Returns a finding of something that is absent.
pub(super) fn missing(found: impl Into<String>) -> Finding {
    Finding::new(Level::Missing, found)
}

/// Returns a finding of something unknown.
pub(super) fn unknown(found: impl Into<String>) -> Finding {
    Finding::new(Level::NotKnown, found)
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

    #[test]
    fn only_an_essential_finding_stops_everything() {
        let finding = |name, level| Finding::new(level, "").named(name);
        assert!(finding("engine", Level::Missing).stops_everything());
        assert!(!finding("engine", Level::Degraded).stops_everything());
        assert!(!finding("minimal wait", Level::Missing).stops_everything());
    }
}
