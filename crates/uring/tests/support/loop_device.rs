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
    /// Makes one in a directory; `None`, with the reason printed, if that is not possible.
    pub(crate) fn new(test: &str, directory: TempDir, shape: Shape) -> Option<Self> {
        if !is_root() {
            skip(test, "only root can make a loop device");
            return None;
        }
        let image = directory.path().join("image");
        fs::File::create(&image).unwrap().set_len(shape.bytes).unwrap();
        match attach(&image, shape, &[]) {
            Ok(path) => Some(Self { directory, path, is_attached: true }),
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

    /// Makes it anew, read-only, perhaps with another number.
    pub(crate) fn make_read_only(&mut self, shape: Shape) {
        self.detach();
        self.path = attach(&self.image(), shape, &["--read-only"]).unwrap();
        self.is_attached = true;
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

fn attach(image: &Path, shape: Shape, more: &[&str]) -> Result<PathBuf, String> {
    let block = shape.logical_block.to_string();
    let arguments = ["--find", "--show", "--sector-size", &block];
    let arguments = arguments.iter().chain(more).map(OsStr::new).chain([image.as_os_str()]);
    Ok(run("losetup", &arguments.collect::<Vec<_>>())?.into())
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if self.is_attached {
            let detached = run("losetup", &[OsStr::new("--detach"), self.path.as_os_str()]);
            assert!(detached.is_ok() || std::thread::panicking(), "{detached:?}");
        }
    }
}
