//! Properties of the machine: kernel, file systems, devices, memory. For defaults and reports.
//!
//! The values come from `/proc`, `/sys` and `statfs`. An unknown value is `None`, never a guess.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::time::{ClockId, clock_getres};

use crate::mounts::Mount;

/// Version of the kernel, for comparisons.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct KernelVersion {
    /// Major number: 6 of 6.18.
    pub major: u32,
    /// Minor number: 18 of 6.18.
    pub minor: u32,
}

/// Block device that a file is stored on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockDevice {
    /// Name in the kernel, such as `vda1`.
    pub name: String,
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Directory of the device under `/sys`; for a partition, that of the whole disk.
    pub queue: Option<PathBuf>,
}

impl BlockDevice {
    /// Returns the logical block size in bytes, or `None` if unknown.
    #[must_use]
    pub fn logical_block(&self) -> Option<u32> {
        self.setting("logical_block_size").and_then(|value| u32::try_from(value).ok())
    }

    fn setting(&self, name: &str) -> Option<u64> {
        fs::read_to_string(self.queue.as_ref()?.join("queue").join(name)).ok()?.trim().parse().ok()
    }
}

/// Returns the version of the running kernel.
#[must_use]
pub fn kernel_version() -> KernelVersion {
    let uname = rustix::system::uname();
    parse_version(&uname.release().to_string_lossy())
}

/// Returns the length of a jiffy: the interval of the kernel's timer tick, 1/HZ.
#[must_use]
pub fn jiffy() -> Duration {
    // The coarse clock is the time of the last tick, so its resolution is the tick.
    let tick = clock_getres(ClockId::MonotonicCoarse);
    tick.try_into().unwrap_or_default()
}

/// Returns the name of the file system of a path, as `mount` prints it.
///
/// # Errors
/// The error of the kernel for the path.
pub fn file_system(path: &Path) -> io::Result<String> {
    let magic = rustix::fs::statfs(path)?.f_type;
    Ok(match known_file_system(magic) {
        Some(name) => name.to_owned(),
        None => {
            let mounted = Mount::of(path)?.map(|mount| mount.file_system);
            mounted.unwrap_or_else(|| format!("{:#x}", magic & 0xffff_ffff))
        }
    })
}

/// Returns the name of the file system of an open file, or `None` if it is not known here.
#[must_use]
pub fn known_file_system_of(descriptor: &impl AsFd) -> Option<&'static str> {
    rustix::fs::fstatfs(descriptor).ok().and_then(|found| known_file_system(found.f_type))
}

/// Returns the name of the file system with this magic number, or `None` if it is not known here.
pub(crate) fn known_file_system(magic: rustix::fs::FsWord) -> Option<&'static str> {
    // The magic numbers are 32 bits wide.
    Some(match u32::try_from(magic & 0xffff_ffff).expect("masked to 32 bits") {
        0x5846_5342 => "xfs",
        0xef53 => "ext4",
        0x9123_683e => "btrfs",
        0x0102_1994 => "tmpfs",
        0xf2f5_2010 => "f2fs",
        0x6969 => "nfs",
        0xff53_4d42 | 0xfe53_4d42 => "cifs",
        0x0102_1997 => "9p",
        0x00c3_6400 => "ceph",
        0x794c_7630 => "overlay",
        0x2fc1_2fc1 => "zfs",
        0x6573_5546 => "fuse",
        0xca45_1a4e => "bcachefs",
        0x9fa0 => "proc",
        0x6265_6572 => "sysfs",
        _ => return None,
    })
}

/// Returns the block device of a path: the device of a device node, else the one that its file
/// system is mounted from. Returns `None` if the file system has no block device (tmpfs, network)
/// or it is unknown.
#[must_use]
pub fn block_device(path: &Path) -> Option<BlockDevice> {
    let status = rustix::fs::stat(path).ok()?;
    if rustix::fs::FileType::from_raw_mode(status.st_mode).is_block_device() {
        return device(status.st_rdev);
    }
    // btrfs and overlay give files a device number of no device; the mount's source names the real
    // one.
    device(status.st_dev).or_else(|| {
        let source = Mount::of(path).ok()??.source;
        let status = rustix::fs::stat(&source).ok()?;
        device(status.st_rdev)
    })
}

/// Returns the last mount point of a block device that is visible to this process, if it is
/// mounted.
#[must_use]
pub fn mounted_at(node: &Path) -> Option<PathBuf> {
    let number = rustix::fs::stat(node).ok()?.st_rdev;
    let number = (rustix::fs::major(number), rustix::fs::minor(number));
    let mut mounts = Mount::all().ok()?.into_iter();
    mounts.rfind(|mount| mount.device == number).map(|mount| mount.point)
}

/// Returns the number of processors that this machine may have, those that are off included.
#[must_use]
pub fn possible_processors() -> Option<u32> {
    counted(fs::read_to_string("/sys/devices/system/cpu/possible").ok()?.trim())
}

/// Counts the processors in a list such as `0-3,8`.
#[must_use]
pub fn counted(list: &str) -> Option<u32> {
    let one = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    list.split(',').map(one).try_fold(0, |sum: u32, many| sum.checked_add(many?))
}

/// Returns the bytes of memory that this process may use: the minimum of the machine's memory and
/// the limits of its control groups.
#[must_use]
pub fn memory_limit() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| memory_total(&text));
    let groups =
        fs::read_to_string("/proc/self/cgroup").map(|text| group_limits(&text)).unwrap_or_default();
    machine.into_iter().chain(groups).min().unwrap_or(u64::MAX)
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.major, self.minor)
    }
}

fn parse_version(release: &str) -> KernelVersion {
    let mut numbers = release
        .split(|letter: char| !letter.is_ascii_digit())
        .map(|part| part.parse().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    KernelVersion { major: next(), minor: next() }
}

pub(crate) fn device(number: u64) -> Option<BlockDevice> {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let place = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let name = place.file_name()?.to_string_lossy().into_owned();
    let has_queue = |place: &&Path| place.join("queue").is_dir();
    let queue = [Some(place.as_path()), place.parent()]
        .into_iter()
        .flatten()
        .find(has_queue)
        .map(Path::to_owned);
    Some(BlockDevice { name, major, minor, queue })
}

fn memory_total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// The limits of the groups this process is in, and of those above them, in both versions of
/// control groups.
fn group_limits(table: &str) -> Vec<u64> {
    let mut limits = Vec::new();
    for line in table.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
        let (root, file) = match controllers {
            "" => (Path::new("/sys/fs/cgroup"), "memory.max"),
            _ if controllers.split(',').any(|controller| controller == "memory") => {
                (Path::new("/sys/fs/cgroup/memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let group = root.join(group.trim_start_matches('/'));
        for place in group.ancestors().take_while(|place| place.starts_with(root)) {
            // "max", and a group that a container does not show, limit nothing.
            let limit = fs::read_to_string(place.join(file))
                .ok()
                .and_then(|text| text.trim().parse::<u64>().ok());
            limits.extend(limit);
        }
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_of_a_list_are_counted() {
        assert_eq!((counted("0-3,8"), counted("3-1"), counted("")), (Some(5), None, None));
        assert!(possible_processors().unwrap() > 0);
    }

    #[test]
    fn versions_compare_as_numbers() {
        assert_eq!(parse_version("6.18.44-fc-v669"), KernelVersion { major: 6, minor: 18 });
        assert!(parse_version("6.9") < parse_version("6.12.1"));
        assert_eq!(parse_version("7"), KernelVersion { major: 7, minor: 0 });
        assert!(kernel_version() >= KernelVersion { major: 5, minor: 15 });
    }

    #[test]
    fn this_machine_can_be_reported() {
        assert_eq!(file_system(Path::new("/proc/self")).unwrap(), "proc");
        assert_eq!(block_device(Path::new("/proc/self")), None);
        assert!(file_system(Path::new("/no such file")).is_err());
        let here = std::env::temp_dir();
        println!("{}: {:?} on {:?}", here.display(), file_system(&here), block_device(&here));
        let limit = memory_limit();
        assert!((1 << 20..1 << 50).contains(&limit), "{limit}");
    }

    #[test]
    fn a_jiffy_is_that_of_the_kernels_configuration() {
        let jiffy = jiffy();
        // HZ is 100, 250, 300 or 1000, and 24 to 1200 elsewhere.
        let sensible = Duration::from_micros(800)..=Duration::from_millis(42);
        assert!(sensible.contains(&jiffy), "{jiffy:?}");
        let name = format!("/boot/config-{}", rustix::system::uname().release().to_string_lossy());
        let config = fs::read_to_string(&name).unwrap_or_default();
        let hz = |line: &str| line.strip_prefix("CONFIG_HZ=")?.parse::<u128>().ok();
        match config.lines().find_map(hz) {
            Some(hz) => assert_eq!(jiffy.as_nanos(), (1_000_000_000 + hz / 2) / hz),
            None => println!("not compared with CONFIG_HZ: no {name}"),
        }
    }

    #[test]
    fn memory_is_the_least_of_what_is_reported() {
        assert_eq!(memory_total("MemFree: 1 kB\nMemTotal:  24 kB\n"), Some(24 << 10));
        assert_eq!(memory_total("nothing"), None);
        assert!(
            group_limits("0::/no/such/group/here\nnonsense\n3:cpu:/x\n")
                .iter()
                .all(|&limit| limit > 0)
        );
    }
}
