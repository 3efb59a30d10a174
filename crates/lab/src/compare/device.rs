//! The block device that jobs on one write over: the one the user names, that of the cells' own
//! file system while nothing is mounted on it, or, for root, a loop device over a file of our own,
//! every byte of it written beforehand so that no write has to allocate below.

use std::io;
use std::path::{Path, PathBuf};

use crate::load::data;
use crate::loop_device::LoopDevice;
use crate::request::DATA_FILE;

use super::outcome::Setting;

/// Below the directory that cells share.
const DIRECTORY: &str = "device";

#[derive(Debug)]
pub(super) enum Device {
    /// The user's.
    Given(PathBuf),
    /// Ours.
    Loop(LoopDevice),
}

#[derive(Debug)]
pub(super) enum Found {
    Device(Device),
    /// No device, and the reason.
    None(String),
    Stopped,
}

impl Device {
    pub(super) fn path(&self) -> &Path {
        match self {
            Device::Given(path) => path,
            Device::Loop(device) => device.path(),
        }
    }
}

/// Returns the user's device, or makes one of `bytes`.
pub(super) fn find(setting: &Setting<'_>, bytes: u64) -> io::Result<Found> {
    if let Some(target) = setting.target {
        return Ok(Found::Device(Device::Given(target.to_owned())));
    }
    match setting.scratch.bare_device() {
        Some(Ok(device)) => return Ok(Found::Device(Device::Given(device))),
        Some(Err(error)) => return Ok(Found::None(error.to_string())),
        None => {}
    }
    if !rustix::process::geteuid().is_root() {
        return Ok(Found::None(
            "a loop device needs root (or give a device with --target)".to_owned(),
        ));
    }
    let directory = setting.scratch.shared_directory()?.join(DIRECTORY);
    std::fs::create_dir_all(&directory)?;
    if !data::is_laid_out(&directory, bytes) {
        if !setting.writes.has_room(bytes) {
            let mib = bytes >> 20;
            return Ok(Found::None(format!(
                "a device of {mib} MiB would be more than may be written (give --max-writes more, or a device with \
                 --target)"
            )));
        }
        setting.writes.add(bytes);
    }
    if data::lay_out(&directory, bytes, setting.plan.seed, setting.stop)? == data::LaidOut::Stopped
    {
        return Ok(Found::Stopped);
    }
    Ok(match LoopDevice::over(&directory.join(DATA_FILE)) {
        Ok(device) => Found::Device(Device::Loop(device)),
        Err(error) => Found::None(format!(
            "no loop device could be made: {error} (give a device with --target)"
        )),
    })
}
