//! Properties of block devices alone: their size, their blocks, and their own discard.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `_IOR(0x12, 114, size_t)`.
const BLKGETSIZE64: libc::Ioctl = 0x8008_1272_u32 as libc::Ioctl;
/// `_IO(0x12, 94)`.
const BLKROGET: libc::Ioctl = 0x125e;
/// `_IO(0x12, 119)`.
const BLKDISCARD: libc::Ioctl = 0x1277;

/// Bytes on the device that can be reached: whole blocks. (A partition or an image may end inside
/// of one.)
pub(crate) fn reachable(device: BorrowedFd<'_>) -> io::Result<u64> {
    let block = u64::from(logical_block(device)?.max(1));
    Ok(size(device)? / block * block)
}

/// Whether the device refuses writes. Opening it for writing does not tell: the kernel lets that
/// pass.
pub(crate) fn is_read_only(device: BorrowedFd<'_>) -> io::Result<bool> {
    let mut reported: libc::c_int = 0;
    // SAFETY: the command writes an `int` through the pointer, during the call.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), BLKROGET, &raw mut reported) };
    if result == 0 { Ok(reported != 0) } else { Err(io::Error::last_os_error()) }
}

fn size(device: BorrowedFd<'_>) -> io::Result<u64> {
    let mut bytes = 0u64;
    // SAFETY: the command writes a number of 64 bits through the pointer, during the call.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), BLKGETSIZE64, &raw mut bytes) };
    if result == 0 { Ok(bytes) } else { Err(io::Error::last_os_error()) }
}

/// Bytes of its smallest block.
pub(crate) fn logical_block(device: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(rustix::fs::ioctl_blksszget(device)?)
}

/// Tells the device that a range is not needed; blocks until it has said yes.
pub(crate) fn discard(device: BorrowedFd<'_>, offset: u64, length: u64) -> io::Result<()> {
    let range = [offset, length];
    // SAFETY: the command reads two numbers of 64 bits through the pointer, during the call.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), BLKDISCARD, range.as_ptr()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
