//! A file system of a comparison's own: made anew and mounted before each cell, so that no cell
//! finds what another has left; or made once and kept if asked for.
//!
//! ```text
//! image, written once --loop device--+
//!                                    +--> mkfs, mount --> cell --> unmount --> mkfs, ...
//! a block device, given -------------+
//! ```
//!
//! It is mounted in a mount namespace of this program's own, which only the processes of its cells
//! share. So it disappears with the last of them, also after SIGKILL, and the loop device with it
//! (`loop_device.rs`). The price: nobody can look into it from outside while it is there.
//!
//! The image is written in full before: else each write would wait for the file system below to
//! find space, and that file system would be measured. A disk that charges (`disk`) does not charge
//! while a file system is made, mounted and unmounted.

mod ground;
mod spec;

use std::ffi::CString;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount,
};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use serde::{Deserialize, Serialize};

use crate::manifest::Storage;
use crate::stop::Stop;

use ground::Ground;
pub use spec::{Image, Kind, Per, Spec};

/// Where it is mounted, below the directory it was given.
const MOUNT_POINT: &str = "mounted";

/// Other processes may have it open for a moment after the cell has ended.
const UNMOUNT_TRIES: u32 = 50;
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// How it was made: what another needs to make the same.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Made {
    pub spec: String,
    pub command: String,
    pub output: String,
    /// Options of the mount, those the kernel adds included.
    pub options: String,
}

#[derive(Debug, thiserror::Error)]
pub enum FileSystemError {
    /// Not here, or not so; with a remedy.
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Failed(String),
    #[error("interrupted")]
    Interrupted,
}

impl FileSystemError {
    /// Returns a failure with the message of the system.
    pub(crate) fn failed(what: impl fmt::Display, error: &io::Error) -> Self {
        Self::Failed(format!("{what}: {error}"))
    }
}

/// A file system of our own. Unmounted when dropped.
#[derive(Debug)]
pub struct FileSystem {
    spec: Spec,
    is_mounted: bool,
    mount_point: PathBuf,
    pub(crate) made: Made,
    /// As it was when it was first mounted.
    pub(crate) storage: Storage,
    /// Goes last: a device in use cannot be let go of.
    ground: Ground,
}

impl FileSystem {
    /// Makes one in an empty directory, mounts it once, and so knows that it can be had. Blocks
    /// until the image is written.
    ///
    /// # Errors
    /// `Refused` with the reason: no root, no space, a device that is in use, what mkfs does not
    /// do.
    pub fn new_in(directory: &Path, spec: &Spec, stop: &Stop) -> Result<Self, FileSystemError> {
        let failed = |what: &'static str| {
            move |error| FileSystemError::failed(format!("--scratch: {what}"), &error)
        };
        own_namespace().map_err(failed("a mount namespace of its own"))?;
        let mount_point = directory.join(MOUNT_POINT);
        let ground = Ground::new_in(directory, &mount_point, spec, stop)?;
        fs::create_dir(&mount_point).map_err(failed("the mount point"))?;
        let mut file_system = Self {
            spec: spec.clone(),
            is_mounted: false,
            mount_point,
            made: Made { spec: spec.to_string(), ..Made::default() },
            storage: Storage::default(),
            ground,
        };
        let refused = |what| FileSystemError::Refused(format!("--scratch {spec}: {what}"));
        file_system.make().map_err(refused)?;
        let mounted = file_system.mount();
        mounted.map_err(|error| refused(format!("it could not be mounted: {error}")))?;
        file_system.storage = Storage::of(&file_system.mount_point);
        file_system.made.options.clone_from(&file_system.storage.options);
        if spec.per == Per::Cell {
            file_system.unmount().map_err(failed("it could not be unmounted"))?;
        }
        Ok(file_system)
    }

    /// Mounts it, made anew if each cell has its own, and returns the mount point.
    pub fn renew(&mut self) -> io::Result<&Path> {
        if self.spec.per == Per::Cell {
            self.unmount()?;
            self.make().map_err(io::Error::other)?;
        }
        if !self.is_mounted {
            self.mount()?;
        }
        Ok(&self.mount_point)
    }

    /// Ends a cell: unmounts it, or, if it is kept, removes the content of `cells` and syncs.
    pub fn rest(&mut self, cells: &Path) -> io::Result<()> {
        if self.spec.per == Per::Cell {
            return self.unmount();
        }
        let cells = self.mount_point.join(cells);
        if cells.exists() {
            fs::remove_dir_all(cells)?;
        }
        Ok(rustix::fs::syncfs(File::open(&self.mount_point)?)?)
    }

    /// Returns the device, with nothing mounted on it until [`FileSystem::renew`] is called.
    ///
    /// # Errors
    ///
    /// If it is kept, and the system's message.
    pub fn bare_device(&mut self) -> io::Result<&Path> {
        if self.spec.per == Per::Comparison {
            let what = "the file system on it is kept (leave `keep` out of --scratch)";
            return Err(io::Error::other(what));
        }
        self.unmount()?;
        self.ground.charge(true)?;
        Ok(self.ground.path())
    }

    /// Returns its mount point, if it is kept for all cells.
    pub fn kept_at(&self) -> Option<&Path> {
        (self.spec.per == Per::Comparison).then_some(&self.mount_point)
    }

    /// Returns whether its image is in memory.
    pub fn is_in_memory(&self) -> bool {
        self.spec.image == Image::Memory
    }

    /// Makes it. The output of the first mkfs is kept; later ones differ in an identifier.
    fn make(&mut self) -> Result<(), String> {
        self.ground.refuse_in_use()?;
        self.ground.charge(false).map_err(|error| error.to_string())?;
        assert!(!self.is_mounted, "a mounted file system is not made anew");
        let words = self.spec.make_command(self.ground.path());
        let (program, arguments) = words.split_first().expect("a command has a first word");
        let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
        let Output { status, stdout, stderr } = output.map_err(|error| {
            format!("{program}: {error} (install it: xfsprogs, e2fsprogs or btrfs-progs)")
        })?;
        if !status.success() {
            return Err(format!("{program}: {}", reason(&stderr, &stdout)));
        }
        if self.made.command.is_empty() {
            self.made.command = words.join(" ");
            self.made.output = plain(&stdout);
        }
        Ok(())
    }

    fn mount(&mut self) -> io::Result<()> {
        assert!(!self.is_mounted, "it is mounted once");
        let options = CString::new(self.spec.mount_options).expect("options hold no zero");
        let (device, kind) = (self.ground.path(), self.spec.kind.name());
        mount(device, &self.mount_point, kind, MountFlags::empty(), options.as_c_str())?;
        self.is_mounted = true;
        self.ground.charge(true)
    }

    fn unmount(&mut self) -> io::Result<()> {
        if !self.is_mounted {
            return Ok(());
        }
        self.ground.charge(false)?;
        let mut unmounted = unmount(&self.mount_point, UnmountFlags::empty());
        for _ in 0..UNMOUNT_TRIES {
            if unmounted != Err(Errno::BUSY) {
                break;
            }
            std::thread::sleep(BETWEEN_TRIES);
            unmounted = unmount(&self.mount_point, UnmountFlags::empty());
        }
        self.is_mounted = unmounted.is_err();
        Ok(unmounted?)
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        if self.unmount().is_err() {
            // It disappears with the last process that holds it.
            let _ = unmount(&self.mount_point, UnmountFlags::DETACH);
        }
    }
}

/// Moves this thread to a mount namespace of its own. Mounts made from here on are visible to this
/// thread and to the processes that it starts, and disappear with the last of them. A mount that
/// others unmount ends here, too, if the system shares its mounts, as systemd does.
fn own_namespace() -> io::Result<()> {
    // SAFETY: of what threads share only mounts and the working directory are parted; no descriptor
    // changes.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    let downwards = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    Ok(mount_change("/", downwards)?)
}

/// Returns the reason that a program gave, in one line.
fn reason(errors: &[u8], output: &[u8]) -> String {
    let said = if errors.trim_ascii().is_empty() { output } else { errors };
    let lines = plain(said);
    // Its usage, which some programs print behind, tells nothing of this case.
    let lines = lines.lines().take_while(|line| !line.starts_with("Usage:"));
    let line = lines.collect::<Vec<_>>().join("; ");
    if line.is_empty() { "it failed, and did not say why".to_owned() } else { line }
}

/// Removes characters that move a cursor, and empty lines.
fn plain(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let lines = text.lines().map(|line| line.replace(|letter: char| letter.is_control(), " "));
    let lines = lines.map(|line| line.trim_end().to_owned()).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
pub(crate) mod tests;
