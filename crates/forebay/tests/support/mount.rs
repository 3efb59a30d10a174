//! File systems of a test's own, on loop devices over sparse images: made, mounted, cut off from
//! their device, mounted again, and removed even if the test fails.
//!
//! Each device is set to detach at its unmount as soon as it is mounted, so that even a killed test
//! run leaves no device that is attached to nothing.

use std::ffi::OsStr;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use super::{eventually, made_by_root, process};

/// A file system and how it is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileSystem {
    /// XFS with 16 allocation groups; each has to hold the log, so 2 GiB at least.
    Xfs,
    /// XFS with four of them, so that one is soon full.
    XfsOfFour,
    /// XFS too large for its inodes' numbers to have 32 bits, and mounted so that they have: inodes
    /// are in the first groups, and data in all. The image is sparse.
    XfsInode32,
    /// XFS of four with blocks of 1 KiB.
    XfsSmallBlocks,
    /// ext4. A small one has blocks of 1 KiB.
    Ext4,
    /// ext4 with blocks of a page.
    Ext4Pages,
    /// ext4 without a journal.
    Ext4WithoutJournal,
    /// ext4 that journals data, and so refuses direct I/O.
    Ext4Journal,
    /// btrfs, for its quotas.
    Btrfs,
}

impl FileSystem {
    /// The program that makes one.
    pub(crate) fn maker(self) -> &'static str {
        match self {
            FileSystem::Xfs
            | FileSystem::XfsOfFour
            | FileSystem::XfsInode32
            | FileSystem::XfsSmallBlocks => "mkfs.xfs",
            FileSystem::Ext4
            | FileSystem::Ext4Pages
            | FileSystem::Ext4WithoutJournal
            | FileSystem::Ext4Journal => "mkfs.ext4",
            FileSystem::Btrfs => "mkfs.btrfs",
        }
    }

    /// Makes one in an image.
    pub(crate) fn make_on(self, image: &Path) {
        let options: &[&str] = match self {
            FileSystem::Xfs => &["-q", "-f", "-d", "agcount=16"],
            FileSystem::XfsOfFour => &["-q", "-f", "-d", "agcount=4"],
            FileSystem::XfsInode32 => &["-q", "-f", "-d", "agcount=9", "-l", "size=64m"],
            FileSystem::XfsSmallBlocks => &["-q", "-f", "-d", "agcount=4", "-b", "size=1024"],
            FileSystem::Ext4 | FileSystem::Ext4Journal => &["-q", "-F", "-m", "0"],
            FileSystem::Ext4Pages => &["-q", "-F", "-m", "0", "-b", "4096"],
            FileSystem::Ext4WithoutJournal => &["-q", "-F", "-m", "0", "-O", "^has_journal"],
            FileSystem::Btrfs => &["-q", "-f"],
        };
        let arguments = options.iter().map(OsStr::new).chain([image.as_os_str()]);
        process::run(self.maker(), &arguments.collect::<Vec<_>>()).unwrap();
    }
}

/// Runs a test on a new file system, or in the directory of the build if it cannot be mounted.
pub(crate) fn on(test: &str, file_system: FileSystem, run: impl FnOnce(&str, &Path)) {
    match Mount::new(test, file_system, 2 << 30) {
        Some(mount) => run(&format!("{test} on {file_system:?}"), &mount.path()),
        None => run(&format!("{test} in the build directory"), super::directory().path()),
    }
}

/// A mounted file system; unmounted and removed when dropped.
#[derive(Debug)]
pub(crate) struct Mount {
    /// Holds the image and the mount point.
    directory: TempDir,
    file_system: FileSystem,
    is_mounted: bool,
}

impl Mount {
    /// Makes one. Returns `None`, and prints the reason, if that is not possible. In continuous
    /// integration as root it must be possible.
    pub(crate) fn new(test: &str, file_system: FileSystem, bytes: u64) -> Option<Self> {
        made_by_root(test, "mount a file system", || Self::make(file_system, bytes))
    }

    fn make(file_system: FileSystem, bytes: u64) -> Result<Self, String> {
        let directory = super::directory();
        let mut mount = Self { directory, file_system, is_mounted: false };
        std::fs::create_dir(mount.path()).unwrap();
        std::fs::File::create(mount.image()).unwrap().set_len(bytes).unwrap();
        if !process::exists(file_system.maker()) {
            return Err(format!("there is no {}", file_system.maker()));
        }
        file_system.make_on(&mount.image());
        mount.mount()?;
        Ok(mount)
    }

    /// Where it is mounted.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("mounted")
    }

    fn image(&self) -> PathBuf {
        self.directory.path().join("image")
    }

    /// Cuts the file system off as a loss of power would: nothing reaches the device from here on,
    /// not even its journal.
    pub(crate) fn cut_off(&self) {
        // _IOR('X', 125, u32); the numbers are XFS's, and ext4 has taken them over.
        const SHUTDOWN: libc::c_ulong = 0x8004_587d;
        let no_log_flush: u32 = 2;
        let root = std::fs::File::open(self.path()).unwrap();
        // SAFETY: the command reads a number of 32 bits through the pointer, during the call.
        let result = unsafe { libc::ioctl(root.as_raw_fd(), SHUTDOWN, &raw const no_log_flush) };
        assert_eq!(result, 0, "shutting the file system down: {}", std::io::Error::last_os_error());
    }

    /// Blocks every write until the returned value is dropped. Earlier writes reach the device
    /// first.
    ///
    /// A process apart thaws it after [`THAWS_AFTER`], so that not even a killed test run leaves a
    /// frozen file system behind.
    pub(crate) fn freeze(&self) -> Frozen {
        Frozen::of(&self.path())
    }

    /// Unmounts and mounts again, as after a reboot.
    pub(crate) fn reboot(&mut self) {
        self.unmount().unwrap();
        self.mount().unwrap();
    }

    /// Allocates all but `left` bytes of the free space.
    pub(crate) fn fill_but(&self, left: u64) {
        let free = rustix::fs::statvfs(self.path()).unwrap();
        let bytes = (free.f_bavail * free.f_frsize).saturating_sub(left);
        let filler = self.path().join("filler");
        std::fs::write(&filler, b"").unwrap();
        super::preallocate(&filler, 0, bytes);
        process::shell("sync -f \"$1\"", &self.path()).unwrap();
    }

    /// Makes it read-only.
    pub(crate) fn make_read_only(&self) {
        let path = self.path();
        let arguments = [OsStr::new("-o"), OsStr::new("remount,ro"), path.as_os_str()];
        process::run("mount", &arguments).unwrap();
    }

    /// The loop device's node.
    pub(crate) fn device(&self) -> PathBuf {
        device_of(&self.path())
    }

    fn mount(&mut self) -> Result<(), String> {
        let device = Loop::attach(&self.image())?;
        let options = match self.file_system {
            FileSystem::Ext4Journal => "data=journal",
            FileSystem::XfsInode32 => "inode32",
            _ => "rw",
        };
        let path = self.path();
        let arguments =
            [OsStr::new("-o"), OsStr::new(options), device.0.as_os_str(), path.as_os_str()];
        process::run("mount", &arguments)?;
        self.is_mounted = true;
        // Dropping the device detaches it, which while it is mounted means: as soon as it no longer
        // is.
        drop(device);
        Ok(())
    }

    fn unmount(&mut self) -> Result<(), String> {
        let path = self.path();
        let gone = |lazy: &[&str]| {
            let arguments: Vec<&OsStr> =
                lazy.iter().map(OsStr::new).chain([path.as_os_str()]).collect();
            process::run("umount", &arguments)
        };
        // A descriptor of a request that has just ended may be closed a moment late.
        if eventually(Duration::from_secs(5), || gone(&[]).is_ok()) {
            self.is_mounted = false;
            return Ok(());
        }
        let error = gone(&[]).err().unwrap_or_default();
        gone(&["--lazy"])?;
        self.is_mounted = false;
        Err(error)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.is_mounted
            && let Err(error) = self.unmount()
            && !std::thread::panicking()
        {
            panic!("{}: {error}", self.path().display());
        }
    }
}

/// After this a frozen file system is thawed, even if the test was killed.
const THAWS_AFTER: Duration = Duration::from_secs(20);

/// A file system to which no write comes back; thawed when dropped.
#[derive(Debug)]
pub(crate) struct Frozen {
    root: std::fs::File,
    watchdog: Child,
}

impl Frozen {
    /// Freezes the file system that is mounted there.
    pub(crate) fn of(mounted: &Path) -> Self {
        // _IOWR('X', 119, i32); the next one thaws.
        const FREEZE: libc::c_ulong = 0xc004_5877;
        let root = std::fs::File::open(mounted).unwrap();
        let line = format!("sleep {}; fsfreeze --unfreeze \"$1\"", THAWS_AFTER.as_secs());
        let watchdog = Command::new("/bin/sh")
            .args(["-c", &line, "sh"])
            .arg(mounted)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self::set(&root, FREEZE).unwrap();
        Self { root, watchdog }
    }

    fn set(root: &std::fs::File, command: libc::c_ulong) -> std::io::Result<()> {
        // SAFETY: the command takes no memory.
        let result = unsafe { libc::ioctl(root.as_raw_fd(), command, 0) };
        if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        const THAW: libc::c_ulong = 0xc004_5878;
        let thawed = Self::set(&self.root, THAW);
        let group = libc::pid_t::try_from(self.watchdog.id()).unwrap();
        // SAFETY: takes numbers; the group is our child's, which is not waited for yet.
        unsafe { libc::kill(-group, libc::SIGKILL) };
        let _ = self.watchdog.wait();
        if !std::thread::panicking() {
            thawed.unwrap();
        }
    }
}

/// The node of the device that is mounted somewhere.
pub(crate) fn device_of(path: &Path) -> PathBuf {
    let arguments = ["-n", "-o", "SOURCE", "--mountpoint"].map(OsStr::new);
    let arguments: Vec<&OsStr> = arguments.into_iter().chain([path.as_os_str()]).collect();
    process::run("findmnt", &arguments).unwrap().into()
}

/// A loop device; detached when dropped.
#[derive(Debug)]
pub(crate) struct Loop(pub(crate) PathBuf);

impl Loop {
    pub(crate) fn attach(image: &Path) -> Result<Self, String> {
        let arguments = [OsStr::new("--find"), OsStr::new("--show"), image.as_os_str()];
        Ok(Self(process::run("losetup", &arguments)?.into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let detached = process::run("losetup", &[OsStr::new("--detach"), self.0.as_os_str()]);
        if let Err(error) = detached
            && !std::thread::panicking()
        {
            panic!("{error}");
        }
    }
}

/// A file system without a device, such as `ramfs`; unmounted when dropped.
#[derive(Debug)]
pub(crate) struct Memory(TempDir);

impl Memory {
    /// Mounts one of `kind`. Returns `None`, and prints the reason, if that is not possible.
    pub(crate) fn new(test: &str, kind: &str) -> Option<Self> {
        made_by_root(test, "mount a file system", || {
            let memory = tempfile::tempdir().unwrap();
            let kinds =
                [OsStr::new("-t"), OsStr::new(kind), OsStr::new(kind), memory.path().as_os_str()];
            process::run("mount", &kinds)?;
            Ok(Self(memory))
        })
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let gone = || process::run("umount", &[self.0.path().as_os_str()]).is_ok();
        if !eventually(Duration::from_secs(5), gone) {
            let _ = process::run("umount", &[OsStr::new("--lazy"), self.0.path().as_os_str()]);
        }
    }
}
