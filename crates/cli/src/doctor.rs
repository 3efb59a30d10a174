//! `forebay doctor`: prints its findings, and exits with a code for how well Forebay works there.

use std::path::Path;
use std::process::ExitCode;

use forebay_lab::doctor::{Strength, examine};
use forebay_lab::progress::Verbosity;

use crate::failure::Failure;
use crate::output::print;

/// How the findings are printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// Problems, and the number of passed checks.
    Text,
    /// Every check.
    Verbose,
    Json,
}

/// Looks at a place, and prints what was found.
pub(crate) fn doctor(path: &Path, form: Form) -> Result<ExitCode, Failure> {
    let report = examine(path).map_err(Failure::usage)?;
    print(&match form {
        Form::Text => report.text(Verbosity::Brief),
        Form::Verbose => report.text(Verbosity::Verbose),
        Form::Json => report.json(),
    })?;
    Ok(match report.strength {
        Strength::Full => ExitCode::SUCCESS,
        Strength::Degraded => ExitCode::from(1),
        Strength::None => ExitCode::from(2),
    })
}
