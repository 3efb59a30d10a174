//! Where a mount is and what belongs to it: checks of the directories, and the files beside it.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use procfs::process::{MountInfo, Process};
use rustix::fs::{AtFlags, FlockOperation, StatxFlags, statx};

use crate::error::Error;

/// Begin of the names of mounts in the list of the system; the path of the source follows.
pub(crate) const NAME: &str = "forebay:";

/// Magic numbers of file systems in memory (`statfs(2)`).
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// The directory for sockets and logs of mounts: of the system for root, else of the user. It is
/// created, and belongs to this user alone.
///
/// # Errors
/// If it cannot be created, or belongs to somebody else.
pub fn runtime_directory() -> Result<PathBuf, Error> {
    let user = rustix::process::geteuid();
    let directory = match std::env::var_os("XDG_RUNTIME_DIR") {
        _ if user.is_root() => PathBuf::from("/run/forebay"),
        Some(of_user) => Path::new(&of_user).join("forebay"),
        None => PathBuf::from(format!("/tmp/forebay-{}", user.as_raw())),
    };
    let made = DirBuilder::new().mode(0o700).create(&directory);
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(Error::failed(&directory, "create the directory", error));
        }
        _ => {}
    }
    let found = std::fs::symlink_metadata(&directory)
        .map_err(|error| Error::failed(&directory, "examine the directory", error))?;
    if !found.is_dir() || found.uid() != user.as_raw() {
        let what = "is not a directory of this user";
        return Err(Error::unsuitable(&directory, what, "remove it"));
    }
    Ok(directory)
}

/// The directory that is mounted. It is locked, so that it is mounted once.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) lock: File,
    /// Begin of the names of its socket and log.
    beside: PathBuf,
}

impl Source {
    pub(crate) fn lock(path: &Path) -> Result<Self, Error> {
        let failed = |what, error| Error::failed(path, what, error);
        let lock = File::open(path).map_err(|error| failed("open the source", error))?;
        let found = lock.metadata().map_err(|error| failed("examine the source", error))?;
        if !found.is_dir() {
            let remedy = "name a directory; a file can be used through its directory";
            return Err(Error::unsuitable(path, "is not a directory", remedy));
        }
        let kind = rustix::fs::fstatfs(&lock)
            .map_err(|error| failed("examine the source", error.into()))?
            .f_type;
        if IN_MEMORY.contains(&(kind.cast_unsigned())) {
            let what = "is in memory (tmpfs), so nothing of it can be durable";
            return Err(Error::unsuitable(path, what, "name a directory on a disk"));
        }
        if let Err(error) = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            return Err(match error {
                rustix::io::Errno::WOULDBLOCK => Error::unsuitable(
                    path,
                    "is mounted already",
                    "use that mount, or end it with `forebay unmount`",
                ),
                error => failed("lock the source", error.into()),
            });
        }
        let path = path.canonicalize().map_err(|error| failed("find the source", error))?;
        let name = format!("mount-{:x}-{:x}", found.dev(), found.ino());
        Ok(Self { path, lock, beside: runtime_directory()?.join(name) })
    }

    /// Returns the path of the keeper's socket. A later mount adopts the files there.
    pub(crate) fn keeper(&self) -> PathBuf {
        self.beside.with_extension("keeper")
    }
}

/// Checks the mount point, and returns its full path. Detaches a mount whose process has died.
pub(crate) fn mount_point(path: &Path, source: &Path) -> Result<PathBuf, Error> {
    let failed = |what, error| Error::failed(path, what, error);
    if path.metadata().is_err_and(|error| error.raw_os_error() == Some(libc::ENOTCONN)) {
        let full = full_path(path)?;
        detach(&full).map_err(|error| failed("detach what a dead mount left there", error))?;
    }
    let found = path.metadata().map_err(|error| failed("find the mount point", error))?;
    if !found.is_dir() {
        return Err(Error::unsuitable(path, "is not a directory", "name an empty directory"));
    }
    let full = path.canonicalize().map_err(|error| failed("find the mount point", error))?;
    if full.starts_with(source) {
        let what = "is inside of the source, or the source itself";
        return Err(Error::unsuitable(path, what, "name an empty directory elsewhere"));
    }
    if source.starts_with(&full) {
        let what = "contains the source, which would be hidden";
        return Err(Error::unsuitable(path, what, "name an empty directory elsewhere"));
    }
    let mut entries = full.read_dir().map_err(|error| failed("read the mount point", error))?;
    if entries.next().is_some() {
        return Err(Error::unsuitable(path, "is not empty", "name an empty directory"));
    }
    check_device()?;
    Ok(full)
}

/// Checks that FUSE is there for this process.
fn check_device() -> Result<(), Error> {
    let device = Path::new("/dev/fuse");
    let Err(error) = File::options().read(true).write(true).open(device) else { return Ok(()) };
    let (what, remedy) = match error.raw_os_error() {
        Some(libc::ENOENT) => (
            "does not exist",
            "load the kernel module (`modprobe fuse`); a container needs --device /dev/fuse",
        ),
        Some(libc::ENODEV | libc::ENXIO) => {
            ("has no driver", "load the kernel module (`modprobe fuse`)")
        }
        Some(libc::EACCES | libc::EPERM) => (
            "this process has no right to open it",
            "`chmod 666 /dev/fuse` lets users mount; a container needs --device /dev/fuse",
        ),
        _ => return Err(Error::failed(device, "open the device", error)),
    };
    Err(Error::unsuitable(device, what, remedy))
}

/// The full path of a mount point, found without a question to its file system, which may be dead.
pub(crate) fn full_path(path: &Path) -> Result<PathBuf, Error> {
    let failed = |error| Error::failed(path, "find the mount point", error);
    let full = std::path::absolute(path).map_err(failed)?;
    match (full.parent(), full.file_name()) {
        (Some(parent), Some(name)) => Ok(parent.canonicalize().map_err(failed)?.join(name)),
        _ => Ok(full),
    }
}

/// A mount in the list of the system.
#[derive(Debug)]
pub(crate) struct MountedThere {
    kind: String,
    name: String,
    /// Device number.
    pub(crate) device: String,
}

impl MountedThere {
    pub(crate) fn is_ours(&self) -> bool {
        self.kind.starts_with("fuse") && self.name.starts_with(NAME)
    }

    pub(crate) fn kind(&self) -> &str {
        &self.kind
    }
}

pub(crate) fn mounted_at(full: &Path) -> io::Result<Option<MountedThere>> {
    let mut found = mounts()?.filter(|mount| mount.mount_point == full);
    Ok(found.next_back().map(|mount| MountedThere {
        kind: mount.fs_type,
        name: mount.mount_source.unwrap_or_default(),
        device: mount.majmin,
    }))
}

/// Returns all mounted file systems, in the order of the table of this process.
fn mounts() -> io::Result<impl DoubleEndedIterator<Item = MountInfo>> {
    let process = Process::myself().map_err(io::Error::other)?;
    Ok(process.mountinfo().map_err(io::Error::other)?.into_iter())
}

/// Number of a mounted file system. The kernel may give it to another one after an unmount.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct MountNumber(u64);

impl MountNumber {
    /// Returns the number of the mounted file system that a descriptor was opened in.
    pub(crate) fn of(file: &impl AsFd) -> rustix::io::Result<Self> {
        let found = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
        Ok(Self(found.stx_mnt_id))
    }

    /// Flushes the file system, unless it was unmounted since: that has flushed it. Finds it by its
    /// number, because a directory above it may have been renamed.
    pub(crate) fn flush(self) -> io::Result<()> {
        let mut found = mounts()?.filter(|mount| u64::try_from(mount.mnt_id) == Ok(self.0));
        let Some(found) = found.next() else { return Ok(()) };
        let opened = File::open(&found.mount_point)?;
        if Self::of(&opened)? != self {
            return Err(io::Error::other("another file system is mounted over it"));
        }
        Ok(rustix::fs::syncfs(&opened)?)
    }
}

/// Removes a mount from the tree, even if programs use it: they get errors from then on.
pub(crate) fn detach(full: &Path) -> io::Result<()> {
    match rustix::mount::unmount(full, rustix::mount::UnmountFlags::DETACH) {
        Err(rustix::io::Errno::PERM) => by_helper(full, "-uz"),
        done => Ok(done?),
    }
}

/// Unmounts, unless programs use the mount.
pub(crate) fn unmount(full: &Path) -> io::Result<()> {
    match rustix::mount::unmount(full, rustix::mount::UnmountFlags::NOFOLLOW) {
        Err(rustix::io::Errno::PERM) => by_helper(full, "-u"),
        done => Ok(done?),
    }
}

/// Unmounts as an ordinary user.
fn by_helper(full: &Path, option: &str) -> io::Result<()> {
    let helper = std::process::Command::new("fusermount3").args([option, "--"]).arg(full).output();
    let output = helper.map_err(|error| {
        io::Error::new(error.kind(), format!("fusermount3 (package fuse3): {error}"))
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let is_busy = said.contains("busy");
    Err(if is_busy { io::Error::from_raw_os_error(libc::EBUSY) } else { io::Error::other(said) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsuitable_directories_are_refused_with_a_remedy() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let source = directory.path().join("source");
        let inside = source.join("inside");
        std::fs::create_dir_all(&inside).unwrap();
        let full = source.canonicalize().unwrap();
        let refused = |path: &Path| mount_point(path, &full).unwrap_err().to_string();
        assert!(refused(&inside).contains("is inside of the source"));
        assert!(refused(&source).contains("the source itself"));
        assert!(refused(directory.path()).contains("contains the source"));
        let other = directory.path().join("other");
        std::fs::create_dir(&other).unwrap();
        std::fs::write(other.join("file"), b"").unwrap();
        assert!(refused(&other).contains("is not empty"));
        assert!(refused(&other.join("file")).contains("is not a directory"));
        assert!(refused(&other.join("missing")).contains("could not find the mount point"));
        let file = Source::lock(&other.join("file")).unwrap_err();
        assert!(file.is_unsuitable() && file.to_string().contains("is not a directory"), "{file}");
        let missing = Source::lock(&other.join("missing")).unwrap_err();
        assert!(missing.to_string().contains("No such file"), "{missing}");
    }

    #[test]
    fn a_source_is_mounted_once_and_not_from_memory() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let first = Source::lock(directory.path()).unwrap();
        let second = Source::lock(directory.path()).unwrap_err().to_string();
        assert!(second.contains("is mounted already"), "{second}");
        drop(first);
        Source::lock(directory.path()).unwrap();
        let memory = Source::lock(Path::new("/dev/shm")).unwrap_err().to_string();
        assert!(memory.contains("is in memory"), "{memory}");
    }
}
