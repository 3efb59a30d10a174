//! Results go to standard output, or to a file; where nobody reads, that is no failure.

use std::io::{self, ErrorKind, Write};
use std::path::Path;

use forebay_lab::progress;
use forebay_lab::schema::Document;

use crate::failure::Failure;

/// Prints a result. A closed pipe (`| head`) has read what it wanted.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::failed(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes a message to standard error, in lines of at most 80 columns.
pub(crate) fn say(message: &str) {
    progress::to_stderr(message);
}

/// A writer to standard error that ignores errors, as [`say`] does.
#[derive(Debug)]
pub(crate) struct Beside;

impl Write for Beside {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().write_all(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a result where `--json` wants it.
pub(crate) fn write_json(document: &Document, path: &Path) -> Result<(), Failure> {
    document.write(path).map_err(|error| {
        let path = path.display();
        Failure::failed(format!("cannot write {path}: {error}; give --json a writable path"))
    })
}
