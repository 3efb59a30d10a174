//! The extent-size hint of a file: XFS allocates stretches of this size for it, aligned to it.
//!
//! It stays with the file for good, and can be set only while the file has no extents. So it is
//! only for a file we made, and one that stands already, the user's or one inherited from the
//! directory, is left as it is.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `FS_IOC_FSGETXATTR` and `FS_IOC_FSSETXATTR`: read and write 28 bytes, type `X`, numbers 31 and
/// 32.
const FS_IOC_FSGETXATTR: libc::Ioctl = 0x801c_581f;
const FS_IOC_FSSETXATTR: libc::Ioctl = 0x401c_5820;
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

/// The current hint.
pub(crate) fn get(descriptor: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    let attributes = attributes(descriptor)?;
    let is_set = attributes.flags & FS_XFLAG_EXTSIZE != 0 && attributes.extent_bytes > 0;
    Ok(is_set.then_some(attributes.extent_bytes))
}

/// Sets one where none stands.
pub(crate) fn set(descriptor: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    let mut attributes = attributes(descriptor)?;
    if attributes.flags & FS_XFLAG_EXTSIZE != 0 || attributes.extent_bytes > 0 {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    attributes.flags |= FS_XFLAG_EXTSIZE;
    attributes.extent_bytes = bytes;
    // SAFETY: the descriptor is open for the length of the call, and the kernel reads the 28 bytes
    // that the call's number says and the structure has.
    let result =
        unsafe { libc::ioctl(descriptor.as_raw_fd(), FS_IOC_FSSETXATTR, &raw const attributes) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // ext4 takes the call, and keeps nothing of it.
    if get(descriptor)? == Some(bytes) { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) }
}

fn attributes(descriptor: BorrowedFd<'_>) -> io::Result<Attributes> {
    let mut attributes = Attributes::default();
    // SAFETY: the descriptor is open for the length of the call, and the kernel writes the 28 bytes
    // that the call's number says and the structure has. Other file systems refuse the number.
    let result =
        unsafe { libc::ioctl(descriptor.as_raw_fd(), FS_IOC_FSGETXATTR, &raw mut attributes) };
    if result == 0 { Ok(attributes) } else { Err(io::Error::last_os_error()) }
}
