//! Where it is counted: on which disk, on which file system, of which process.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{major, minor};

use crate::manifest::{Storage, mount};

/// A whole disk, by the kernel's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Disk {
    pub(super) major: u32,
    pub(super) minor: u32,
}

impl Disk {
    /// That a block device is, or is a part of, or that the file system of a directory is on. None
    /// where that has none of its own.
    pub(super) fn under(path: &Path) -> Option<Self> {
        let is_device = fs::metadata(path).is_ok_and(|data| data.file_type().is_block_device());
        let directory = if is_device { mount::disk_of_device(path) } else { mount::disk_of(path) };
        let number = fs::read_to_string(directory?.join("dev")).ok()?;
        let (major, minor) = number.trim().split_once(':')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

/// A file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FileSystem {
    /// As the kernel has it in itself: twelve bits, then twenty.
    pub(super) number: u32,
    pub(super) kind: Kind,
}

/// Which of them it is, where they are counted in different ways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Ext4,
    Xfs,
    Other,
}

impl FileSystem {
    /// That a file or a directory is on.
    pub(super) fn of(path: &Path) -> Self {
        let device = mount::file_system_number(path);
        let kind = match Storage::of(path).file_system.as_str() {
            "ext4" => Kind::Ext4,
            "xfs" => Kind::Xfs,
            _ => Kind::Other,
        };
        Self { number: major(device) << 20 | minor(device) & 0xf_ffff, kind }
    }
}

/// In which the numbers of processes are meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Namespace {
    pub(super) device: u64,
    pub(super) number: u64,
}

impl Namespace {
    /// That of this process.
    pub(super) fn here() -> std::io::Result<Self> {
        let data = fs::metadata("/proc/self/ns/pid")?;
        Ok(Self { device: data.dev(), number: data.ino() })
    }
}

/// Where the workers are that end I/O beside the interrupt: of buffered writes, and of direct ones
/// that have something left to do. Empty where the kernel does not tell.
pub(super) fn completion_workers() -> Vec<u64> {
    fs::read_to_string("/proc/kallsyms").map(|text| addresses(&text, WORKERS)).unwrap_or_default()
}

const WORKERS: &[&str] =
    &["xfs_end_io", "ext4_end_io_rsv_work", "iomap_dio_complete_work", "dio_aio_complete_work"];

/// Addresses of those that are there, from lines such as `ffffffff818f9c80 T xfs_end_io`. Who may
/// not know them is told zeroes.
fn addresses(symbols: &str, wanted: &[&str]) -> Vec<u64> {
    let address = |line: &str| {
        let mut words = line.split_whitespace();
        let (address, _, name) = (words.next()?, words.next()?, words.next()?);
        // A module's name may follow.
        let address = wanted.contains(&name).then(|| u64::from_str_radix(address, 16).ok())??;
        (address != 0).then_some(address)
    };
    symbols.lines().filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn workers_are_found_by_name() {
        let text = "ffffffff818f9c70 T xfs_end_bio\nffffffff818f9c80 T xfs_end_io\n\
                    0000000000000000 t iomap_dio_complete_work\nffffffffc0123450 t ext4_end_io_rsv_work\t[ext4]\nx\n";
        assert_eq!(addresses(text, WORKERS), [0xffff_ffff_818f_9c80, 0xffff_ffff_c012_3450]);
    }

    #[test]
    fn a_directory_is_on_a_file_system() {
        let directory = tempfile::tempdir_in(".").unwrap();
        assert_ne!(FileSystem::of(directory.path()).number, 0);
        assert!(Namespace::here().unwrap().number > 0);
    }

    proptest! {
        #[test]
        fn no_list_of_symbols_makes_it_panic(text in "([0-9a-fx]{0,20}[ \t]?(T|t)? ?(xfs_end_io)?\n?){0,8}") {
            addresses(&text, WORKERS);
        }
    }
}
