//! A loop device: a file that is a block device as long as the value lives.
//!
//! It is made with `LO_FLAGS_AUTOCLEAR`: the kernel detaches it itself when the last descriptor of
//! it is closed, so one whose owner is killed goes too. Requests go past the page cache of the
//! file, where its file system can do that, so that what is written to the device has been written.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

const CONTROL: &str = "/dev/loop-control";

/// The kernel's own numbers (`linux/loop.h`).
const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4c82;
const LOOP_CONFIGURE: libc::c_ulong = 0x4c0a;
const LOOP_CLR_FD: libc::c_ulong = 0x4c01;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// How often another's device may have been taken between asking for a free one and taking it.
const TRIES: u32 = 16;

/// Layout of the kernel's `struct loop_config`; all but three fields stay zero.
#[repr(C)]
struct Config {
    backing: u32,
    block_bytes: u32,
    before_flags: [u8; 52],
    flags: u32,
    after_flags: [u8; 176],
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<Config>() == 304);

/// A loop device that is detached when this is dropped, or with its last user.
#[derive(Debug)]
pub struct LoopDevice {
    device: File,
    path: PathBuf,
}

impl LoopDevice {
    /// Attaches a device to all of a file.
    ///
    /// # Errors
    /// The kernel's message; `PermissionDenied` or `NotFound` without root, or without loop
    /// devices.
    pub fn over(file: &Path) -> io::Result<Self> {
        let control = OpenOptions::new().read(true).write(true).open(CONTROL)?;
        let backing = OpenOptions::new().read(true).write(true).open(file)?;
        for _ in 0..TRIES {
            // SAFETY: no memory is passed, and the descriptor is open.
            let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
            if number < 0 {
                return Err(io::Error::last_os_error());
            }
            assert!(number < 1 << 20, "{number} is no minor number");
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let device = OpenOptions::new().read(true).write(true).open(&path)?;
            let config = Config {
                backing: backing.as_raw_fd().cast_unsigned(),
                block_bytes: 0,
                before_flags: [0; 52],
                flags: LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO,
                after_flags: [0; 176],
                reserved: [0; 8],
            };
            // SAFETY: the struct is of the layout this call reads, and both descriptors are open.
            let failed =
                unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) };
            if failed == 0 {
                return Ok(Self { device, path });
            }
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::EBUSY) {
                return Err(error);
            }
        }
        Err(io::ErrorKind::ResourceBusy.into())
    }

    /// Returns the path of the device.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // With others still at it, it goes when they do.
        // SAFETY: no memory is passed, and the descriptor is open.
        let _ = unsafe { libc::ioctl(self.device.as_raw_fd(), LOOP_CLR_FD) };
    }
}

#[cfg(test)]
#[path = "../tests/support/attached.rs"]
pub(crate) mod attached;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::FileExt;

    use super::attached::{assert_detached, attached_below};
    use super::*;

    #[test]
    fn it_is_there_as_long_as_the_value() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("data");
        fs::write(&file, vec![7; 1 << 20]).unwrap();
        let device = match LoopDevice::over(&file) {
            Ok(device) => device,
            Err(error) => {
                eprintln!("skipped: no loop device here: {error}");
                return;
            }
        };
        let mut byte = [0];
        File::open(device.path()).unwrap().read_exact_at(&mut byte, (1 << 20) - 1).unwrap();
        assert_eq!(byte, [7]);
        assert_eq!(attached_below(directory.path()), [file.canonicalize().unwrap()]);
        drop(device);
        assert_detached(directory.path());
    }
}
