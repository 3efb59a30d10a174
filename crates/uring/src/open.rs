//! Opening a file: who made it, what it may do, and never blocking on somebody's lease.
//!
//! The kernel does not tell whether an open with `O_CREAT` made the file, so the exclusive open
//! comes first and the plain one after it; the answer decides whose directory entry must be made
//! durable. `O_DIRECT` is never asked for here: an open that is refused for it has already created
//! the file.
//!
//! A block device is opened exclusively, for reading too: a device that is mounted, or that
//! somebody else holds so, is refused, and it cannot be mounted while we have it.
//!
//! An open that would break somebody's lease asks without blocking, which tells the holder, and
//! asks again, ever more slowly, until its patience ends.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FileType, Mode as Permissions, OFlags, Stat};
use rustix::io::Errno;

use crate::file::File;

/// Time that [`File::open`] waits for another program to release its lease on the file.
pub const LEASE_PATIENCE: Duration = Duration::from_secs(5);

/// Access mode of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// Read only.
    Read,
    /// Read and write.
    ReadWrite,
}

/// Whether opening creates a missing file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Create {
    /// Fails if the file is missing.
    No,
    /// Creates the file if it is missing.
    IfMissing,
    /// Creates the file, and fails if it exists.
    New,
}

/// Whether opening truncates the file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Truncate {
    /// Keeps the content.
    Keep,
    /// Truncates the file to length 0. To lock the file first, keep the content and call
    /// [`File::truncate`].
    Cut,
}

/// Options for opening a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct How {
    /// Access mode of the descriptor.
    pub access: Access,
    /// Whether to create a missing file.
    pub create: Create,
    /// Whether to truncate the file.
    pub truncate: Truncate,
    /// Permission bits of a created file, before the umask.
    pub mode: u32,
}

/// Result of opening a file.
#[derive(Debug)]
pub struct Opened {
    /// The file.
    pub file: File,
    /// Whether this call created it.
    pub created: bool,
}

/// The directory whose flush makes a file's entry durable.
#[derive(Debug)]
pub(crate) enum Directory {
    /// None: the file was there already, and its entry is not known to be new.
    NotNeeded,
    /// This one.
    Kept(OwnedFd),
    /// Unknown, or not readable: the whole file system is synced instead.
    Unreadable,
}

/// Opens, and tells whether this call made the file.
pub(crate) fn descriptor(path: &Path, how: &How, deadline: Instant) -> io::Result<(OwnedFd, bool)> {
    let access = match how.access {
        Access::Read => OFlags::RDONLY,
        Access::ReadWrite => OFlags::RDWR,
    };
    let flags = access | OFlags::CLOEXEC | OFlags::NOCTTY;
    let new = || {
        let permissions = Permissions::from_raw_mode(how.mode);
        rustix::fs::open(path, flags | OFlags::CREATE | OFlags::EXCL, permissions)
    };
    match how.create {
        Create::New => Ok((new()?, true)),
        Create::No => Ok((open_existing(path, flags, deadline)?, false)),
        Create::IfMissing => loop {
            match new() {
                Ok(descriptor) => return Ok((descriptor, true)),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            match open_existing(path, flags, deadline) {
                // A symbolic link that names nothing: its target is made through it.
                Err(error) if error.kind() == io::ErrorKind::NotFound && is_link(path) => {
                    let permissions = Permissions::from_raw_mode(how.mode);
                    return Ok((
                        rustix::fs::open(path, flags | OFlags::CREATE, permissions)?,
                        true,
                    ));
                }
                // Removed between the two calls.
                Err(error)
                    if error.kind() == io::ErrorKind::NotFound && Instant::now() < deadline => {}
                result => return Ok((result?, false)),
            }
        },
    }
}

/// Opens what is there; asks again, ever more slowly, while somebody holds a lease.
fn open_existing(path: &Path, flags: OFlags, deadline: Instant) -> io::Result<OwnedFd> {
    let mut pause = Duration::from_millis(1);
    loop {
        let expected = rustix::fs::stat(path).is_ok_and(|status| is_device(&status));
        // Exclusive, without `O_CREAT`, refuses a device that is mounted or held so by another.
        let how = if expected { OFlags::EXCL } else { OFlags::NONBLOCK };
        match rustix::fs::open(path, flags | how, Permissions::empty()) {
            // The path may name something else by now.
            Ok(descriptor) if is_device(&rustix::fs::fstat(&descriptor)?) == expected => {
                return Ok(descriptor);
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if Instant::now() + pause < deadline => {
                thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(50));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn is_device(status: &Stat) -> bool {
    FileType::from_raw_mode(status.st_mode).is_block_device()
}

fn is_link(path: &Path) -> bool {
    rustix::fs::lstat(path).is_ok_and(|status| FileType::from_raw_mode(status.st_mode).is_symlink())
}

/// The directory a new file's name is in, kept open so that a later rename of it changes nothing.
pub(crate) fn keep_directory(path: &Path) -> Directory {
    let real = if is_link(path) { path.canonicalize() } else { Ok(path.to_owned()) };
    let parent = real.map(|real| match real.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    });
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match parent.and_then(|parent| Ok(rustix::fs::open(parent, flags, Permissions::empty())?)) {
        Ok(directory) => Directory::Kept(directory),
        Err(error) => {
            tracing::debug!(%error, path = %path.display(), "the directory cannot be opened");
            Directory::Unreadable
        }
    }
}
