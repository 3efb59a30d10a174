//! Open directories, and the changes of the names in them.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;

use forebay_block::{Errno, Operation};
use forebay_uring::{Access, Entry, EntryKind, Identity, Kind, Named, Replace};

use super::file::OpenFile;
use super::private_file::PrivateFile;
use crate::world;
use crate::world::machine::{
    Content, Flags, Found, Last, Machine, Opening, Work, call, call_bio, points,
};

/// An open directory.
///
/// Names are those of its entries. Only [`OpenDirectory::open_or_create`] follows a symbolic link.
#[derive(Debug)]
pub struct OpenDirectory(OpenFile);

impl OpenDirectory {
    /// Opens a directory.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, and others of the file system.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = Flags { is_directory: true, ..Flags::READ };
        let descriptor = call(|machine| opened(machine.open(path, flags, world::process())?))?;
        OpenFile::buffered(descriptor).map(Self)
    }

    /// Returns the identity of the directory.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.0.identity()
    }

    /// Returns what a name stands for.
    ///
    /// # Errors
    /// If the descriptor is closed.
    pub fn look(&self, name: &OsStr) -> io::Result<Named> {
        call(|machine| {
            let found = machine.entry(self.0.number(), name, Last::Keep)?;
            Ok(match found.node {
                None => Named::Nothing,
                Some(node) if machine.inode(node).is_directory() => Named::Directory,
                Some(_) => Named::File,
            })
        })
    }

    /// Creates a file. The machine has one user, so the mode changes nothing.
    ///
    /// # Errors
    /// `AlreadyExists`, and others of the file system.
    pub fn create(&self, name: &OsStr, _mode: u32) -> io::Result<PrivateFile> {
        self.open_file(name, Flags { is_new: true, ..Flags::READ })
    }

    /// Opens a file that is only locked, and creates it if it is missing.
    ///
    /// # Errors
    /// `WouldBlock` if another program has a lease of the file, and errors of the file system.
    pub fn open_or_create(&self, name: &OsStr) -> io::Result<PrivateFile> {
        self.open_file(name, Flags { creates: true, ..Flags::READ })
    }

    fn open_file(&self, name: &OsStr, flags: Flags) -> io::Result<PrivateFile> {
        let flags = Flags { access: Access::ReadWrite, ..flags };
        let descriptor = call(|machine| {
            machine.try_names()?;
            opened(machine.open_at((self.0.number(), name), flags, world::process())?)
        })?;
        points::pass();
        PrivateFile::of(descriptor)
    }

    /// Moves a name to a directory, which may be this one.
    ///
    /// # Errors
    /// `AlreadyExists` if the name is taken and `replace` is [`Replace::No`]. `IsADirectory` for a
    /// file over a directory, `CrossesDevices`, and others of the file system.
    pub fn rename(
        &self,
        name: &OsStr,
        to: &OpenDirectory,
        to_name: &OsStr,
        replace: Replace,
    ) -> io::Result<()> {
        self.change(name, |machine, found| {
            let target = machine.entry(to.0.number(), to_name, Last::Keep)?;
            machine.rename(found, &target, replace)
        })
    }

    /// Removes the name of a file.
    ///
    /// # Errors
    /// `IsADirectory`, `NotFound`, and others of the file system.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        self.change(name, Machine::unlink)
    }

    /// Makes a directory. The machine has one user, so the mode changes nothing.
    ///
    /// # Errors
    /// `AlreadyExists`, and others of the file system.
    pub fn make_directory(&self, name: &OsStr, _mode: u32) -> io::Result<()> {
        self.change(name, Machine::make_directory)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `DirectoryNotEmpty`, `NotADirectory`, `NotFound`, and others of the file system.
    pub fn remove_directory(&self, name: &OsStr) -> io::Result<()> {
        self.change(name, Machine::remove_directory)
    }

    /// Changes a name, unless that fails.
    fn change(
        &self,
        name: &OsStr,
        act: impl FnOnce(&mut Machine, &Found) -> Result<(), Errno>,
    ) -> io::Result<()> {
        call(|machine| {
            machine.try_names()?;
            let found = machine.entry(self.0.number(), name, Last::Keep)?;
            act(machine, &found)
        })?;
        points::pass();
        Ok(())
    }

    /// Returns the names in the directory that start with `prefix`, in any order.
    ///
    /// # Errors
    /// If the descriptor is closed.
    pub fn names(&self, prefix: &str) -> io::Result<Vec<OsString>> {
        let mut names = call(|machine| machine.entries(self.0.number()))?;
        names.retain(|name| name.as_encoded_bytes().starts_with(prefix.as_bytes()));
        Ok(names)
    }

    /// Returns the entries of the directory, in any order.
    ///
    /// # Errors
    /// If the descriptor is closed.
    pub fn entries(&self) -> io::Result<Vec<Entry>> {
        call(|machine| {
            let names = machine.entries(self.0.number())?;
            let entry = |name: OsString| {
                let found = machine.entry(self.0.number(), &name, Last::Keep)?;
                let node = found.node.ok_or(Errno(libc::ENOENT))?;
                let inode = machine.inode(node);
                let kind = match inode.content {
                    Content::Directory => EntryKind::Directory,
                    Content::File => EntryKind::Regular,
                    Content::Link(_) | Content::Device(_) => EntryKind::Other,
                };
                Ok(Entry { name, inode: inode.identity.inode, kind })
            };
            names.into_iter().map(entry).collect()
        })
    }

    /// Opens a directory in this one.
    ///
    /// # Errors
    /// As [`OpenDirectory::open`].
    pub fn open_directory(&self, name: &OsStr) -> io::Result<Self> {
        let flags = Flags { is_directory: true, ..Flags::READ };
        self.open_at(name, flags).map(Self)
    }

    /// Opens a regular file of this directory, for buffered I/O.
    ///
    /// # Errors
    /// `WouldBlock` if another program has a lease of the file, and errors of the file system.
    pub fn open_existing(&self, name: &OsStr, access: Access) -> io::Result<OpenFile> {
        let file = self.open_at(name, Flags { access, ..Flags::READ })?;
        let is_regular = file.kind() == Kind::Regular;
        if is_regular { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    fn open_at(&self, name: &OsStr, flags: Flags) -> io::Result<OpenFile> {
        let at = (self.0.number(), name);
        let open = |machine: &mut Machine| opened(machine.open_at(at, flags, world::process())?);
        OpenFile::buffered(call(open)?)
    }

    /// Returns whether a file system is mounted on an entry.
    ///
    /// # Errors
    /// If the descriptor is closed.
    pub fn is_mounted_on(&self, name: &OsStr) -> io::Result<bool> {
        call(|machine| {
            let found = machine.entry(self.0.number(), name, Last::Keep)?;
            Ok(found.node.is_some_and(|node| machine.is_root(node)))
        })
    }

    /// Makes the changes of names in the directory durable. Blocks.
    ///
    /// # Errors
    /// The error of the device. No later sync makes these changes durable.
    pub fn sync(&self) -> io::Result<()> {
        let bio = call_bio(Operation::FlushDirectory, 0..0);
        self.0.submit_work(Work::Directory, bio, Vec::new()).map(|_| ())
    }
}

/// Returns the descriptor of an open that does not wait for a lease.
fn opened(opening: Opening) -> Result<u64, Errno> {
    match opening {
        Opening::Open { descriptor, .. } => Ok(descriptor),
        Opening::Leased(_) => Err(Errno::WOULD_BLOCK),
    }
}
