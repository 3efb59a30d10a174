//! Disks that lose, fail and hang, on a stock kernel without a device mapper.
//!
//! ```text
//! image <-- nbdkit: cache, written to the image at a flush; errors while a file is there
//!              ^-- nbdfuse: the device as a file <-- loop device <-- file system, mounted
//! ```
//!
//! The cache is in the server's memory (a file without a name), so killing the server is a loss of
//! power: unflushed data is gone, and data of a flush in progress is there in part. The next server
//! shows the remaining data. A stopped server is a device that hangs: no request ends, and none can
//! be cancelled.

use std::ffi::OsStr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use super::mount::{FileSystem, Loop};
use super::{eventually, made_by_root, process};

/// How long a server may take to start, or a mount to go.
const SOON: Duration = Duration::from_secs(20);

/// Requests that fail while the disk is set to fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fails {
    /// Writes, with `EIO`: nothing gets as far as the disk's cache.
    Writes,
    /// Flushes, with `EIO`: writes are taken into the cache, and cannot be brought to the medium.
    /// The disk keeps them, and flushes them when it is well again.
    Flushes,
    /// Reads, with `EIO`, of what [`Disk::forget`] has dropped.
    Reads,
}

/// A disk with a file system on it, mounted.
#[derive(Debug)]
pub(crate) struct Disk {
    /// Holds the image, the socket and both mount points.
    directory: TempDir,
    file_system: FileSystem,
    fails: Fails,
    server: Option<Server>,
    is_mounted: bool,
}

impl Disk {
    /// Makes one. Returns `None`, and prints the reason, if that is not possible. In continuous
    /// integration as root it must be possible.
    pub(crate) fn new(
        test: &str,
        file_system: FileSystem,
        bytes: u64,
        fails: Fails,
    ) -> Option<Self> {
        made_by_root(test, "mount a file system", || Self::make(file_system, bytes, fails))
    }

    fn make(file_system: FileSystem, bytes: u64, fails: Fails) -> Result<Self, String> {
        for program in ["nbdkit", "nbdfuse", "losetup", file_system.maker()] {
            if !process::exists(program) {
                return Err(format!("there is no {program}"));
            }
        }
        let directory = super::directory();
        let mut disk = Self { directory, file_system, fails, server: None, is_mounted: false };
        std::fs::create_dir(disk.path()).unwrap();
        std::fs::File::create(disk.image()).unwrap().set_len(bytes).unwrap();
        file_system.make_on(&disk.image());
        disk.power_on()?;
        Ok(disk)
    }

    /// Where it is mounted.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("mounted")
    }

    /// The loop device's node.
    pub(crate) fn device(&self) -> PathBuf {
        super::mount::device_of(&self.path())
    }

    /// Whether requests are at the device.
    pub(crate) fn is_busy(&self) -> bool {
        let device = self.device();
        let name = device.file_name().unwrap();
        let counts =
            std::fs::read_to_string(Path::new("/sys/block").join(name).join("inflight")).unwrap();
        counts.split_whitespace().any(|count| count != "0")
    }

    fn image(&self) -> PathBuf {
        self.directory.path().join("image")
    }

    /// Makes requests fail until [`Disk::heal`]. The file system writes its own data first, so that
    /// a short failure affects file data alone.
    pub(crate) fn fail(&self) {
        process::shell("sync -f \"$1\"", &self.path()).unwrap();
        self.fail_when_thawed();
    }

    /// As [`Disk::fail`], on a disk that hangs: its pending requests fail.
    pub(crate) fn fail_when_thawed(&self) {
        std::fs::File::create(self.directory.path().join("failing")).unwrap();
    }

    /// Drops the device's content from the page cache between the loop device and the server, so
    /// that reads go to the server. Nothing may be dirty.
    pub(crate) fn forget(&self) {
        let device = &self.server.as_ref().expect("the power is on").device;
        let file = std::fs::File::open(device).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }

    /// Requests succeed again.
    pub(crate) fn heal(&self) {
        let _ = std::fs::remove_file(self.directory.path().join("failing"));
    }

    /// From now on no request ends, until [`Disk::thaw`].
    pub(crate) fn freeze(&self) {
        self.server.as_ref().expect("the power is on").signal(libc::SIGSTOP);
    }

    /// Requests end again.
    pub(crate) fn thaw(&self) {
        self.server.as_ref().expect("the power is on").signal(libc::SIGCONT);
    }

    /// Cuts the power: unflushed data is lost. The file system stays mounted, over a device that is
    /// gone.
    pub(crate) fn cut_power(&mut self) {
        drop(self.server.take());
    }

    /// The power is back: the file system is mounted again, from what the disk has kept.
    pub(crate) fn reboot(&mut self) {
        self.cut_power();
        self.unmount().unwrap();
        self.heal();
        self.power_on().unwrap();
    }

    fn power_on(&mut self) -> Result<(), String> {
        let server = Server::start(self.directory.path(), self.fails)?;
        let device = Loop::attach(&server.device)?;
        let path = self.path();
        let arguments = [device.0.as_os_str(), path.as_os_str()];
        process::run("mount", &arguments)?;
        self.is_mounted = true;
        self.server = Some(server);
        // Detaches it, which while it is mounted means: as soon as it no longer is.
        drop(device);
        Ok(())
    }

    fn unmount(&mut self) -> Result<(), String> {
        let path = self.path();
        let gone = || process::run("umount", &[path.as_os_str()]);
        // A descriptor of a request that has just ended may be closed a moment late.
        if self.is_mounted && !eventually(SOON, || gone().is_ok()) {
            let error = gone().err().unwrap_or_default();
            process::run("umount", &[OsStr::new("--lazy"), path.as_os_str()])?;
            self.is_mounted = false;
            return Err(error);
        }
        self.is_mounted = false;
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Pending requests end, with or without success, and the unmount can go on.
        self.cut_power();
        if let Err(error) = self.unmount()
            && !std::thread::panicking()
        {
            panic!("{}: {error}", self.path().display());
        }
    }
}

/// The same without a file system: the device itself, which has nothing but data to fail with.
#[derive(Debug)]
pub(crate) struct Bare {
    device: Loop,
    _server: Server,
    /// Holds the image and the socket.
    directory: TempDir,
}

impl Bare {
    /// Makes one with writes that fail on request. Returns `None` as [`Disk::new`] does.
    pub(crate) fn new(test: &str, bytes: u64) -> Option<Self> {
        made_by_root(test, "attach a device", || {
            for program in ["nbdkit", "nbdfuse", "losetup"] {
                if !process::exists(program) {
                    return Err(format!("there is no {program}"));
                }
            }
            let directory = super::directory();
            std::fs::File::create(directory.path().join("image")).unwrap().set_len(bytes).unwrap();
            let server = Server::start(directory.path(), Fails::Writes)?;
            Ok(Self { device: Loop::attach(&server.device)?, _server: server, directory })
        })
    }

    /// Its node.
    pub(crate) fn path(&self) -> &Path {
        &self.device.0
    }

    /// From now on no write succeeds.
    pub(crate) fn fail(&self) {
        std::fs::File::create(self.directory.path().join("failing")).unwrap();
    }
}

/// The two servers of a device; killed when dropped.
#[derive(Debug)]
struct Server {
    server: Child,
    file: Child,
    mount_point: PathBuf,
    /// The device, as a file.
    device: PathBuf,
}

impl Server {
    fn start(directory: &Path, fails: Fails) -> Result<Self, String> {
        let mount_point = directory.join("device");
        let _ = std::fs::create_dir(&mount_point);
        let socket = directory.join("socket");
        let _ = std::fs::remove_file(&socket);
        let log = directory.join("log");
        // The first filter is the outermost: errors in front of the cache hit writes, behind it
        // flushes.
        let filters = match fails {
            Fails::Writes | Fails::Reads => ["--filter=error", "--filter=cache"],
            Fails::Flushes => ["--filter=cache", "--filter=error"],
        };
        let server = Command::new("nbdkit")
            .args(["--foreground", "--exit-with-parent", "--unix"])
            .arg(&socket)
            .args(filters)
            .arg("file")
            .arg(directory.join("image"))
            .args(["cache=writeback", "cache-min-block-size=4096"])
            .arg("error=EIO")
            .args(match fails {
                Fails::Reads => &["error-pread-rate=100%"][..],
                Fails::Writes | Fails::Flushes => {
                    &["error-pwrite-rate=100%", "error-zero-rate=100%", "error-trim-rate=100%"]
                }
            })
            .arg(format!("error-file={}", directory.join("failing").display()))
            .env("TMPDIR", directory)
            .stdin(Stdio::null())
            // The server writes a line for each error that it injects.
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn();
        let mut server = server.map_err(|error| format!("nbdkit: {error}"))?;
        // The socket exists a moment before the server listens.
        let listens = eventually(SOON, || UnixStream::connect(&socket).is_ok());
        let device = mount_point.join("disk");
        let file = Command::new("nbdfuse")
            .arg(&device)
            .arg("--unix")
            .arg(&socket)
            .stdin(Stdio::null())
            // It has no good word for a server that dies.
            .stderr(Stdio::null())
            .spawn();
        let file =
            file.map_err(|error| format!("nbdfuse: {error}")).inspect_err(|_| end(&mut server))?;
        let started = Self { server, file, mount_point, device };
        if !listens || !eventually(SOON, || started.device.exists()) {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            return Err(format!("nbdkit and nbdfuse show no device; is there /dev/fuse? {said}"));
        }
        Ok(started)
    }

    fn signal(&self, signal: libc::c_int) {
        let server = libc::pid_t::try_from(self.server.id()).unwrap();
        // SAFETY: the process is our child, and not waited for yet.
        let result = unsafe { libc::kill(server, signal) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.server);
        end(&mut self.file);
        let gone = || process::run("umount", &[self.mount_point.as_os_str()]).is_ok();
        // The loop device may hold it a moment longer.
        if !gone() {
            let _ = process::run("umount", &[OsStr::new("--lazy"), self.mount_point.as_os_str()]);
        }
    }
}

fn end(child: &mut Child) {
    // It may have ended already.
    let _ = child.kill();
    let _ = child.wait();
}
