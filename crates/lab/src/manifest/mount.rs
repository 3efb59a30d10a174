//! The file system a directory is on, and the device below it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_uring::FreeSpace;
use forebay_uring::mounts::Mount;
use rustix::fs::{major, makedev, minor, statvfs};
use serde::{Deserialize, Serialize};

use super::machine::word;
use crate::chosen::chosen;

/// Where files are.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Storage {
    pub file_system: String,
    pub device: String,
    pub mount_point: PathBuf,
    pub options: String,
    pub block_bytes: u64,
    pub free_bytes: u64,
    pub total_bytes: u64,
    pub queue: Option<Queue>,
    pub free_extents: Option<u64>,
    pub mean_free_extent_bytes: Option<u64>,
}

/// The block device below a file system, and how it queues its requests.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Queue {
    pub name: String,
    pub model: Option<String>,
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
}

/// Longest examination of the free space.
const TIME_FOR_FREE_SPACE: Duration = Duration::from_secs(1);

/// Settings of a queue that change figures.
const SETTINGS: [&str; 21] = [
    "scheduler",
    "nr_requests",
    "write_cache",
    "logical_block_size",
    "physical_block_size",
    "max_sectors_kb",
    "rotational",
    "nomerges",
    "rq_affinity",
    "read_ahead_kb",
    "wbt_lat_usec",
    "io_poll",
    "iostats",
    "fua",
    "dax",
    "zoned",
    "stable_writes",
    "minimum_io_size",
    "optimal_io_size",
    "max_segments",
    "discard_granularity",
];

/// Mount options that name users and machines.
const PRIVATE: [&str; 8] =
    ["addr", "clientaddr", "mountaddr", "username", "user", "domain", "ip", "source"];

impl Storage {
    /// Returns the storage below `directory`.
    pub fn of(directory: &Path) -> Self {
        let mount = Mount::of(directory).ok().flatten();
        let mut storage = mount.map_or_else(Self::default, |mount| Self {
            file_system: mount.file_system,
            device: mount.source.to_string_lossy().into_owned(),
            mount_point: mount.point,
            options: mount.options,
            ..Self::default()
        });
        if let Ok(space) = statvfs(directory) {
            storage.block_bytes = space.f_frsize;
            storage.free_bytes = space.f_bavail.saturating_mul(space.f_frsize);
            storage.total_bytes = space.f_blocks.saturating_mul(space.f_frsize);
        }
        storage.queue = device_number(&storage.device, directory).and_then(Queue::of);
        storage
    }

    /// Returns the percentage in use, if it has a size.
    pub fn used_percent(&self) -> Option<u64> {
        (self.total_bytes.saturating_sub(self.free_bytes) * 100).checked_div(self.total_bytes)
    }

    /// Adds the pieces of the free space. Blocks for about a second on a large file system, whose
    /// pieces then stay unknown.
    pub fn with_free_space(mut self) -> Self {
        let found = File::open(&self.mount_point)
            .and_then(|root| FreeSpace::of(&root, TIME_FOR_FREE_SPACE));
        if let Some(space) = found.ok().filter(|space| space.looked_until.is_none()) {
            assert!(space.pieces <= space.bytes, "{space:?}: a piece has no bytes");
            self.free_extents = Some(space.pieces);
            self.mean_free_extent_bytes = space.bytes.checked_div(space.pieces);
        }
        self
    }

    /// Removes the names of other machines, and of users.
    pub fn without_names(mut self) -> Self {
        if let Some((_, path)) =
            self.device.split_once(':').filter(|_| !self.device.starts_with('/'))
        {
            self.device = format!("server:{path}");
        } else if self.device.starts_with("//") {
            self.device = "//server".to_owned();
        }
        let options = self.options.split(',').map(|option| match option.split_once('=') {
            Some((name, _)) if PRIVATE.contains(&name) => format!("{name}=..."),
            _ => option.to_owned(),
        });
        self.options = options.collect::<Vec<_>>().join(",");
        self
    }

    /// Returns whether files have large folios in the page cache, or `None` if that is not known.
    /// The kernel does not report it; it follows from its release and the file system.
    pub fn has_large_folios(&self, release: &str) -> Option<bool> {
        let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
        let version = (numbers.next()?, numbers.next()?);
        match self.file_system.as_str() {
            "xfs" => Some(version >= (5, 18)),
            "ext4" => {
                let journals_data = self.options.split(',').any(|one| one == "data=journal");
                Some(version >= (6, 16) && !journals_data)
            }
            _ => None,
        }
    }

    /// Returns it in words, as `ext4 on /dev/vda`.
    pub fn heading(&self) -> String {
        match (self.file_system.as_str(), self.device.as_str()) {
            ("", _) => "an unknown file system".to_owned(),
            (kind, device) if device.starts_with('/') || device.contains(':') => {
                format!("{kind} on {device}")
            }
            (kind, _) => kind.to_owned(),
        }
    }
}

/// Returns the device number of the file system that a directory is on.
pub(crate) fn device_of(directory: &Path) -> Option<u64> {
    device_number(&Mount::of(directory).ok()??.source, directory)
}

/// Returns the number of a file system in `/proc/locks` and traces; 0 if unknown. On btrfs `stat`
/// returns another, that of the subvolume.
pub(crate) fn file_system_number(path: &Path) -> u64 {
    let mounted = Mount::of(path).ok().flatten();
    mounted
        .map(|mount| makedev(mount.device.0, mount.device.1))
        .or_else(|| fs::metadata(path).ok().map(|data| data.dev()))
        .unwrap_or_default()
}

/// Returns the directory in `/sys` of the disk that a block device is or is a part of, or that a
/// file or directory lies on. None without a disk of its own.
pub(crate) fn disk_of(path: &Path) -> Option<PathBuf> {
    let data = fs::metadata(path).ok()?;
    let is_device = data.file_type().is_block_device();
    disk_directory(Path::new("/"), if is_device { data.rdev() } else { device_of(path)? })
}

/// Returns the directory of the queue of the disk of [`disk_of`], which has the settings of its
/// requests.
pub(crate) fn queue_directory_of(path: &Path) -> Option<PathBuf> {
    Some(disk_of(path)?.join("queue")).filter(|queue| queue.is_dir())
}

/// Returns the directory of a disk, by the number of it or of a partition of it. `root` has `sys`.
pub(crate) fn disk_directory(root: &Path, device: u64) -> Option<PathBuf> {
    let link = format!("sys/dev/block/{}:{}", major(device), minor(device));
    let mut directory = fs::canonicalize(root.join(link)).ok()?;
    if !directory.join("queue").is_dir() {
        // A partition: the queue is its disk's.
        directory.pop();
    }
    Some(directory)
}

impl Queue {
    fn of(device: u64) -> Option<Self> {
        let directory = disk_directory(Path::new("/"), device)?;
        let queue = Some(directory.join("queue")).filter(|queue| queue.is_dir())?;
        let setting =
            |name: &&str| Some(((*name).to_owned(), chosen(&word(queue.join(name))?).to_owned()));
        Some(Self {
            name: directory.file_name()?.to_string_lossy().into_owned(),
            model: word(directory.join("device/model")),
            settings: SETTINGS.iter().filter_map(setting).collect(),
        })
    }
}

/// Returns the number of a mounted device; on btrfs the number of a file is not its device's.
pub(crate) fn device_number(mounted: impl AsRef<Path>, directory: &Path) -> Option<u64> {
    fs::metadata(mounted)
        .ok()
        .filter(|data| data.file_type().is_block_device())
        .map(|data| data.rdev())
        .or_else(|| fs::metadata(directory).ok().map(|data| data.dev()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings() {
        let heading = |file_system: &str, device: &str| {
            Storage { file_system: file_system.into(), device: device.into(), ..Storage::default() }
                .heading()
        };
        assert_eq!(heading("ext4", "/dev/vda"), "ext4 on /dev/vda");
        assert_eq!(heading("nfs4", "host:/export"), "nfs4 on host:/export");
        assert_eq!(heading("tmpfs", "none"), "tmpfs");
    }

    #[test]
    fn large_folios_follow_from_the_release_and_the_file_system() {
        let large = |file_system: &str, options: &str, release: &str| {
            let (file_system, options) = (file_system.into(), options.into());
            Storage { file_system, options, ..Storage::default() }.has_large_folios(release)
        };
        assert_eq!(large("xfs", "rw", "5.17.0"), Some(false));
        assert_eq!(large("xfs", "rw", "5.18-rc1"), Some(true));
        assert_eq!(large("ext4", "rw", "6.12.107+deb12-amd64"), Some(false));
        assert_eq!(large("ext4", "rw", "6.16"), Some(true));
        assert_eq!(large("ext4", "rw,data=journal", "6.18.44"), Some(false));
        assert_eq!(large("btrfs", "rw", "6.18.44"), None);
        assert_eq!(large("xfs", "rw", "unknown"), None);
    }

    #[test]
    fn whose_it_is_is_not_reported() {
        let storage = |device: &str, options: &str| {
            let storage =
                Storage { device: device.into(), options: options.into(), ..Storage::default() };
            let reported = storage.without_names();
            (reported.device, reported.options)
        };
        let reported = storage("nas.home:/export", "rw,vers=4.2,clientaddr=10.0.0.3,addr=10.0.0.2");
        assert_eq!(
            reported,
            ("server:/export".into(), "rw,vers=4.2,clientaddr=...,addr=...".into())
        );
        assert_eq!(storage("//nas/share", "rw,username=me").1, "rw,username=...");
        assert_eq!(storage("/dev/vda", "rw,relatime"), ("/dev/vda".into(), "rw,relatime".into()));
    }
}
