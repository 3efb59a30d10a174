//! Calls that take a path.

use std::io;
use std::path::{Path, PathBuf};

use forebay_block::Errno;
use forebay_uring::Identity;

use super::file::OpenFile;
use crate::world;
use crate::world::machine::{Content, Last, Work, call, wait_for};

/// Symbolic links that are followed at most, as the kernel does.
const LINKS: usize = 40;

/// Returns which file a path names.
///
/// # Errors
/// The error of the file system, such as `NotFound`.
pub fn identity_of(path: &Path) -> io::Result<Identity> {
    call(|machine| {
        let node = machine.existing(path, Last::Follow)?;
        Ok(machine.inode(node).identity)
    })
}

/// Returns the path that bytes of the kernel name.
#[must_use]
pub fn path_of_bytes(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt as _;
    PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
}

/// Returns the bytes that name a path to the kernel.
#[must_use]
pub fn bytes_of_path(path: &Path) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt as _;
    path.as_os_str().as_bytes().to_vec()
}

/// Returns whether a path names a block device.
#[must_use]
pub fn is_device(path: &Path) -> bool {
    let look = call(|machine| {
        let node = machine.existing(path, Last::Follow)?;
        Ok(machine.inode(node).is_device())
    });
    look.unwrap_or(false)
}

/// Makes the entry of a file durable in its directory. Blocks.
///
/// # Errors
/// The error of the device; `NotFound` if the path leads to no file.
pub fn sync_directory_of(path: &Path) -> io::Result<()> {
    let ticket = call(|machine| {
        let found = machine.resolve(path, Last::Follow)?;
        let node = found.node.ok_or(Errno(libc::ENOENT))?;
        Ok(machine.begin_flush(world::process(), Work::Names(found.directory), node))
    })?;
    wait_for(ticket).map(|_| ())
}

/// Returns the path that a symbolic link to a missing file names; the path itself if it is no link.
#[must_use]
pub fn end_of_links(path: &Path) -> PathBuf {
    let mut end = path.to_owned();
    for _ in 0..LINKS {
        let target = call(|machine| {
            let node = machine.existing(&end, Last::Keep)?;
            match &machine.inode(node).content {
                Content::Link(target) => Ok(target.clone()),
                _ => Err(Errno::INVALID),
            }
        });
        let Ok(target) = target else { break };
        end = end.parent().unwrap_or(Path::new("")).join(target);
    }
    end
}

/// Returns where a block device is mounted.
#[must_use]
pub fn mounted_at(path: &Path) -> Option<PathBuf> {
    let is_mounted = call(|machine| {
        let node = machine.existing(path, Last::Follow)?;
        Ok(machine.inode(node).is_mounted)
    });
    is_mounted.unwrap_or(false).then(|| PathBuf::from("/mnt"))
}

/// Returns the path of an open file, without links.
///
/// # Errors
/// If the descriptor is closed, or no path leads to the file.
pub fn path_of(file: &OpenFile) -> io::Result<PathBuf> {
    call(|machine| machine.path_of(file.number()))
}

/// Returns the path with the current directory before it, which is the root.
///
/// # Errors
/// `InvalidInput` for an empty path.
pub fn absolute(path: &Path) -> io::Result<PathBuf> {
    if path.as_os_str().is_empty() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(Path::new("/").join(path))
}

/// Returns how many descriptors a process may have open: few, so that a short run uses all.
#[must_use]
pub fn descriptor_limit() -> usize {
    if world::processors() > 0 { 4096 } else { 32 }
}
