//! Opening of block devices: exclusive access, and options that a device does not support.
//!
//! A device is opened exclusively, which replaces the lease of a file. Mounts and other engines are
//! refused while it is open here. A program that opens the device without `O_EXCL` is not refused.

use std::path::Path;
use std::time::Duration;

use crate::core::error::{Error, ErrorKind};
use crate::core::limits::DEVICE_TRIES;
use crate::core::open::Open;
use crate::platform::{How, OpenFile, Opened, files, thread};

/// Refuses options that a block device does not support.
pub(super) fn check(path: &Path, open: &Open) -> Result<(), Error> {
    let refuse = |what: &str, remedy: &str| {
        Err(Error::new(ErrorKind::Unsupported, what).at_path(path).remedy(remedy.to_owned()))
    };
    if open.append {
        return refuse(
            "cannot append to a block device",
            "open it with Open::write and write at an offset",
        );
    }
    if open.truncate {
        return refuse("cannot truncate a block device", "open it with Open::write");
    }
    Ok(())
}

/// Opens a file, and retries a few times if a device is busy. The kernel may close the last
/// descriptor a moment after the handle, or the program, is gone.
pub(super) fn open_patiently(path: &Path, how: &How) -> std::io::Result<Opened> {
    let mut left = DEVICE_TRIES;
    loop {
        let opened = OpenFile::open(path, how);
        left -= 1;
        match opened {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && left > 0 => {
                thread::sleep(Duration::from_millis(1));
            }
            opened => return opened,
        }
    }
}

/// Creates the error for a device that is in use elsewhere.
pub(super) fn held(path: &Path) -> Error {
    let error = |what: &str| Error::new(ErrorKind::Busy, what).at_path(path);
    match files::mounted_at(path) {
        Some(point) => {
            error("the block device is mounted").remedy(format!("umount {}", point.display()))
        }
        None => error("another program has the block device open exclusively")
            .remedy("close it there; lsblk shows volumes and swap on it"),
    }
}
