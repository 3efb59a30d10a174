//! The device of FUSE: descriptors of one connection, and files that the kernel reads itself.
//!
//! The numbers of the calls are those of `linux/fuse.h`.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::ioctl::{Opcode, opcode};

/// Joins a connection.
const CLONE: Opcode = opcode::read::<u32>(MAGIC, 0);

/// Gives a file to the kernel.
const BACKING_OPEN: Opcode = opcode::write::<Map>(MAGIC, 1);

/// Takes it away again.
const BACKING_CLOSE: Opcode = opcode::write::<u32>(MAGIC, 2);

const MAGIC: u8 = 229;

/// A file for the kernel, as `struct fuse_backing_map` has it.
#[repr(C)]
struct Map {
    descriptor: i32,
    flags: u32,
    padding: u64,
}

/// Calls with a number of the device and a value that the kernel reads.
fn call<T>(device: BorrowedFd<'_>, number: Opcode, value: &T) -> io::Result<u32> {
    #[allow(clippy::cast_lossless, reason = "the type differs between C libraries")]
    let number = number as libc::Ioctl;
    // SAFETY: the kernel reads a value of this type, which lives longer than the call.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), number, std::ptr::from_ref(value)) };
    u32::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Opens another descriptor for the connection of a device. Requests that were read from one are
/// answered by that one.
///
/// # Errors
/// Those of the open, or of a device without a connection.
pub fn joined(device: &impl AsFd) -> io::Result<OwnedFd> {
    let joined = openat(CWD, c"/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    call(joined.as_fd(), CLONE, &device.as_fd().as_raw_fd())?;
    Ok(joined)
}

/// A file that the kernel reads and maps itself (FUSE passthrough), until dropped.
#[derive(Debug)]
pub struct Backing {
    device: Arc<OwnedFd>,
    number: u32,
}

impl Backing {
    /// Gives a file to the kernel.
    ///
    /// # Errors
    /// If the kernel does not take the file, or not from this process.
    pub fn new(device: &Arc<OwnedFd>, file: BorrowedFd<'_>) -> io::Result<Self> {
        let map = Map { descriptor: file.as_raw_fd(), flags: 0, padding: 0 };
        let number = call(device.as_fd(), BACKING_OPEN, &map)?;
        Ok(Self { device: Arc::clone(device), number })
    }

    /// Returns its number, for the reply to an open.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        // A connection that has ended has closed it.
        let _ = call(self.device.as_fd(), BACKING_CLOSE, &self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_device_without_a_connection_is_refused() {
        let Ok(device) = openat(CWD, c"/dev/fuse", OFlags::RDWR, Mode::empty()) else {
            eprintln!("skipped: no /dev/fuse");
            return;
        };
        joined(&device).unwrap_err();
        let program = File::open("/proc/self/exe").unwrap();
        Backing::new(&Arc::new(device), program.as_fd()).unwrap_err();
    }
}
