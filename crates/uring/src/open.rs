//! Opening a file: whether it was created, its access, and never blocking on somebody's lease.
//!
//! The kernel does not report whether an open with `O_CREAT` made the file, so the exclusive open
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

use crate::file::OpenFile;

/// Time that [`OpenFile::open`] waits for another program to release its lease on the file.
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
    /// As `New`, for a file that gets its name later: its directory is never flushed for it.
    Temporary,
}

/// Whether opening truncates the file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Truncate {
    /// Keeps the content.
    Keep,
    /// Truncates the file to length 0. To lock the file first, keep the content and call
    /// [`OpenFile::truncate`].
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
    pub file: OpenFile,
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

/// Descriptor of a file that was just opened.
pub(crate) struct Descriptor {
    pub(crate) descriptor: OwnedFd,
    /// Whether this call created the file.
    pub(crate) created: bool,
    /// Whether it was opened without blocking, which the descriptor keeps.
    pub(crate) is_nonblocking: bool,
    /// Whether the last part of its path may be a symbolic link.
    pub(crate) may_be_link: bool,
}

/// Opens a file.
pub(crate) fn descriptor(path: &Path, how: &How, deadline: Instant) -> io::Result<Descriptor> {
    let access = match how.access {
        Access::Read => OFlags::RDONLY,
        Access::ReadWrite => OFlags::RDWR,
    };
    let flags = access | OFlags::CLOEXEC | OFlags::NOCTTY;
    let new = || {
        let permissions = Permissions::from_raw_mode(how.mode);
        let descriptor =
            rustix::fs::open(path, flags | OFlags::CREATE | OFlags::EXCL, permissions)?;
        // An exclusive open follows no link.
        Ok(Descriptor { descriptor, created: true, is_nonblocking: false, may_be_link: false })
    };
    match how.create {
        Create::New | Create::Temporary => Ok(new()?),
        Create::No => open_existing(path, flags, deadline),
        Create::IfMissing => loop {
            match new() {
                Ok(opened) => return Ok(opened),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            match open_existing(path, flags, deadline) {
                // A symbolic link that names nothing: its target is made through it.
                Err(error) if error.kind() == io::ErrorKind::NotFound && is_link(path) => {
                    let permissions = Permissions::from_raw_mode(how.mode);
                    let descriptor = rustix::fs::open(path, flags | OFlags::CREATE, permissions)?;
                    return Ok(Descriptor {
                        descriptor,
                        created: true,
                        is_nonblocking: false,
                        may_be_link: true,
                    });
                }
                // Removed between the two calls.
                Err(error)
                    if error.kind() == io::ErrorKind::NotFound && Instant::now() < deadline => {}
                result => return result,
            }
        },
    }
}

/// Opens what is there; asks again, ever more slowly, while somebody holds a lease.
fn open_existing(path: &Path, flags: OFlags, deadline: Instant) -> io::Result<Descriptor> {
    let mut pause = Duration::from_millis(1);
    loop {
        let expected = rustix::fs::stat(path).is_ok_and(|status| is_device(&status));
        // Exclusive, without `O_CREAT`, refuses a device that is mounted or held so by another.
        let how = if expected { OFlags::EXCL } else { OFlags::NONBLOCK };
        match rustix::fs::open(path, flags | how, Permissions::empty()) {
            // The path may name something else by now.
            Ok(descriptor) if is_device(&rustix::fs::fstat(&descriptor)?) == expected => {
                return Ok(Descriptor {
                    descriptor,
                    created: false,
                    is_nonblocking: !expected,
                    may_be_link: true,
                });
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
pub(crate) fn keep_directory(path: &Path, may_be_link: bool) -> Directory {
    let real = if may_be_link && is_link(path) { path.canonicalize() } else { Ok(path.to_owned()) };
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
