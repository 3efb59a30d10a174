//! The device below: an image on a loop device, or an unused block device.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::load::check_target;
use crate::load::data::{LaidOut, lay_out};
use crate::loop_device::LoopDevice;
use crate::request::DATA_FILE;
use crate::scratch::Stop;

use super::{FileSystemError, Image, Spec};

/// Space that stays free beside an image.
const BESIDE_BYTES: u64 = 1 << 30;

/// Seed of the image's content.
const SEED: u64 = 1;

#[derive(Debug)]
pub(super) enum Ground {
    Loop(LoopDevice),
    Given(PathBuf),
}

impl Ground {
    pub(super) fn new_in(
        directory: &Path,
        spec: &Spec,
        stop: &Stop,
    ) -> Result<Self, FileSystemError> {
        if let Some(device) = &spec.device {
            return Ok(Ground::Given(device.clone()));
        }
        refuse_without_space(directory, spec)?;
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
        }
        LoopDevice::over(&image).map(Ground::Loop).map_err(|error| {
            let remedy = "give a block device: device=/dev/NAME";
            FileSystemError::Refused(format!(
                "--scratch: no loop device could be made: {error} ({remedy})"
            ))
        })
    }

    pub(super) fn path(&self) -> &Path {
        match self {
            Ground::Loop(device) => device.path(),
            Ground::Given(path) => path,
        }
    }

    /// Before each mkfs: somebody may have mounted it since.
    pub(super) fn refuse_in_use(&self) -> Result<(), String> {
        match self {
            Ground::Loop(_) => Ok(()),
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
