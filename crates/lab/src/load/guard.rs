//! Protection of a disk full of data from a job file.
//!
//! A block device is written only if the user said so, and never while anything else has it:
//! mounted, swapped on, part of an array. `O_EXCL` asks the kernel itself, which also knows about
//! partitions and holders; the mount table is read besides, for the sake of the message.
//! Directories are looked at before anything is made in them.

use std::fs::{self, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{Access, access};

use super::error::{CellError, Context};
use crate::manifest::mount;

pub(crate) fn check_directory(directory: &Path) -> Result<(), CellError> {
    let refused = |what| Err(CellError::invalid(format!("{}: {what}", directory.display())));
    match fs::metadata(directory) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => refused("not a directory"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            refused("there is no such directory; make it first")
        }
        Err(error) => Err(CellError::failed_at("could not look at it", directory, &error)),
    }
}

/// Refuses a file that is missing and could not be made.
pub(crate) fn check_can_be_made(path: &Path) -> Result<(), CellError> {
    if path.exists() {
        return Ok(());
    }
    let directory = nearest_directory(path);
    check_directory(directory)?;
    access(directory, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| {
        CellError::invalid(format!("{}: nothing can be made in it: {error}", directory.display()))
    })
}

/// Returns the directory a file is in, or the nearest above it that is there.
pub(crate) fn nearest_directory(path: &Path) -> &Path {
    let above = path.ancestors().skip(1).find(|above| above.exists());
    above.filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether a path leads to a block device.
pub(crate) fn is_block_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
}

/// Whether a path leads to a block device that somebody has for himself: mounted, or part of
/// another. An engine opens devices so as well, and is refused then.
pub(crate) fn is_held(path: &Path) -> bool {
    let exclusive = || OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(path);
    is_block_device(path) && exclusive().as_ref().is_err_and(is_busy)
}

pub(crate) fn device_length(path: &Path) -> Result<u64, CellError> {
    let device = fs::File::open(path);
    let end = device.and_then(|mut device| device.seek(SeekFrom::End(0)));
    end.context_at("could not ask its length", path)
}

/// Returns why the device that a place is or lies on has no queues for polling.
pub(crate) fn device_polls(place: &Path) -> Result<(), String> {
    let queue =
        mount::queue_directory_of(place).ok_or("the file is on no block device of its own")?;
    let path = queue.join("io_poll");
    match fs::read_to_string(&path) {
        Ok(text) if text.trim() == "1" => Ok(()),
        Ok(_) => Err(format!("{} says 0", path.display())),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// Refuses a device that somebody else uses.
pub(crate) fn refuse_mounted(path: &Path) -> Result<(), CellError> {
    fs::metadata(path).context_at("could not look at it", path)?;
    let shown = path.display();
    if let Some(place) = forebay_uring::probe::mounted_at(path) {
        let place = place.display();
        let reason = format!("{shown}: mounted at {place}; unmount it first");
        return Err(CellError::invalid(reason));
    }
    let exclusive = OpenOptions::new().write(true).custom_flags(libc::O_EXCL).open(path);
    if exclusive.as_ref().is_err_and(is_busy) {
        let by = "a partition of it is mounted, or it is swap or part of another device";
        return Err(CellError::invalid(format!("{shown}: in use ({by})")));
    }
    exclusive.map(drop).context_at("could not open it for writing", path)
}

fn is_busy(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EBUSY)
}

/// Checks that a path is a block device that nobody else uses, before a suite's jobs write over it.
pub fn check_target(path: &Path) -> Result<(), CellError> {
    if !is_block_device(path) {
        return Err(CellError::invalid(format!("{}: not a block device", path.display())));
    }
    refuse_mounted(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mounted_root_device_is_refused() {
        let mounts = forebay_uring::mounts::Mount::all().unwrap_or_default();
        let mut sources = mounts.into_iter().map(|mount| mount.source);
        let source = sources.find(|source| source.starts_with("/dev"));
        // In a container without devices there is nothing to refuse.
        if let Some(device) = source.filter(|device| device.exists()) {
            let refused = refuse_mounted(&device).unwrap_err().to_string();
            assert!(refused.contains("mounted at") || refused.contains("could not"), "{refused}");
        }
    }
}
