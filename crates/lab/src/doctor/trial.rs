//! Trials on a new file without a name in the place.
//!
//! The nameless file (`O_TMPFILE`) is opened a second time by its number, as an engine opens files;
//! on a file system without such files it has a name for that moment. The trials are the calls of
//! an engine: direct I/O, the lease, space beyond the end, the mark.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_uring::{
    Access, Alignment, Coverage, Create, Direct, How, LeaseWatch, OpenFile, Truncate,
};
use rustix::fs::{Mode, OFlags};

const RESERVED_BYTES: u64 = 1 << 20;

/// Begin of the names of files that have one for a moment.
const PREFIX: &str = ".forebay-doctor-";

#[derive(Debug)]
pub(super) struct Trial {
    pub(super) direct: Direct,
    pub(super) alignment: Alignment,
    pub(super) lease: io::Result<()>,
    pub(super) coverage: Coverage,
    pub(super) reserve: io::Result<()>,
    pub(super) mark: io::Result<()>,
}

impl Trial {
    /// Makes a file in a directory and tries all on it. Nothing stays.
    ///
    /// # Errors
    /// The place, and the message of the system, if no file can be made.
    pub(super) fn in_directory(directory: &Path) -> Result<Self, String> {
        let file = open_new(directory)
            .map_err(|error| format!("no file can be made in {}: {error}", directory.display()))?;
        Ok(Self {
            direct: file.direct().clone(),
            alignment: file.alignment(),
            lease: lease(&file),
            coverage: file.lease_coverage(),
            reserve: file.allocate(RESERVED_BYTES, RESERVED_BYTES),
            mark: file
                .set_reservation_mark(RESERVED_BYTES)
                .and_then(|()| file.remove_reservation_mark()),
        })
    }
}

/// Makes a file that is removed when it is closed.
fn open_new(directory: &Path) -> io::Result<OpenFile> {
    const NO_NAMELESS: [i32; 3] = [libc::EOPNOTSUPP, libc::EISDIR, libc::ENOENT];
    match nameless(directory) {
        // The first descriptor is closed: a lease requires that there is only one.
        Ok(first) => open(&PathBuf::from(format!("/proc/self/fd/{}", first.as_raw_fd()))),
        Err(error) if error.raw_os_error().is_some_and(|errno| NO_NAMELESS.contains(&errno)) => {
            let named = tempfile::Builder::new().prefix(PREFIX).tempfile_in(directory)?;
            open(&named.into_temp_path())
        }
        Err(error) => Err(error),
    }
}

fn nameless(directory: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR)?)
}

fn open(path: &Path) -> io::Result<OpenFile> {
    let (create, truncate) = (Create::No, Truncate::Keep);
    let how = How { access: Access::ReadWrite, create, truncate, mode: 0 };
    OpenFile::open_within(path, &how, Duration::ZERO).map(|opened| opened.file)
}

/// Takes a write lease and gives it back.
fn lease(file: &OpenFile) -> io::Result<()> {
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
        println!("{:?}", Trial::in_directory(directory.path()).unwrap());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        let refused = Trial::in_directory(Path::new("/proc")).unwrap_err();
        assert!(refused.starts_with("no file can be made in /proc"), "{refused}");
    }
}
