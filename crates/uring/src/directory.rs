//! An open directory: names of files, and new files beside them.
//!
//! All calls name entries relative to the directory, so a rename of the directory itself changes
//! nothing for them. No call follows a symbolic link in the name.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, StatxAttributes, StatxFlags};
use rustix::io::{Errno, retry_on_intr};

use crate::file::{Identity, Kind, OpenFile};
use crate::open::Access;
use crate::private::PrivateFile;

/// An open directory.
#[derive(Debug)]
pub struct OpenDirectory {
    descriptor: OwnedFd,
    identity: Identity,
}

/// Whether a rename may replace a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Replace {
    /// It replaces a file that has the new name.
    Yes,
    /// It fails with `AlreadyExists` if the new name is taken.
    No,
}

/// Kind of a name in a directory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Named {
    /// Nothing.
    Nothing,
    /// A directory.
    Directory,
    /// A file, a symbolic link, or anything else that a rename can replace.
    File,
}

/// Kind of an entry of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EntryKind {
    /// A directory.
    Directory,
    /// A regular file.
    Regular,
    /// A symbolic link, a device, or anything else.
    Other,
}

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its name.
    pub name: OsString,
    /// Inode number that the directory has for it: below a mount point, the covered one.
    pub inode: u64,
    /// Its kind.
    pub kind: EntryKind,
}

impl OpenDirectory {
    /// Opens a directory for reading. Blocks.
    ///
    /// # Errors
    /// The error of the kernel: `NotFound`, `NotADirectory`, `PermissionDenied`.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))?;
        let identity = Identity::of(&rustix::fs::fstat(&descriptor)?);
        Ok(Self { descriptor, identity })
    }

    /// Returns the identity of the directory.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Returns what a name stands for.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn look(&self, name: &OsStr) -> io::Result<Named> {
        match rustix::fs::statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(status) if FileType::from_raw_mode(status.st_mode).is_dir() => Ok(Named::Directory),
            Ok(_) => Ok(Named::File),
            Err(Errno::NOENT) => Ok(Named::Nothing),
            Err(error) => Err(error.into()),
        }
    }

    /// Creates a file for writing. `mode` has its permission bits, before the umask.
    ///
    /// # Errors
    /// The error of the kernel: `AlreadyExists` if the name is taken.
    pub fn create(&self, name: &OsStr, mode: u32) -> io::Result<PrivateFile> {
        self.open_file(name, OFlags::CREATE | OFlags::EXCL, mode)
    }

    /// Opens a file for writing, and creates it for this user alone if it is missing.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn open_or_create(&self, name: &OsStr) -> io::Result<PrivateFile> {
        self.open_file(name, OFlags::CREATE, 0o600)
    }

    fn open_file(&self, name: &OsStr, how: OFlags, mode: u32) -> io::Result<PrivateFile> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NOCTTY | how;
        let mode = Mode::from_raw_mode(mode);
        let open = || rustix::fs::openat(&self.descriptor, name, flags, mode);
        Ok(PrivateFile::new(retry_on_intr(open)?))
    }

    /// Gives a file of this directory another name, here or in another directory, in one step. A
    /// file system may have no rename that refuses to replace a file. The file is linked there, and
    /// its old name is removed after that, so a crash may leave both names.
    ///
    /// # Errors
    /// The error of the kernel: `CrossesDevices` for another file system, `IsADirectory` if the new
    /// name is a directory. `AlreadyExists` if the new name is taken and may not be replaced.
    pub fn rename(
        &self,
        name: &OsStr,
        to: &OpenDirectory,
        to_name: &OsStr,
        replace: Replace,
    ) -> io::Result<()> {
        let (from, to) = (&self.descriptor, &to.descriptor);
        let rename = || match replace {
            Replace::Yes => rustix::fs::renameat(from, name, to, to_name),
            Replace::No => {
                rustix::fs::renameat_with(from, name, to, to_name, RenameFlags::NOREPLACE)
            }
        };
        match retry_on_intr(rename) {
            Err(Errno::INVAL) if replace == Replace::No => {
                let link = || rustix::fs::linkat(from, name, to, to_name, AtFlags::empty());
                retry_on_intr(link)?;
                // It has the new name, also if the old one stays.
                let _ = self.remove(name);
                Ok(())
            }
            renamed => Ok(renamed?),
        }
    }

    /// Removes the name of a file.
    ///
    /// # Errors
    /// The error of the kernel: `IsADirectory` for a directory.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.descriptor, name, AtFlags::empty())?)
    }

    /// Makes a directory. `mode` has its permission bits, before the umask.
    ///
    /// # Errors
    /// The error of the kernel: `AlreadyExists` if the name is taken.
    pub fn make_directory(&self, name: &OsStr, mode: u32) -> io::Result<()> {
        Ok(rustix::fs::mkdirat(&self.descriptor, name, Mode::from_raw_mode(mode))?)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// The error of the kernel: `DirectoryNotEmpty` if it has entries.
    pub fn remove_directory(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.descriptor, name, AtFlags::REMOVEDIR)?)
    }

    /// Returns the names that start with `prefix`. Reads the whole directory.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn names(&self, prefix: &str) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.descriptor)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name.starts_with(prefix.as_bytes()) {
                names.push(OsString::from_vec(name.to_vec()));
            }
        }
        Ok(names)
    }

    /// Returns all entries but `.` and `..`, in any order. Reads the whole directory.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn entries(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in Dir::read_from(&self.descriptor)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let name = OsString::from_vec(name.to_vec());
            let kind = match entry.file_type() {
                FileType::Unknown => self.type_of(&name)?,
                known => Some(known),
            };
            let kind = match kind {
                // Removed since.
                None => continue,
                Some(FileType::Directory) => EntryKind::Directory,
                Some(FileType::RegularFile) => EntryKind::Regular,
                Some(_) => EntryKind::Other,
            };
            entries.push(Entry { name, inode: entry.ino(), kind });
        }
        Ok(entries)
    }

    fn type_of(&self, name: &OsStr) -> io::Result<Option<FileType>> {
        match rustix::fs::statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(status) => Ok(Some(FileType::from_raw_mode(status.st_mode))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a directory in this one. Follows no symbolic link.
    ///
    /// # Errors
    /// As [`OpenDirectory::open`].
    pub fn open_directory(&self, name: &OsStr) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let open = || rustix::fs::openat(&self.descriptor, name, flags, Mode::empty());
        let descriptor = retry_on_intr(open)?;
        let identity = Identity::of(&rustix::fs::fstat(&descriptor)?);
        Ok(Self { descriptor, identity })
    }

    /// Opens a regular file of this directory for buffered I/O. Follows no symbolic link.
    ///
    /// # Errors
    /// The error of the kernel; `WouldBlock` if another program has a lease of the file, which
    /// breaks it; `InvalidInput` if it is no regular file.
    pub fn open_existing(&self, name: &OsStr, access: Access) -> io::Result<OpenFile> {
        let access = match access {
            Access::Read => OFlags::RDONLY,
            Access::ReadWrite => OFlags::RDWR,
        };
        // Without blocking: neither on a pipe nor on a lease.
        let flags = access | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::NONBLOCK;
        let open = || rustix::fs::openat(&self.descriptor, name, flags, Mode::empty());
        let descriptor = retry_on_intr(open)?;
        rustix::fs::fcntl_setfl(&descriptor, OFlags::empty())?;
        let file = OpenFile::of_descriptor(descriptor)?;
        if file.kind() == Kind::Regular {
            Ok(file)
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
        }
    }

    /// Returns whether a file system is mounted on an entry, or the kernel cannot tell. An entry
    /// that is missing has none.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn is_mounted_on(&self, name: &OsStr) -> io::Result<bool> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        match rustix::fs::statx(&self.descriptor, name, flags, StatxFlags::TYPE) {
            Ok(status) => {
                let root = StatxAttributes::MOUNT_ROOT;
                Ok(!status.stx_attributes_mask.contains(root)
                    || status.stx_attributes.contains(root))
            }
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes the entries of the directory durable (`fsync`). Blocks.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn sync(&self) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::fsync(&self.descriptor))?)
    }
}
