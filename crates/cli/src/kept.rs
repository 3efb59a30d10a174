//! The last result, in the user's state directory: `forebay report --last` shows it.
//!
//! The directory is `$XDG_STATE_HOME/forebay`, or `~/.local/state/forebay`. A result that cannot be
//! kept is no failure: the comparison itself is complete.

use std::env;
use std::fs;
use std::path::PathBuf;

use forebay_lab::schema::Document;

use crate::failure::Failure;

const LAST: &str = "last.json";

/// Keeps a result. Returns the command that shows it; none if it was not kept.
pub(crate) fn keep(document: &Document) -> Option<String> {
    let directory = directory()?;
    fs::create_dir_all(&directory).ok()?;
    document.write(&directory.join(LAST)).ok()?;
    Some("forebay report --last".to_owned())
}

/// The result that was kept last.
pub(crate) fn last() -> Result<Document, Failure> {
    let Some(directory) = directory() else {
        return Err(Failure::usage(
            "--last: neither XDG_STATE_HOME nor HOME is set, so no result was kept; give the FILE of --json",
        ));
    };
    let path = directory.join(LAST);
    if !path.exists() {
        return Err(Failure::usage(format!(
            "--last: no result in {}; run `forebay compare` first",
            directory.display()
        )));
    }
    crate::report::read(&path)
}

fn directory() -> Option<PathBuf> {
    let absolute =
        |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state =
        absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join("forebay"))
}
