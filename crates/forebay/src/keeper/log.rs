//! What a keeper says: a line for each thing, to the file that was given or to standard error. It says nothing while the
//! program it stands by lives.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Where it goes.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// None: standard error.
    file: Option<File>,
}

impl Log {
    /// To a file, behind what is in it.
    pub(crate) fn to(path: Option<&Path>) -> io::Result<Self> {
        let open = |path| OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        Ok(Self { file: path.map(open).transpose()? })
    }

    /// Says one thing. Whoever does not let it be said does not stop anything.
    pub(crate) fn say(&self, what: fmt::Arguments<'_>) {
        let process = std::process::id();
        let _ = match &self.file {
            Some(file) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let line = format!(
                    "{}.{:03} forebay-keeper[{process}]: {what}\n",
                    now.as_secs(),
                    now.subsec_millis()
                );
                (&*file).write_all(line.as_bytes())
            }
            None => io::stderr().write_all(format!("forebay-keeper[{process}]: {what}\n").as_bytes()),
        };
    }
}
