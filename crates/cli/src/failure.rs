//! A failure of the program: one sentence with the remedy, and an exit code.

use std::io::{self, Write};
use std::process::ExitCode;

use forebay_lab::terminal;
use forebay_lab::text::folded_to;

/// Why the program fails.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// Invalid arguments, or not possible on this machine: exit code 2.
    Usage(String),
    /// Something went wrong: exit code 1.
    Failed(String),
    /// A signal ended it: exit code 130. Says in what state the files are.
    Interrupted(&'static str),
}

impl Failure {
    /// Invalid arguments, or not possible on this machine.
    pub(crate) fn usage(what: impl ToString) -> Self {
        Self::Usage(what.to_string())
    }

    /// Something that went wrong.
    pub(crate) fn failed(what: impl ToString) -> Self {
        Self::Failed(what.to_string())
    }

    /// Writes the sentence to standard error and returns the exit code. In a pipe it is one line,
    /// so that a search finds it.
    pub(crate) fn report(&self) -> ExitCode {
        let (line, code) = match self {
            Failure::Usage(what) => (what.clone(), 2),
            Failure::Failed(what) => (what.clone(), 1),
            Failure::Interrupted(files) => (format!("interrupted; {files}"), 130),
        };
        let line = format!("forebay: {}", line.replace('\n', " "));
        let line = match terminal::columns(io::stderr()) {
            Some(width) => folded_to(width, &line).join("\n"),
            None => line,
        };
        let _ = writeln!(io::stderr(), "{line}");
        ExitCode::from(code)
    }
}
