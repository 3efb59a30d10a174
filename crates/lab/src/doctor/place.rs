//! The place that is asked about: a file, a directory or a block device.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::manifest::mount;
use crate::refusal::Refusal;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    File,
    Directory,
    Device,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Place {
    /// As it was given, without links.
    pub(super) path: PathBuf,
    pub(super) kind: Kind,
    /// The directory itself, or the one that the file is in.
    pub(super) directory: PathBuf,
    /// The user it belongs to.
    pub(super) owner: u32,
    /// The number that the kernel knows its file system by.
    pub(super) file_system: u64,
    pub(super) inode: u64,
    /// The number of the block device that it is.
    pub(super) own_device: u64,
}

impl Place {
    pub(super) fn of(path: &Path) -> Result<Self, Refusal> {
        let refused = |error: io::Error| {
            let remedy = "give an existing file, directory or block device";
            Refusal(format!("cannot look at {}: {error}; {remedy}", path.display()))
        };
        let real = fs::canonicalize(path).map_err(refused)?;
        let data = fs::metadata(&real).map_err(refused)?;
        let kind = match data.file_type() {
            kind if kind.is_file() => Kind::File,
            kind if kind.is_dir() => Kind::Directory,
            kind if kind.is_block_device() => Kind::Device,
            _ => {
                let what = "not a file, directory or block device; give one of these";
                return Err(Refusal(format!("{}: {what}", path.display())));
            }
        };
        let directory = match kind {
            Kind::Directory => real.clone(),
            Kind::File | Kind::Device => real.parent().unwrap_or(Path::new("/")).to_owned(),
        };
        Ok(Self {
            kind,
            directory,
            owner: data.uid(),
            file_system: mount::file_system_number(&real),
            inode: data.ino(),
            own_device: data.rdev(),
            path: real,
        })
    }

    /// Whether files are there: not on a bare device.
    pub(super) fn is_on_file_system(&self) -> bool {
        self.kind != Kind::Device
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_what_the_path_leads_to() {
        let directory = tempfile::tempdir().unwrap();
        let real = directory.path().canonicalize().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "x").unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let place = Place::of(&link).unwrap();
        assert_eq!(
            (place.kind, &place.path, &place.directory),
            (Kind::File, &real.join("file"), &real)
        );
        let place = Place::of(directory.path()).unwrap();
        assert_eq!((place.kind, &place.directory), (Kind::Directory, &real));
        assert!(place.is_on_file_system());
    }

    #[test]
    fn what_is_no_place_is_refused_with_what_would_be_one() {
        let told = |path: &str| Place::of(Path::new(path)).unwrap_err().to_string();
        assert!(
            told("/no/such/place")
                .contains("No such file or directory (os error 2); give an existing")
        );
        assert_eq!(
            told("/dev/null"),
            "/dev/null: not a file, directory or block device; give one of these"
        );
    }
}
