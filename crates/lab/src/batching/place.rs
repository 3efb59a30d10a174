//! The disk and the file system of a cell.

use std::fs;
use std::path::Path;

use forebay_bpf::{Disk, FileSystem, Kind};
use rustix::fs::{major, minor};

use crate::manifest::{Storage, mount};

/// Returns the disk that is a block device, has it as a part, or has the file system of a
/// directory; `None` if that has no disk of its own.
pub(super) fn disk_under(path: &Path) -> Option<Disk> {
    let number = fs::read_to_string(mount::disk_of(path)?.join("dev")).ok()?;
    let (major, minor) = number.trim().split_once(':')?;
    Some(Disk { major: major.parse().ok()?, minor: minor.parse().ok()? })
}

/// Returns the file system of a file or a directory.
pub(super) fn file_system_of(path: &Path) -> FileSystem {
    let device = mount::file_system_number(path);
    let kind = match Storage::of(path).file_system.as_str() {
        "ext4" => Kind::Ext4,
        "xfs" => Kind::Xfs,
        _ => Kind::Other,
    };
    FileSystem { device: Disk { major: major(device), minor: minor(device) }, kind }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_on_a_file_system() {
        let directory = tempfile::tempdir_in(".").unwrap();
        assert_ne!(file_system_of(directory.path()).device, Disk { major: 0, minor: 0 });
    }
}
