//! The device below: an image on a loop device, perhaps served by a disk that charges, or an unused
//! block device.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::disk::{Backing, Charges, Server};
use crate::load::data::{LaidOut, lay_out};
use crate::load::guard::check_target;
use crate::loop_device::LoopDevice;
use crate::request::DATA_FILE;
use crate::scratch::Stop;

use super::{FileSystemError, Image, Spec};

/// Space that stays free beside an image.
const BESIDE_BYTES: u64 = 1 << 30;

/// Where the image of a disk that charges is served.
const SERVED: &str = "served";

/// Seed of the image's content.
const SEED: u64 = 1;

#[derive(Debug)]
pub(super) enum Ground {
    Loop(LoopDevice),
    /// The device goes first: the server waits until its image is closed.
    Disk(LoopDevice, Server),
    Given(PathBuf),
}

impl Ground {
    pub(super) fn new_in(
        directory: &Path,
        above: &Path,
        spec: &Spec,
        stop: &Stop,
    ) -> Result<Self, FileSystemError> {
        if let Some(device) = &spec.device {
            return Ok(Ground::Given(device.clone()));
        }
        if spec.image != Image::Memory {
            refuse_without_space(directory, spec)?;
        }
        let failed = |error| FileSystemError::failed("--scratch: its image", &error);
        let image = directory.join(DATA_FILE);
        match spec.image {
            Image::Written => {
                match lay_out(directory, spec.size_bytes, SEED, stop).map_err(failed)? {
                    LaidOut::Whole => {}
                    LaidOut::Stopped => return Err(FileSystemError::Interrupted),
                }
            }
            Image::Sparse => {
                let made = File::create(&image).and_then(|file| file.set_len(spec.size_bytes));
                made.map_err(failed)?;
            }
            Image::Memory => {}
        }
        let no_loop = |error| {
            let remedy = "give a block device: device=/dev/NAME";
            FileSystemError::Refused(format!(
                "--scratch: no loop device could be made: {error} ({remedy})"
            ))
        };
        if spec.image != Image::Memory && spec.charges == Charges::NONE {
            return LoopDevice::over(&image).map(Ground::Loop).map_err(no_loop);
        }
        let served = directory.join(SERVED);
        std::fs::create_dir(&served).map_err(failed)?;
        let backing = match spec.image {
            Image::Memory => Backing::Memory,
            Image::Written | Image::Sparse => Backing::File(image),
        };
        let server = Server::start(backing, spec.size_bytes, spec.charges, (&served, above));
        let server = server.map_err(|error| {
            FileSystemError::Refused(format!(
                "--scratch: the image could not be served by FUSE: {error} (it needs /dev/fuse)"
            ))
        })?;
        let device = LoopDevice::over(server.image()).map_err(no_loop)?;
        Ok(Ground::Disk(device, server))
    }

    /// Begins or ends to charge for requests.
    pub(super) fn charge(&mut self, charges: bool) -> io::Result<()> {
        match self {
            Ground::Disk(_, server) => server.charge(charges),
            Ground::Loop(_) | Ground::Given(_) => Ok(()),
        }
    }

    pub(super) fn path(&self) -> &Path {
        match self {
            Ground::Loop(device) | Ground::Disk(device, _) => device.path(),
            Ground::Given(path) => path,
        }
    }

    /// Before each mkfs: somebody may have mounted it since.
    pub(super) fn refuse_in_use(&self) -> Result<(), String> {
        match self {
            Ground::Loop(_) | Ground::Disk(..) => Ok(()),
            Ground::Given(path) => check_target(path).map_err(|error| error.to_string()),
        }
    }
}

fn refuse_without_space(directory: &Path, spec: &Spec) -> Result<(), FileSystemError> {
    let space = rustix::fs::statvfs(directory)
        .map_err(|error| FileSystemError::failed(directory.display(), &error.into()))?;
    let free_bytes = space.f_bavail.saturating_mul(space.f_frsize);
    if spec.size_bytes.saturating_add(BESIDE_BYTES) <= free_bytes {
        return Ok(());
    }
    let (wanted, free) = (spec.size_bytes >> 20, free_bytes >> 20);
    Err(FileSystemError::Refused(format!(
        "--scratch {spec}: an image of {wanted} MiB needs 1024 MiB more than its size, and {free} MiB are free; give a \
         smaller size, or another --dir"
    )))
}
