//! The file system a directory is on, and the device below it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use forebay_uring::mounts::Mount;
use rustix::fs::{major, makedev, minor, statvfs};
use serde::{Deserialize, Serialize};

use super::machine::word;
use super::space::Space;
use crate::chosen::chosen;

/// Where files are.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Storage {
    /// Type of the file system, as `mount` calls it.
    pub file_system: String,
    /// The mounted thing, mostly a device.
    pub device: String,
    pub mount_point: PathBuf,
    pub options: String,
    pub block_bytes: u64,
    /// Bytes an ordinary user may still write.
    pub free_bytes: u64,
    pub total_bytes: u64,
    /// The block device; none where the file system has none of its own.
    pub queue: Option<Queue>,
    /// How it was made and how its free space lay, if examined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space: Option<Space>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Queue {
    pub name: String,
    pub model: Option<String>,
    pub scheduler: Option<String>,
    /// Requests that may wait.
    pub nr_requests: Option<u64>,
    /// `write back` or `write through`.
    pub write_cache: Option<String>,
    /// Smallest unit it addresses.
    pub logical_block_bytes: Option<u64>,
    /// Smallest unit it writes without reading.
    pub physical_block_bytes: Option<u64>,
    pub max_request_kib: Option<u64>,
    /// Whether it says it has a disk that turns.
    pub rotational: Option<bool>,
    #[serde(default)]
    pub hardware_queues: Option<u64>,
    /// More of how it is set, by the kernel's names.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
}

/// Settings of a queue that change figures and have no field of their own.
const SETTINGS: [&str; 14] = [
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

/// Options of a mount that say who, not how.
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

    /// The share of it that is in use, in percent; none of nothing.
    pub fn used_percent(&self) -> Option<u64> {
        (self.total_bytes.saturating_sub(self.free_bytes) * 100).checked_div(self.total_bytes)
    }

    /// Adds the answers of the file system's programs, which takes a moment.
    pub fn looked_into(mut self) -> Self {
        self.space = Some(Space::of(&self));
        self
    }

    /// The same without the names of other machines, and of users.
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

    /// As `ext4 on /dev/vda`.
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

/// Where the kernel shows and sets how the device under a directory queues its requests. None where
/// the directory is on no block device of its own.
pub(crate) fn queue_directory(directory: &Path) -> Option<PathBuf> {
    Some(disk_of(directory)?.join("queue")).filter(|queue| queue.is_dir())
}

/// Where the kernel shows the disk that the file system of a directory is on, if that has one of
/// its own.
pub(crate) fn disk_of(directory: &Path) -> Option<PathBuf> {
    disk_directory(device_of(directory)?)
}

/// The number of the device that the file system of a directory is on.
pub(crate) fn device_of(directory: &Path) -> Option<u64> {
    device_number(&Mount::of(directory).ok()??.source, directory)
}

/// Number of a file system in `/proc/locks` and traces. On btrfs `stat` returns another, that of
/// the subvolume. 0 if unknown.
pub(crate) fn file_system_number(path: &Path) -> u64 {
    let mounted = Mount::of(path).ok().flatten();
    mounted
        .map(|mount| makedev(mount.device.0, mount.device.1))
        .or_else(|| fs::metadata(path).ok().map(|data| data.dev()))
        .unwrap_or_default()
}

/// Where it shows the disk that a block device is, or is a part of.
pub(crate) fn disk_of_device(device: &Path) -> Option<PathBuf> {
    disk_directory(fs::metadata(device).ok()?.rdev())
}

/// The same for a block device itself, or for what a file lies on.
pub(crate) fn queue_directory_of(path: &Path) -> Option<PathBuf> {
    let data = fs::metadata(path).ok()?;
    if !data.file_type().is_block_device() {
        return queue_directory(path);
    }
    Some(disk_directory(data.rdev())?.join("queue")).filter(|queue| queue.is_dir())
}

/// Where the kernel shows a disk, by the number of it or of a partition of it.
fn disk_directory(device: u64) -> Option<PathBuf> {
    let link = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    let mut directory = fs::canonicalize(link).ok()?;
    if !directory.join("queue").is_dir() {
        // A partition: the queue is its disk's.
        directory.pop();
    }
    Some(directory)
}

impl Queue {
    fn of(device: u64) -> Option<Self> {
        let directory = disk_directory(device)?;
        let read = |name: &str| word(directory.join(name).to_str()?);
        let number = |name: &str| read(name)?.parse::<u64>().ok();
        directory.join("queue").is_dir().then(|| Self {
            name: directory.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            model: read("device/model"),
            scheduler: read("queue/scheduler").map(|list| chosen(&list).to_owned()),
            nr_requests: number("queue/nr_requests"),
            write_cache: read("queue/write_cache"),
            logical_block_bytes: number("queue/logical_block_size"),
            physical_block_bytes: number("queue/physical_block_size"),
            max_request_kib: number("queue/max_sectors_kb"),
            rotational: number("queue/rotational").map(|flag| flag == 1),
            hardware_queues: fs::read_dir(directory.join("mq"))
                .ok()
                .map(|queues| queues.count() as u64),
            settings: SETTINGS
                .iter()
                .filter_map(|name| Some(((*name).to_owned(), read(&format!("queue/{name}"))?)))
                .collect(),
        })
    }
}

/// The device by its mount; on btrfs the number of a file is not its device's.
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
    fn whose_it_is_is_not_told() {
        let storage = |device: &str, options: &str| {
            let storage =
                Storage { device: device.into(), options: options.into(), ..Storage::default() };
            let told = storage.without_names();
            (told.device, told.options)
        };
        let told = storage("nas.home:/export", "rw,vers=4.2,clientaddr=10.0.0.3,addr=10.0.0.2");
        assert_eq!(told, ("server:/export".into(), "rw,vers=4.2,clientaddr=...,addr=...".into()));
        assert_eq!(storage("//nas/share", "rw,username=me").1, "rw,username=...");
        assert_eq!(storage("/dev/vda", "rw,relatime"), ("/dev/vda".into(), "rw,relatime".into()));
    }
}
