//! The file system a directory is on, and the device below it.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor, statvfs};
use serde::{Deserialize, Serialize};

use super::machine::word;

/// Where files are.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Storage {
    /// Type of the file system, as `mount` calls it.
    pub file_system: String,
    /// What is mounted: mostly a device.
    pub device: String,
    /// Where it is mounted.
    pub mount_point: PathBuf,
    /// Options, of the mount and of the file system.
    pub options: String,
    /// Size of a block of the file system.
    pub block_bytes: u64,
    /// Bytes an ordinary user may still write.
    pub free_bytes: u64,
    /// Size of the file system.
    pub total_bytes: u64,
    /// The block device; none where the file system has none of its own.
    pub queue: Option<Queue>,
}

/// A block device as the kernel sees it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Queue {
    /// Its name in `/sys/block`.
    pub name: String,
    /// Model, where the device tells.
    pub model: Option<String>,
    /// The scheduler in use.
    pub scheduler: Option<String>,
    /// Requests that may wait.
    pub nr_requests: Option<u64>,
    /// `write back` or `write through`.
    pub write_cache: Option<String>,
    /// Smallest unit it addresses.
    pub logical_block_bytes: Option<u64>,
    /// Smallest unit it writes without reading.
    pub physical_block_bytes: Option<u64>,
    /// Largest request.
    pub max_request_kib: Option<u64>,
    /// Whether it says it has a disk that turns.
    pub rotational: Option<bool>,
}

impl Storage {
    /// What `directory` is on.
    #[must_use]
    pub fn of(directory: &Path) -> Self {
        let mut storage = fs::read_to_string("/proc/thread-self/mountinfo")
            .ok()
            .and_then(|table| mount_of(&table, directory))
            .unwrap_or_default();
        if let Ok(space) = statvfs(directory) {
            storage.block_bytes = space.f_frsize;
            storage.free_bytes = space.f_bavail.saturating_mul(space.f_frsize);
            storage.total_bytes = space.f_blocks.saturating_mul(space.f_frsize);
        }
        storage.queue = device_number(&storage.device, directory).and_then(Queue::of);
        storage
    }

    /// As `ext4 on /dev/vda`.
    #[must_use]
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

/// Where the kernel shows and sets how the device under a directory queues its requests. None where the directory is
/// on no block device of its own.
pub(crate) fn queue_directory(directory: &Path) -> Option<PathBuf> {
    let table = fs::read_to_string("/proc/thread-self/mountinfo").ok()?;
    let mounted = mount_of(&table, directory)?;
    let disk = disk_directory(device_number(&mounted.device, directory)?)?;
    Some(disk.join("queue")).filter(|queue| queue.is_dir())
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
            scheduler: read("queue/scheduler").map(|list| chosen(&list)),
            nr_requests: number("queue/nr_requests"),
            write_cache: read("queue/write_cache"),
            logical_block_bytes: number("queue/logical_block_size"),
            physical_block_bytes: number("queue/physical_block_size"),
            max_request_kib: number("queue/max_sectors_kb"),
            rotational: number("queue/rotational").map(|flag| flag == 1),
        })
    }
}

/// The device by what is mounted; the number a file carries is no device's on btrfs.
pub(crate) fn device_number(mounted: &str, directory: &Path) -> Option<u64> {
    fs::metadata(mounted)
        .ok()
        .filter(|data| data.file_type().is_block_device())
        .map(|data| data.rdev())
        .or_else(|| fs::metadata(directory).ok().map(|data| data.dev()))
}

/// The word in brackets of `none [mq-deadline] bfq`; all of it if there are none.
fn chosen(list: &str) -> String {
    let bracketed = list.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(word, _)| word);
    bracketed.unwrap_or(list).to_owned()
}

/// The mount a directory is on, from the text of `mountinfo`: the longest mount point above it, and of several there
/// the last, which covers the others.
fn mount_of(table: &str, directory: &Path) -> Option<Storage> {
    let directory = fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
    let mounts = table.lines().filter_map(parse_mount);
    mounts
        .filter(|mount| directory.starts_with(&mount.mount_point))
        .max_by_key(|mount| mount.mount_point.as_os_str().len())
}

/// `36 35 98:0 /root /mnt rw,noatime master:1 - ext4 /dev/sda1 rw,errors=continue`
fn parse_mount(line: &str) -> Option<Storage> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(4);
    let (mount_point, mount_options) = (mount.next()?, mount.next()?);
    let mut file_system = file_system.splitn(3, ' ');
    let (kind, device) = (file_system.next()?, file_system.next()?);
    let mut options: Vec<&str> = mount_options.split(',').collect();
    for option in file_system.next().unwrap_or_default().split(',') {
        if !option.is_empty() && !options.contains(&option) {
            options.push(option);
        }
    }
    Some(Storage {
        file_system: kind.to_owned(),
        device: unescaped(device),
        mount_point: unescaped(mount_point).into(),
        options: options.join(","),
        ..Storage::default()
    })
}

/// Spaces and such stand in the table as `\040`.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code =
            after.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
28 27 8:1 / /proc/self rw - wrong /dev/wrong rw
29 27 0:44 /sub /tmp rw,noatime shared:2 - btrfs /dev/sda\\0402 rw,space_cache=v2
30 27 0:45 / /tmp rw - tmpfs none rw,size=4k
garbage
";

    #[test]
    fn the_longest_and_last_mount_point_wins() {
        let mount = mount_of(TABLE, Path::new("/etc")).unwrap();
        assert_eq!((mount.file_system.as_str(), mount.options.as_str()), ("ext4", "rw,relatime,discard"));
        assert_eq!(mount_of(TABLE, Path::new("/tmp")).unwrap().file_system, "tmpfs");
        assert_eq!(parse_mount(TABLE.lines().nth(2).unwrap()).unwrap().device, "/dev/sda 2");
    }

    #[test]
    fn headings() {
        let heading = |file_system: &str, device: &str| {
            Storage { file_system: file_system.into(), device: device.into(), ..Storage::default() }.heading()
        };
        assert_eq!(heading("ext4", "/dev/vda"), "ext4 on /dev/vda");
        assert_eq!(heading("nfs4", "host:/export"), "nfs4 on host:/export");
        assert_eq!(heading("tmpfs", "none"), "tmpfs");
        assert_eq!(chosen("none [mq-deadline] bfq"), "mq-deadline");
        assert_eq!(chosen("none"), "none");
    }
}
