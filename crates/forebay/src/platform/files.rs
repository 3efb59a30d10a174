//! Calls that take a path.

use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

pub(crate) use forebay_uring::probe::mounted_at;

/// Maximum of symbolic links to follow, as in the kernel.
const LINKS: usize = 40;

/// Returns the identity of the file that a path names.
pub(crate) fn identity_of(path: &Path) -> io::Result<forebay_uring::Identity> {
    forebay_uring::OpenFile::identity_of(path)
}

/// Returns whether a path names a block device.
pub(crate) fn is_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device())
}

/// Returns the path that a symbolic link to a missing file names: an exclusive open creates nothing
/// through a link. Returns the path itself if it is no link.
pub(crate) fn end_of_links(path: &Path) -> PathBuf {
    let mut end = path.to_owned();
    for _ in 0..LINKS {
        let Ok(target) = std::fs::read_link(&end) else { break };
        end = end.parent().unwrap_or(Path::new("")).join(target);
    }
    end
}

/// Returns the path with the current directory before it.
pub(crate) fn absolute(path: &Path) -> io::Result<PathBuf> {
    std::path::absolute(path)
}

/// Returns how many descriptors this process may have open.
pub(crate) fn descriptor_limit() -> usize {
    let limit = forebay_uring::detached::descriptor_limit();
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}
