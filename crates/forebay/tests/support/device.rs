//! A block device of a test's own: a loop device over an image, as large, with sectors as large, as
//! the test wants.

use std::ffi::OsStr;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{made_by_root, process};

/// Size, sectors and place of the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Of the image, from `offset` on.
    pub(crate) bytes: u64,
    /// Bytes in a logical block.
    pub(crate) sector: u64,
    /// Where in the image it begins, as a partition does.
    pub(crate) offset: u64,
}

impl Shape {
    pub(crate) fn new(bytes: u64, sector: u64) -> Self {
        Self { bytes, sector, offset: 0 }
    }

    /// Bytes that can be reached: whole sectors.
    pub(crate) fn size(self) -> u64 {
        self.bytes / self.sector * self.sector
    }
}

/// The device; detached when dropped.
#[derive(Debug)]
pub(crate) struct Device {
    node: PathBuf,
    shape: Shape,
    directory: TempDir,
}

impl Device {
    /// Makes one in a directory of the build's file system; `None`, with the reason said, where
    /// that is not possible.
    pub(crate) fn new(test: &str, shape: Shape) -> Option<Self> {
        Self::new_in(test, shape, super::directory())
    }

    pub(crate) fn new_in(test: &str, shape: Shape, directory: TempDir) -> Option<Self> {
        made_by_root(test, "make a loop device", || {
            let image = directory.path().join("image");
            std::fs::File::create(&image).unwrap().set_len(shape.offset + shape.bytes).unwrap();
            let node = attach(&image, shape, &[])?;
            Ok(Self { node, shape, directory })
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.node
    }

    pub(crate) fn image(&self) -> PathBuf {
        self.directory.path().join("image")
    }

    /// Makes it anew, so that it refuses writes; perhaps with another number.
    pub(crate) fn make_read_only(&mut self) {
        detach(&self.node).unwrap();
        self.node = attach(&self.image(), self.shape, &["--read-only"]).unwrap();
    }

    /// Tells the device that its image has another size.
    pub(crate) fn take_size(&self) {
        process::run("losetup", &[OsStr::new("--set-capacity"), self.node.as_os_str()]).unwrap();
    }

    /// Content of the device as another program reads it, past every cache.
    pub(crate) fn stored(&self) -> Vec<u8> {
        const PIECE: usize = 1 << 20;
        let mut options = std::fs::OpenOptions::new();
        let device = options.read(true).custom_flags(libc::O_DIRECT).open(&self.node).unwrap();
        let mut room = vec![0; PIECE + 4096];
        let aligned = room.as_ptr().align_offset(4096);
        let piece = &mut room[aligned..aligned + PIECE];
        let mut stored = Vec::new();
        while stored.len() < self.shape.size() as usize {
            let left = (self.shape.size() as usize - stored.len()).min(PIECE);
            device.read_exact_at(&mut piece[..left], stored.len() as u64).unwrap();
            stored.extend_from_slice(&piece[..left]);
        }
        stored
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if let Err(error) = detach(&self.node)
            && !std::thread::panicking()
        {
            panic!("{error}");
        }
    }
}

fn attach(image: &Path, shape: Shape, more: &[&str]) -> Result<PathBuf, String> {
    let (sector, offset) = (shape.sector.to_string(), shape.offset.to_string());
    let arguments = ["--find", "--show", "--sector-size", &sector, "--offset", &offset];
    let arguments = arguments.iter().chain(more).map(OsStr::new).chain([image.as_os_str()]);
    Ok(process::run("losetup", &arguments.collect::<Vec<_>>())?.into())
}

fn detach(node: &Path) -> Result<String, String> {
    process::run("losetup", &[OsStr::new("--detach"), node.as_os_str()])
}
