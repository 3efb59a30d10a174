//! The extent-size hint of a file: XFS allocates stretches of this size for it, aligned to it. The
//! user sets it on a file, or on a directory for the files created there.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `FS_IOC_FSGETXATTR`: reads 28 bytes, type `X`, number 31.
const FS_IOC_FSGETXATTR: libc::Ioctl = 0x801c_581f;
const FS_XFLAG_EXTSIZE: u32 = 0x800;

/// Attributes of a file besides the usual ones.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    flags: u32,
    extent_bytes: u32,
    extents: u32,
    project: u32,
    copy_extent_bytes: u32,
    padding: [u8; 8],
}

const _: () = assert!(size_of::<Attributes>() == 28);

/// Returns the hint in bytes, or `None` if the file has none.
pub(crate) fn get(descriptor: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    let attributes = attributes(descriptor)?;
    let is_set = attributes.flags & FS_XFLAG_EXTSIZE != 0 && attributes.extent_bytes > 0;
    Ok(is_set.then_some(attributes.extent_bytes))
}

fn attributes(descriptor: BorrowedFd<'_>) -> io::Result<Attributes> {
    let mut attributes = Attributes::default();
    // SAFETY: the descriptor is open for the length of the call, and the kernel writes the 28 bytes
    // that the call's number says and the structure has. Other file systems refuse the number.
    let result =
        unsafe { libc::ioctl(descriptor.as_raw_fd(), FS_IOC_FSGETXATTR, &raw mut attributes) };
    if result == 0 { Ok(attributes) } else { Err(io::Error::last_os_error()) }
}
