//! Files by inode number: the path of the record first, then a walk of the directory.
//!
//! The walk stays on the file system of the directory and follows no symbolic link. A file below a
//! mount point is out of its reach, and so is one in a directory that cannot be read. A file that
//! was not found then is not taken for a deleted one.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path, PathBuf};

use crate::core::error::{Error, Result};
use crate::platform::{Access, EntryKind, OpenDirectory, OpenFile};

/// The place of a file below the directory of the log.
#[derive(Debug)]
pub(super) struct Place {
    /// Relative path.
    pub(super) path: PathBuf,
}

/// The search for files.
#[derive(Debug)]
pub(super) struct Lookup {
    root: OpenDirectory,
    /// First place where files may be that the walk cannot reach, and the reason.
    hidden: Option<(PathBuf, String)>,
}

impl Lookup {
    pub(super) fn new(directory: &Path) -> Result<Self> {
        let root = OpenDirectory::open(directory).map_err(|error| {
            Error::at_open("could not open the directory of the intent log", directory, error)
        })?;
        Ok(Self { root, hidden: None })
    }

    /// Returns the first place that the walk could not reach, and the reason.
    pub(super) fn hidden(&self) -> Option<(&Path, &str)> {
        self.hidden.as_ref().map(|(path, reason)| (path.as_path(), reason.as_str()))
    }

    /// Returns the places of the files that exist, by inode number.
    pub(super) fn find(&mut self, mut wanted: BTreeMap<u64, PathBuf>) -> BTreeMap<u64, Place> {
        let mut found = BTreeMap::new();
        wanted.retain(|inode, hint| {
            let is_there =
                self.open(hint, Access::Read).is_ok_and(|file| file.identity().inode == *inode);
            if is_there {
                found.insert(*inode, Place { path: hint.clone() });
            }
            !is_there
        });
        let mut left = vec![PathBuf::new()];
        while !wanted.is_empty()
            && let Some(path) = left.pop()
        {
            if let Err(error) = self.look(&path, &mut wanted, &mut found, &mut left)
                && error.kind() != io::ErrorKind::NotFound
            {
                self.hide(&path, &error.to_string());
            }
        }
        found
    }

    /// Looks at the entries of a directory.
    fn look(
        &mut self,
        path: &Path,
        wanted: &mut BTreeMap<u64, PathBuf>,
        found: &mut BTreeMap<u64, Place>,
        left: &mut Vec<PathBuf>,
    ) -> io::Result<()> {
        let directory = self.directory(path)?;
        for entry in directory.entries()? {
            let is_wanted = match entry.kind {
                EntryKind::Directory => true,
                EntryKind::Regular => wanted.contains_key(&entry.inode),
                EntryKind::Other => false,
            };
            if !is_wanted {
                continue;
            }
            let place = path.join(&entry.name);
            if directory.is_mounted_on(&entry.name)? {
                self.hide(&place, "a file system is mounted there");
            } else if entry.kind == EntryKind::Directory {
                left.push(place);
            } else {
                wanted.remove(&entry.inode);
                found.insert(entry.inode, Place { path: place });
            }
        }
        Ok(())
    }

    fn hide(&mut self, path: &Path, reason: &str) {
        self.hidden.get_or_insert_with(|| (path.to_owned(), reason.to_owned()));
    }

    /// Opens a file by its path below the directory.
    pub(super) fn open(&self, path: &Path, access: Access) -> io::Result<OpenFile> {
        let name = path.file_name().ok_or(io::ErrorKind::NotFound)?;
        let directory = self.directory(path.parent().unwrap_or(Path::new("")))?;
        let file = directory.open_existing(name, access)?;
        if file.identity().device == self.root.identity().device {
            Ok(file)
        } else {
            Err(io::ErrorKind::CrossesDevices.into())
        }
    }

    /// Opens a directory below the root, name by name.
    fn directory(&self, path: &Path) -> io::Result<OpenDirectory> {
        let mut names: Vec<OsString> = vec![OsString::from(".")];
        for component in path.components() {
            match component {
                Component::Normal(name) => names.push(name.to_owned()),
                _ => return Err(io::ErrorKind::NotFound.into()),
            }
        }
        let mut directory = self.root.open_directory(OsStr::new("."))?;
        for name in &names[1..] {
            directory = directory.open_directory(name)?;
        }
        Ok(directory)
    }
}
