//! How wide lines for a person may be, and warnings.

use std::io::{self, Write};
use std::os::fd::AsFd;

use rustix::termios::{isatty, tcgetwinsize};

/// The most columns that any message takes.
pub const WIDTH: usize = 80;

/// Terminals are never taken to be narrower.
const LEAST: usize = 40;

/// Columns of a terminal, at most [`WIDTH`]; none if this is no terminal.
pub fn columns(of: impl AsFd) -> Option<usize> {
    let of = of.as_fd();
    if !isatty(of) {
        return None;
    }
    // A terminal that does not know its width reports 0.
    let columns = tcgetwinsize(of).map_or(0, |size| usize::from(size.ws_col));
    Some(if columns == 0 { WIDTH } else { columns.clamp(LEAST, WIDTH) })
}

/// Prints a warning. Not by `eprintln!`: it panics where nobody reads, and this may run in a panic.
pub(crate) fn warn(what: &str) {
    let _ = writeln!(io::stderr(), "forebay: {what}");
}
