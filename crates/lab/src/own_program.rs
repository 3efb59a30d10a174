//! The program that runs a cell or serves an imitated disk: this one once more.

use std::io;
use std::path::PathBuf;

/// Names the program to start instead of the current one.
pub const PROGRAM_VARIABLE: &str = "FOREBAY_CELL_PROGRAM";

/// Returns the program to start.
pub(crate) fn own_program() -> io::Result<PathBuf> {
    match std::env::var_os(PROGRAM_VARIABLE) {
        Some(program) => Ok(PathBuf::from(program)),
        None => std::env::current_exe(),
    }
}
