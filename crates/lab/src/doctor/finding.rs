//! A finding: its subject, the value found, the consequence and the remedy.

use serde::{Deserialize, Serialize};

/// The findings without which nothing works: where one of them is missing the rest does not matter.
const ESSENTIAL: [&str; 4] = ["kernel", "engine", "access", "zones"];

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
    /// In a report.
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
    /// Its part is set where the parts come together.
    pub(super) fn new(name: &str, level: Level, found: impl Into<String>) -> Self {
        let (part, name, found) = (Part::Ring, name.to_owned(), found.into());
        Self { part, name, level, found, means: String::new(), remedy: None }
    }

    pub(super) fn means(mut self, means: impl Into<String>) -> Self {
        self.means = means.into();
        self
    }

    pub(super) fn remedy(self, what: impl Into<String>) -> Self {
        Self { remedy: Some(Remedy { what: what.into(), command: None }), ..self }
    }

    /// A remedy with a command for root.
    pub(super) fn root(self, what: impl Into<String>, line: impl Into<String>) -> Self {
        self.command(what.into(), By::Root, line.into())
    }

    /// A remedy with a command for the user.
    pub(super) fn user(self, what: impl Into<String>, line: impl Into<String>) -> Self {
        self.command(what.into(), By::User, line.into())
    }

    fn command(self, what: String, by: By, line: String) -> Self {
        Self { remedy: Some(Remedy { what, command: Some(Command { line, by }) }), ..self }
    }

    /// Whether nothing works for it.
    pub(super) fn stops_everything(&self) -> bool {
        self.level == Level::Missing && ESSENTIAL.contains(&self.name.as_str())
    }
}

pub(super) fn full(name: &str, found: impl Into<String>) -> Finding {
    Finding::new(name, Level::Full, found)
}

pub(super) fn degraded(name: &str, found: impl Into<String>) -> Finding {
    Finding::new(name, Level::Degraded, found)
}

pub(super) fn missing(name: &str, found: impl Into<String>) -> Finding {
    Finding::new(name, Level::Missing, found)
}

pub(super) fn unknown(name: &str, found: impl Into<String>) -> Finding {
    Finding::new(name, Level::NotKnown, found)
}

/// A word of a shell's line.
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
    fn only_what_is_essential_stops_everything() {
        let finding = |name, level| Finding::new(name, level, "");
        assert!(finding("engine", Level::Missing).stops_everything());
        assert!(!finding("engine", Level::Degraded).stops_everything());
        assert!(!finding("minimal wait", Level::Missing).stops_everything());
    }
}
