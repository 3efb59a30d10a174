//! Where a mount is and what belongs to it: checks of the directories, and the files beside it.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use forebay_uring::mounts::{self, Mount};
use rustix::fs::{AtFlags, CWD, FlockOperation, StatxFlags, statx};
use rustix::io::Errno;

use crate::error::Error;

/// Begin of the names of mounts in the list of the system; the path of the source follows.
pub(crate) const NAME: &str = "forebay:";

/// Time for the end of a process whose mount has ended before.
const ENDING: Duration = Duration::from_secs(1);

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
    // A umask of the caller may have taken rights away.
    std::fs::set_permissions(&directory, Permissions::from_mode(0o700))
        .map_err(|error| Error::failed(&directory, "open the directory to this user", error))?;
    Ok(directory)
}

/// The directory that is mounted. It is locked, so that it is mounted once.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) lock: File,
    /// Begin of the names of its socket and of its saved data.
    beside: PathBuf,
}

impl Source {
    /// Locks the source. `is_served` returns whether a mount has a process: one that has died may
    /// hold the lock a moment longer.
    pub(crate) fn lock(path: &Path, is_served: impl Fn(&Mount) -> bool) -> Result<Self, Error> {
        let failed = |what, error| failed(path, what, error);
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
        let begin = Instant::now();
        while let Err(error) = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            if error != Errno::WOULDBLOCK {
                return Err(failed("lock the source", error.into()));
            }
            let holder = mount_of(path);
            if begin.elapsed() > ENDING || holder.as_ref().is_some_and(&is_served) {
                return Err(mounted_already(path, holder));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let path = path.canonicalize().map_err(|error| failed("find the source", error))?;
        let name = format!("mount-{:x}-{:x}", found.dev(), found.ino());
        Ok(Self { path, lock, beside: runtime_directory()?.join(name) })
    }

    /// Returns the path of the keeper's socket. A later mount adopts the files there.
    pub(crate) fn keeper(&self) -> PathBuf {
        self.beside.with_extension("keeper")
    }

    /// Returns the directory where the keeper saves data that it cannot write.
    pub(crate) fn saved(&self) -> PathBuf {
        self.beside.with_extension("saved")
    }
}

/// The name of the mount of a source in the list of the system.
pub(crate) fn name_of(source: &Path) -> String {
    // A comma would begin another option, and a backslash change the next byte.
    format!("{NAME}{}", source.display()).replace([',', '\\'], "_")
}

/// The visible mount of a source.
fn mount_of(source: &Path) -> Option<Mount> {
    let name = name_of(&source.canonicalize().ok()?);
    let mut all = Mount::all().ok()?.into_iter();
    all.find(|mount| is_ours(mount) && mount.source == Path::new(&name))
}

/// The error for a source that is locked.
fn mounted_already(path: &Path, mount: Option<Mount>) -> Error {
    match mount {
        Some(mount) => {
            let what = format!("is mounted already at {}", mount.point.display());
            Error::unsuitable(path, &what, "use that mount, or end it with `forebay unmount`")
        }
        None => Error::unsuitable(
            path,
            "is mounted already, by a mount that was detached or is not visible here",
            "it ends when no program uses it; else end its process",
        ),
    }
}

/// Checks the mount point, and returns its full path. Detaches a mount whose process has died.
pub(crate) fn mount_point(path: &Path, source: &Path) -> Result<PathBuf, Error> {
    let failed = |what, error| failed(path, what, error);
    while examine(path).is_err_and(|error| is_dead(&error)) {
        match find(path)? {
            Some(dead) if is_ours(&dead) => detach(&dead.point)
                .map_err(|error| failed("detach what a dead mount left there", error))?,
            _ => return Err(failed("find the mount point", Errno::NOTCONN.into())),
        }
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
    if let Some(entry) = entries.next() {
        let entry = entry.map_err(|error| failed("read the mount point", error))?;
        return Err(not_empty(path, &entry.file_name(), source));
    }
    check_device()?;
    Ok(full)
}

/// The error for a mount point with an entry of this name. Programs that went on after the end of a
/// mount may have made it, and a mount would hide it.
fn not_empty(path: &Path, name: &OsStr, source: &Path) -> Error {
    let name = Path::new(name).display();
    let what = format!("is not empty: programs may have written {name} while nothing was mounted");
    let remedy = format!(
        "move what is there to {} or elsewhere, and mount again; until then, `chattr +i {}` keeps \
         programs from writing there",
        source.display(),
        path.display()
    );
    Error::unsuitable(path, &what, &remedy)
}

/// Asks the file system of a path for its attributes, which the kernel may have known before.
pub(crate) fn examine(path: &Path) -> io::Result<()> {
    statx(CWD, path, AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS)?;
    Ok(())
}

/// Whether an error is that of a mount whose process has died.
fn is_dead(error: &io::Error) -> bool {
    // The second one while the process is on its way out.
    matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED))
}

/// Finds the mount whose mount point is this path.
pub(crate) fn find(path: &Path) -> Result<Option<Mount>, Error> {
    Mount::at(path).map_err(|error| failed(path, "find the mount point", error))
}

/// The error for a path that could not be used. Names the dead mount that it is inside of.
fn failed(path: &Path, step: &'static str, error: io::Error) -> Error {
    let full = std::path::absolute(path).ok().filter(|_| is_dead(&error));
    let above = full.iter().flat_map(|full| full.ancestors());
    match above.filter_map(|above| Mount::at(above).ok().flatten()).next() {
        Some(dead) => {
            let at = dead.point.display();
            let inside = if path == dead.point { String::new() } else { format!("in {at}, ") };
            let what = format!("is {inside}a mount whose process has died");
            let by = if is_ours(&dead) { "forebay unmount" } else { "umount -l" };
            Error::unsuitable(path, &what, &format!("`{by}` detaches that mount"))
        }
        None => Error::failed(path, step, error),
    }
}

/// Whether a mount is one of forebay.
pub(crate) fn is_ours(mount: &Mount) -> bool {
    mount.file_system.starts_with("fuse")
        && mount.source.as_os_str().as_encoded_bytes().starts_with(NAME.as_bytes())
}

/// Returns the mount point of a file system that is mounted inside of a mount.
pub(crate) fn inside(mount: &Mount) -> Option<PathBuf> {
    let mut points = Mount::all().unwrap_or_default().into_iter().map(|other| other.point);
    points.find(|point| point.starts_with(&mount.point) && *point != mount.point)
}

/// Returns the present mount point of a mount, unless it was unmounted: a directory above it may
/// have been renamed.
pub(crate) fn present(mount: &Mount) -> io::Result<Option<PathBuf>> {
    let found = Mount::numbered(mount.number)?;
    let found =
        found.filter(|found| (found.device, &found.source) == (mount.device, &mount.source));
    let Some(found) = found else { return Ok(None) };
    match Mount::at(&found.point)? {
        Some(uppermost) if uppermost.number == mount.number => Ok(Some(found.point)),
        _ => Err(io::Error::other(OVER)),
    }
}

/// Why a mount is not where the table has it.
const OVER: &str = "another file system is mounted over it";

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

/// Number of a mounted file system. The kernel may give it to another one after an unmount.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct MountNumber(u64);

impl MountNumber {
    /// Returns the number of the mounted file system that a descriptor was opened in.
    pub(crate) fn of(file: &impl AsFd) -> io::Result<Self> {
        mounts::number_of(file).map(Self)
    }

    /// Flushes the file system, unless it was unmounted since: that has flushed it. Finds it by its
    /// number, because a directory above it may have been renamed.
    pub(crate) fn flush(self) -> io::Result<()> {
        let Some(found) = Mount::numbered(self.0)? else { return Ok(()) };
        let opened = File::open(&found.point)?;
        if Self::of(&opened)? != self {
            return Err(io::Error::other(OVER));
        }
        Ok(rustix::fs::syncfs(&opened)?)
    }
}

/// Removes a mount from the tree, even if programs use it: they get errors from then on.
pub(crate) fn detach(full: &Path) -> io::Result<()> {
    match rustix::mount::unmount(full, rustix::mount::UnmountFlags::DETACH) {
        Err(Errno::PERM) => by_helper(full, "-uz"),
        done => Ok(done?),
    }
}

/// Unmounts, unless programs use the mount.
pub(crate) fn unmount(full: &Path) -> io::Result<()> {
    match rustix::mount::unmount(full, rustix::mount::UnmountFlags::NOFOLLOW) {
        Err(Errno::PERM) => by_helper(full, "-u"),
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

    fn lock(path: &Path) -> Result<Source, Error> {
        Source::lock(path, |_| true)
    }

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
        let not_empty = refused(&other);
        let says = ["is not empty", "written file while", &format!("to {}", full.display())];
        assert!(says.iter().all(|part| not_empty.contains(part)), "{not_empty}");
        assert!(refused(&other.join("file")).contains("is not a directory"));
        assert!(refused(&other.join("missing")).contains("could not find the mount point"));
        let file = lock(&other.join("file")).unwrap_err();
        assert!(file.is_unsuitable() && file.to_string().contains("is not a directory"), "{file}");
        let missing = lock(&other.join("missing")).unwrap_err();
        assert!(missing.to_string().contains("No such file"), "{missing}");
    }

    #[test]
    fn a_source_is_mounted_once_and_not_from_memory() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let first = lock(directory.path()).unwrap();
        let second = lock(directory.path()).unwrap_err().to_string();
        assert!(second.contains("is mounted already"), "{second}");
        drop(first);
        lock(directory.path()).unwrap();
        let memory = lock(Path::new("/dev/shm")).unwrap_err().to_string();
        assert!(memory.contains("is in memory"), "{memory}");
    }
}
