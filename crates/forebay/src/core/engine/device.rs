//! The engine's part in block devices: who may have one, and what a device refuses that a file does
//! not.
//!
//! A device is opened exclusively, which is what the lease is for a file: who mounts it, and every
//! other engine, is kept out as long as we have it. (A program that opens a device and does not ask
//! whether it is held is not.)

use std::path::Path;
use std::time::Duration;

use crate::core::error::{Error, ErrorKind};
use crate::core::limits::DEVICE_TRIES;
use crate::core::open::Open;
use crate::platform::{File, How, Opened, files, thread};

/// What a file can be asked when it is opened, and a device cannot.
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

/// Opens, and asks again a few times where a device is held: its last descriptor may live a moment
/// longer than the handle, or the program, it belonged to.
pub(super) fn open_patiently(path: &Path, how: &How) -> std::io::Result<Opened> {
    let mut left = DEVICE_TRIES;
    loop {
        let opened = File::open(path, how);
        left -= 1;
        match opened {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && left > 0 => {
                thread::sleep(Duration::from_millis(1));
            }
            opened => return opened,
        }
    }
}

/// Somebody else has it.
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
