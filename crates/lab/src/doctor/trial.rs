//! A new file without a name in the place. The checks try on it what an engine does: direct I/O,
//! the lease, space beyond the end, the mark.
//!
//! The nameless file (`O_TMPFILE`) is opened a second time by its number, as an engine opens files;
//! on a file system without such files it has a name for that moment.

use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use forebay_uring::{Access, Create, How, LeaseWatch, OpenFile, Truncate};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Begin of the names of files that have one for a moment.
const PREFIX: &str = ".forebay-doctor-";

/// Makes a file in a directory. It is gone when it is closed.
///
/// # Errors
/// The place, and the message of the system, if no file can be made.
pub(super) fn file_in(directory: &Path) -> Result<OpenFile, String> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let made = match rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR) {
        // The first descriptor is closed: a lease requires that there is only one.
        Ok(first) => open(Path::new(&format!("/proc/self/fd/{}", first.as_raw_fd()))),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT) => {
            let named = tempfile::Builder::new().prefix(PREFIX).tempfile_in(directory);
            named.and_then(|named| open(&named.into_temp_path()))
        }
        Err(error) => Err(error.into()),
    };
    made.map_err(|error| format!("no file can be made in {}: {error}", directory.display()))
}

fn open(path: &Path) -> io::Result<OpenFile> {
    let (create, truncate) = (Create::No, Truncate::Keep);
    let how = How { access: Access::ReadWrite, create, truncate, mode: 0 };
    OpenFile::open_within(path, &how, Duration::ZERO).map(|opened| opened.file)
}

/// Takes a write lease and gives it back.
pub(super) fn lease(file: &OpenFile) -> io::Result<()> {
    let watch = LeaseWatch::new(|_| {})?;
    file.try_lease(&watch, 0)?;
    file.release_lease();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        drop(file_in(directory.path()).unwrap());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        let refused = file_in(Path::new("/proc")).err().unwrap();
        assert!(refused.starts_with("no file can be made in /proc"), "{refused}");
    }
}
