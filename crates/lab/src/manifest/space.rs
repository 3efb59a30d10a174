//! A file system as it stood when nobody had measured on it yet: how it was made, and in how many
//! pieces its free space lay. Programs of the file system are asked; without them, or without
//! permission, it is unknown.

use std::fs;
use std::process::{Command, Stdio};

use rustix::fs::{major, minor};
use serde::{Deserialize, Serialize};

use super::mount::{Storage, device_number};

/// How it was made, and how its free space lay.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Space {
    /// Output like that of mkfs: `xfs_info`, or the head of `dumpe2fs` without ids and dates.
    pub geometry: Option<String>,
    /// Pieces its free space lay in.
    pub free_extents: Option<u64>,
    /// Their mean length.
    pub mean_free_extent_bytes: Option<u64>,
}

/// Lines of `dumpe2fs -h` that say how it was made, and not whose it is or what became of it.
const EXT4: [&str; 16] = [
    "Filesystem features",
    "Filesystem revision",
    "Default mount options",
    "Inode count",
    "Block count",
    "Reserved block count",
    "First block",
    "Block size",
    "Blocks per group",
    "Inodes per group",
    "Flex block group size",
    "Inode size",
    "Journal features",
    "Total journal size",
    "RAID stride",
    "RAID stripe width",
];

/// More groups are not asked for: each is read from the disk if nobody has yet.
const MOST_GROUPS: u64 = 8192;

/// Bytes of an ext4 group, at most.
const LEAST_GROUP_BYTES: u64 = 128 << 20;

impl Space {
    pub(super) fn of(storage: &Storage) -> Self {
        let (count, bytes) = match storage.file_system.as_str() {
            "ext4" => free_of_ext4(storage).unzip(),
            "xfs" => free_of_xfs(storage).unzip(),
            _ => (None, None),
        };
        Self {
            geometry: geometry(storage),
            free_extents: count,
            mean_free_extent_bytes: bytes
                .zip(count)
                .and_then(|(bytes, count): (u64, u64)| bytes.checked_div(count)),
        }
    }
}

fn geometry(storage: &Storage) -> Option<String> {
    match storage.file_system.as_str() {
        "xfs" => {
            let said = said("xfs_info", &[storage.mount_point.to_str()?])?;
            // The device is recorded beside it.
            Some(said.replace(&storage.device, "DEVICE"))
        }
        "ext4" => {
            let said = said("dumpe2fs", &["-h", &storage.device])?;
            let kept = said.lines().filter(|line| EXT4.iter().any(|known| line.starts_with(known)));
            Some(kept.map(|line| format!("{line}\n")).collect())
                .filter(|kept: &String| !kept.is_empty())
        }
        _ => None,
    }
}

/// From the groups' buddy bitmaps, which everybody may read: free pieces and free bytes.
fn free_of_ext4(storage: &Storage) -> Option<(u64, u64)> {
    if storage.total_bytes / LEAST_GROUP_BYTES > MOST_GROUPS {
        return None;
    }
    let number = device_number(&storage.device, &storage.mount_point)?;
    let link = format!("/sys/dev/block/{}:{}", major(number), minor(number));
    let name = fs::canonicalize(link).ok()?.file_name()?.to_str()?.to_owned();
    let table = fs::read_to_string(format!("/proc/fs/ext4/{name}/mb_groups")).ok()?;
    let (pieces, blocks) = groups(&table);
    (pieces > 0).then(|| (pieces, blocks * storage.block_bytes))
}

/// Lines such as `#0    : 54    5     1788  [ ... ]`: free blocks, and in how many pieces.
fn groups(table: &str) -> (u64, u64) {
    let group = |line: &str| {
        let mut numbers = line.split_once(':')?.1.split_whitespace();
        let (free, pieces) =
            (numbers.next()?.parse::<u64>().ok()?, numbers.next()?.parse::<u64>().ok()?);
        Some((pieces, free))
    };
    let groups = table.lines().filter_map(group);
    groups.fold((0, 0), |sum, group| (sum.0 + group.0, sum.1 + group.1))
}

/// From `xfs_spaceman`, which is root's.
fn free_of_xfs(storage: &Storage) -> Option<(u64, u64)> {
    let said = said("xfs_spaceman", &["-r", "-c", "freesp -s", storage.mount_point.to_str()?])?;
    let number = |name: &str| {
        said.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
    };
    Some((number("total free extents")?, number("total free blocks")? * storage.block_bytes))
}

/// Returns the output of a program; none if it is missing or fails.
fn said(program: &str, words: &[&str]) -> Option<String> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let everywhere = std::env::split_paths(&paths).chain(["/usr/sbin".into(), "/sbin".into()]);
    let output = Command::new(program)
        .args(words)
        .env("PATH", std::env::join_paths(everywhere).ok()?)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_pieces_of_groups() {
        let table = "#group: free  frags first [ 2^0 ]\n#0    : 54    5     1788  [ 4 ]\n#1    : 0     0     32768 [ 0 ]\n\
                     #2    : 100   2     7     [ 1 ]\n";
        assert_eq!(groups(table), (7, 154));
    }
}
