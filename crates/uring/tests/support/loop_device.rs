//! A loop device over an image of a test's own; detached when dropped.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::process::{is_root, run, skip, skip_or_fail};

#[derive(Debug)]
pub(crate) struct LoopDevice {
    directory: TempDir,
    path: PathBuf,
    is_attached: bool,
}

/// How the device is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) bytes: u64,
    pub(crate) logical_block: u32,
}

impl LoopDevice {
    /// Makes one in a directory; `None`, with the reason said, where that is not possible.
    pub(crate) fn new(test: &str, directory: TempDir, shape: Shape) -> Option<Self> {
        if !is_root() {
            skip(test, "only root can make a loop device");
            return None;
        }
        let image = directory.path().join("image");
        fs::File::create(&image).unwrap().set_len(shape.bytes).unwrap();
        let block = shape.logical_block.to_string();
        let arguments = ["--find", "--show", "--sector-size", &block].map(OsStr::new);
        let arguments: Vec<&OsStr> = arguments.into_iter().chain([image.as_os_str()]).collect();
        match run("losetup", &arguments) {
            Ok(path) => Some(Self { directory, path: path.into(), is_attached: true }),
            Err(error) => {
                skip_or_fail(test, &error);
                None
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn image(&self) -> PathBuf {
        self.directory.path().join("image")
    }

    /// Tells the device that its image has another size.
    pub(crate) fn take_size(&self) {
        run("losetup", &[OsStr::new("--set-capacity"), self.path.as_os_str()]).unwrap();
    }

    /// Takes the image from under it: at once, or when its last user closes it.
    pub(crate) fn detach(&mut self) {
        self.is_attached = false;
        run("losetup", &[OsStr::new("--detach"), self.path.as_os_str()]).unwrap();
    }

    /// Whether an image is under it.
    pub(crate) fn has_image(&self) -> bool {
        let name = self.path.file_name().unwrap().to_str().unwrap();
        Path::new("/sys/block").join(name).join("loop/backing_file").exists()
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if self.is_attached {
            let detached = run("losetup", &[OsStr::new("--detach"), self.path.as_os_str()]);
            assert!(detached.is_ok() || std::thread::panicking(), "{detached:?}");
        }
    }
}
