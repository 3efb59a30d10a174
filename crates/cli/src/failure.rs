//! How the program ends when it does not end well: one line with the remedy, and a code.

use std::io::Write;
use std::process::ExitCode;

/// It did not end well.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Failure {
    /// What was typed cannot be meant, or not here.
    Usage(String),
    /// It went wrong.
    Failed(String),
    /// The user ended it; what became of the files.
    Interrupted(&'static str),
}

impl Failure {
    /// Something typed that cannot be meant.
    pub(crate) fn usage(what: impl ToString) -> Self {
        Self::Usage(what.to_string())
    }

    /// Something that went wrong.
    pub(crate) fn failed(what: impl ToString) -> Self {
        Self::Failed(what.to_string())
    }

    /// Says it on standard error, where somebody may read it, and gives the code.
    pub(crate) fn tell(&self) -> ExitCode {
        let (line, code) = match self {
            Failure::Usage(what) => (what.clone(), 2),
            Failure::Failed(what) => (what.clone(), 1),
            Failure::Interrupted(files) => (format!("interrupted; {files}"), 130),
        };
        let _ = writeln!(std::io::stderr(), "forebay: {}", line.replace('\n', " "));
        ExitCode::from(code)
    }
}
