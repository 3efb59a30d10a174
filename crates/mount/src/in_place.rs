//! Calls that need a path of an object, although only an `O_PATH` descriptor of it exists.
//!
//! `/proc/self/fd/N` is such a path. The kernel makes an inode for each new N there, which costs
//! more than most of these calls. So each thread has one N, and puts the descriptor there for the
//! call:
//!
//! ```text
//! descriptor --dup3--> N of this thread --call with the path of N--> result
//!                      N <--dup3-- directory, because N would keep a removed object
//! ```

use std::cell::RefCell;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::{DupFlags, Result, dup3, fcntl_dupfd_cloexec};
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::path::DecInt;

thread_local! {
    /// The descriptor of this thread, with its path.
    static PLACE: RefCell<Option<(OwnedFd, PathBuf)>> = const { RefCell::new(None) };
}

/// Returns a path of the file of a descriptor, which is valid while that is open.
pub(crate) fn path_of(file: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Returns the name of the file at the path of a descriptor.
pub(crate) fn named(path: &Path) -> PathBuf {
    std::fs::read_link(path).unwrap_or_else(|_| path.into())
}

/// Returns the directory of the descriptors of this process.
fn own_descriptors() -> Result<BorrowedFd<'static>> {
    static DIRECTORY: OnceLock<OwnedFd> = OnceLock::new();
    if let Some(directory) = DIRECTORY.get() {
        return Ok(directory.as_fd());
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = openat(CWD, c"/proc/self/fd", flags, Mode::empty())?;
    Ok(DIRECTORY.get_or_init(|| opened).as_fd())
}

/// Calls with the descriptor of this thread, which is that of an object for the call, and its path.
fn in_place<T>(
    object: BorrowedFd<'_>,
    call: impl FnOnce(BorrowedFd<'_>, &Path) -> Result<T>,
) -> Result<T> {
    let nothing = own_descriptors()?;
    PLACE.with_borrow_mut(|place| {
        let (descriptor, path) = match place {
            Some(place) => place,
            None => {
                let descriptor = fcntl_dupfd_cloexec(nothing, 0)?;
                let path = path_of(descriptor.as_fd());
                place.insert((descriptor, path))
            }
        };
        dup3(object, descriptor, DupFlags::CLOEXEC)?;
        let done = call(descriptor.as_fd(), path);
        dup3(nothing, descriptor, DupFlags::CLOEXEC)?;
        done
    })
}

/// Opens an object.
pub(crate) fn open(object: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd> {
    let directory = own_descriptors()?;
    in_place(object, |descriptor, _| {
        openat(directory, DecInt::from_fd(descriptor), flags, Mode::empty())
    })
}

/// Calls with a path of an object.
pub(crate) fn at_path<T>(
    object: BorrowedFd<'_>,
    call: impl FnOnce(&Path) -> Result<T>,
) -> Result<T> {
    in_place(object, |_, path| call(path))
}

/// Opens the file of a descriptor again, with `O_PATH`: not by its name, which may be another
/// file's by now.
pub(crate) fn path_only(file: BorrowedFd<'_>) -> Result<OwnedFd> {
    let flags = OpenTreeFlags::AT_EMPTY_PATH | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    // Containers may forbid this call.
    open_tree(file, c"", flags).or_else(|_| open(file, OFlags::PATH | OFlags::CLOEXEC))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_by_path_reaches_the_object_and_keeps_nothing_open() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, b"text").unwrap();
        let object = openat(CWD, &path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        std::fs::rename(&path, directory.path().join("other")).unwrap();
        let inode = rustix::fs::fstat(&object).unwrap().st_ino;
        for _ in 0..2 {
            let opened = open(object.as_fd(), OFlags::RDONLY | OFlags::CLOEXEC).unwrap();
            assert_eq!(rustix::fs::fstat(&opened).unwrap().st_ino, inode);
            let found = at_path(object.as_fd(), |path| rustix::fs::stat(path)).unwrap();
            assert_eq!(found.st_ino, inode);
            let again = path_only(opened.as_fd()).unwrap();
            assert_eq!(rustix::fs::fstat(&again).unwrap().st_ino, inode);
        }
        PLACE.with_borrow(|place| {
            let (descriptor, _) = place.as_ref().unwrap();
            assert_ne!(rustix::fs::fstat(descriptor).unwrap().st_ino, inode);
        });
    }
}
