//! The device below: an image on a loop device, perhaps served by a disk that charges, or an unused
//! block device.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::disk::{Backing, Charges, Order, Server};
use crate::load::data::{LaidOut, lay_out};
use crate::load::guard::check_target;
use crate::loop_device::LoopDevice;
use crate::request::DATA_FILE;
use crate::stop::Stop;

use super::{FileSystemError, Image, Spec};

/// Space that stays free beside an image.
const BESIDE_BYTES: u64 = 1 << 30;

/// Where the image of a disk that charges is served.
const SERVED: &str = "served";

/// Seed of the image's content.
const SEED: u64 = 1;

#[derive(Debug)]
pub(super) struct Ground {
    path: PathBuf,
    /// None of a block device that was given. Goes before the server, which waits until its image
    /// is closed.
    device: Option<LoopDevice>,
    /// Of a disk that charges, or is in memory.
    server: Option<Server>,
}

impl Ground {
    pub(super) fn new_in(
        directory: &Path,
        above: &Path,
        spec: &Spec,
        stop: &Stop,
    ) -> Result<Self, FileSystemError> {
        if let Some(device) = &spec.device {
            return Ok(Self { path: device.clone(), device: None, server: None });
        }
        let failed = |error| FileSystemError::failed("--scratch: its image", &error);
        let refused = |what: String| FileSystemError::Refused(format!("--scratch: {what}"));
        let image = directory.join(DATA_FILE);
        if spec.image != Image::Memory {
            refuse_without_space(directory, spec)?;
        }
        match spec.image {
            Image::Written => {
                let written = lay_out(directory, spec.size_bytes, SEED, stop).map_err(failed)?;
                if written == LaidOut::Stopped {
                    return Err(FileSystemError::Interrupted);
                }
            }
            Image::Sparse => {
                let made = File::create(&image).and_then(|file| file.set_len(spec.size_bytes));
                made.map_err(failed)?;
            }
            Image::Memory => {}
        }
        let mut server = None;
        if spec.image == Image::Memory || spec.charges != Charges::NONE {
            let served = directory.join(SERVED);
            fs::create_dir(&served).map_err(failed)?;
            let backing = match spec.image {
                Image::Memory => Backing::Memory,
                Image::Written | Image::Sparse => Backing::File(image.clone()),
            };
            let (bytes, charges) = (spec.size_bytes, spec.charges);
            let order = Order { backing, bytes, charges, at: served, above: above.to_owned() };
            let started = Server::start(&order).map_err(|error| {
                let what = "the image could not be served by FUSE";
                refused(format!("{what}: {error} (it needs /dev/fuse)"))
            });
            server = Some(started?);
        }
        let image = server.as_ref().map_or(image.as_path(), Server::image);
        let device = LoopDevice::over(image).map_err(|error| {
            let remedy = "give a block device: device=/dev/NAME";
            refused(format!("no loop device could be made: {error} ({remedy})"))
        })?;
        Ok(Self { path: device.path().to_owned(), device: Some(device), server })
    }

    /// Begins or ends to charge for requests.
    pub(super) fn charge(&mut self, charges: bool) -> io::Result<()> {
        self.server.as_mut().map_or(Ok(()), |server| server.charge(charges))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Refuses a block device that somebody has mounted since.
    pub(super) fn refuse_in_use(&self) -> Result<(), String> {
        match self.device {
            Some(_) => Ok(()),
            None => check_target(&self.path).map_err(|error| error.to_string()),
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
