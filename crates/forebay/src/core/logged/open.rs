//! Opening of the log of a directory by an engine: made if it is missing, and recovered.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use forebay_log::{Mark, NAME};

use crate::core::base::{LogUse, OpenLog};
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::intent_log::create::create;
use crate::core::intent_log::file::LogFile;
use crate::core::intent_log::recover::{Ask, Fate, Recovery, recover_log};
use crate::platform::OpenDirectory;

/// Time to wait for another engine, or a recovery, that holds the log.
const PATIENCE: Duration = Duration::from_secs(5);

/// Opens the log of a directory, and puts the records of an earlier engine into their files.
/// Blocks. `held` are the marks of files that the engine takes over from a keeper.
///
/// # Errors
/// As [`recover`](crate::core::intent_log::recover::recover); `Open` if records are left that may
/// not be put into their files, and the error of the file system if no log can be made.
pub(crate) fn open(directory: &Path, blocks: u64, how: LogUse, held: &[Mark]) -> Result<OpenLog> {
    let mut file = match LogFile::open(directory, PATIENCE)? {
        Some(file) => file,
        None => {
            create(directory, blocks)?;
            let made = LogFile::open(directory, PATIENCE)?;
            made.ok_or_else(|| {
                let what = "another program removed the intent log while it was opened";
                Error::new(ErrorKind::NotFound, what).at_path(directory)
            })?
        }
    };
    if file.is_read_only() {
        let what = "cannot write an intent log on a read-only file system";
        return Err(Error::new(ErrorKind::Unsupported, what)
            .at_path(file.path())
            .remedy("mount the file system read-write"));
    }
    let recovery = recover_log(&mut file, directory, &Ask::default(), held)?;
    if !recovery.is_empty {
        return Err(left(&file, recovery));
    }
    // The process that made the log may have died before its name was durable.
    let synced = OpenDirectory::open(directory).and_then(|opened| {
        opened.sync().inspect_err(|_| {
            // The next flush would end well without the name. The log is empty: another is made.
            let _ = opened.remove(OsStr::new(NAME));
        })
    });
    synced.map_err(|error| {
        let what = "could not make the name of the intent log durable";
        Error::new(ErrorKind::at_device(&error), what).at_path(file.path()).because(error)
    })?;
    let recovered = recovery.files.iter().filter(|file| file.bytes > 0);
    for file in recovered {
        tracing::info!(path = %file.path.display(), bytes = file.bytes, "put back from the log");
    }
    Ok(OpenLog { file, directory: directory.to_owned(), how })
}

/// Returns the error for records that stay in the log.
fn left(log: &LogFile, recovery: Recovery) -> Error {
    let count = recovery.files.len();
    let left = recovery.files.into_iter().find_map(|file| match file.fate {
        Fate::Skipped { reason, saved: None } => Some((file.path, reason)),
        Fate::Kept(error) => Some((file.path, error.to_string())),
        _ => None,
    });
    let (path, reason) = left.unwrap_or_else(|| (log.path().to_owned(), "unknown".to_owned()));
    let what = format!(
        "the intent log has records of {count} files, and not all of them can be put back: {}: \
         {reason}",
        path.display()
    );
    Error::new(ErrorKind::Open, what)
        .at_path(log.path())
        .remedy("run `forebay recover --save DIRECTORY` on the directory of the log")
}
