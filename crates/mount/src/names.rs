//! Names: lookups, and changes of directories of the source.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;

use fuser::{FileAttr, RenameFlags, Request};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, openat, statat};
use rustix::io::Errno;

use crate::attributes;
use crate::caller::as_caller;
use crate::mounted::Mount;
use crate::node::{Node, identity};
use crate::open_file::OpenFile;
use crate::settle;

impl Mount {
    /// Finds an object by its name in a directory, and counts the lookup.
    pub(crate) fn look_up(&self, parent: &Node, name: &OsStr) -> io::Result<(Arc<Node>, FileAttr)> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = self.forgetting.patiently(|| openat(parent, name, flags, Mode::empty()));
        let descriptor = opened.inspect_err(|error| {
            if matches!(*error, Errno::MFILE | Errno::NFILE) {
                self.log("no descriptor is free; raise the limit of open files (ulimit -n)");
            }
        })?;
        let status = rustix::fs::fstat(&descriptor)?;
        let node = self.nodes.enter(descriptor, &status, 1);
        self.forgetting.after_lookup(self.descriptors());
        let attributes = attributes::shown(&node, &status)
            .inspect_err(|_| drop(self.nodes.forget(node.number, 1)))?;
        Ok((node, attributes))
    }

    /// Makes a directory, link or special file by `make`, and looks it up.
    pub(crate) fn make(
        &self,
        request: &Request,
        parent: &Node,
        name: &OsStr,
        umask: u32,
        make: impl FnOnce() -> rustix::io::Result<()>,
    ) -> io::Result<FileAttr> {
        as_caller(request, umask, make)?;
        // Others may have put a directory with entries, or a file with content, in its place.
        let is_made = |found: &Stat| {
            FileType::from_raw_mode(found.st_mode) != FileType::RegularFile || found.st_size == 0
        };
        self.look_up_made(parent, name, is_made)
    }

    /// Looks up a name that was just made. Removes it again if that fails, because the caller gets
    /// the error.
    fn look_up_made(
        &self,
        parent: &Node,
        name: &OsStr,
        is_made: impl Fn(&Stat) -> bool,
    ) -> io::Result<FileAttr> {
        let found = self.look_up(parent, name).inspect_err(|_| take_back(parent, name, is_made));
        Ok(found?.1)
    }

    /// Creates a file and opens it. Opens one that another program has created meanwhile.
    pub(crate) fn create_file(
        &self,
        request: &Request,
        parent: &Node,
        name: &OsStr,
        (mode, umask): (u32, u32),
        flags: OFlags,
    ) -> io::Result<(FileAttr, Arc<OpenFile>)> {
        let how = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(mode & 0o7777);
        let open = || openat(parent, name, how, mode);
        let created = as_caller(request, umask, || self.forgetting.patiently(open));
        let descriptor = match created {
            Ok(descriptor) => descriptor,
            Err(error)
                if error.kind() == io::ErrorKind::AlreadyExists
                    && !flags.contains(OFlags::EXCL) =>
            {
                let (node, _) = self.look_up(parent, name)?;
                let opened = self.open_file(&node, flags, request.uid());
                let file = opened.inspect_err(|_| drop(self.nodes.forget(node.number, 1)))?;
                return self.with_attributes(&node, node.status(), file);
            }
            Err(error) => return Err(error),
        };
        let entered = self.forgetting.patiently(|| self.nodes.enter_open(&descriptor, 1));
        let (node, status) = entered.inspect_err(|_| {
            let created = rustix::fs::fstat(&descriptor).map(|status| identity(&status));
            take_back(parent, name, |found| created == Ok(identity(found)));
        })?;
        if mode.intersects(Mode::SUID | Mode::SGID) {
            node.state().has_privileges = true;
        }
        let taken = OpenFile::take(&self.way, &node, descriptor);
        let file = taken.inspect_err(|_| drop(self.nodes.forget(node.number, 1)))?;
        file.opened_with(flags);
        self.forgetting.after_lookup(self.descriptors());
        self.with_attributes(&node, Ok(status), file)
    }

    /// Returns an open file with the attributes of its node, or ends the open.
    fn with_attributes(
        &self,
        node: &Node,
        status: io::Result<Stat>,
        file: Arc<OpenFile>,
    ) -> io::Result<(FileAttr, Arc<OpenFile>)> {
        match status.and_then(|status| attributes::shown(node, &status)) {
            Ok(attributes) => Ok((attributes, file)),
            Err(error) => {
                self.end_open(file);
                drop(self.nodes.forget(node.number, 1));
                Err(error)
            }
        }
    }

    /// The node of a regular file by its name, if the kernel knows it.
    fn known_file(&self, parent: &Node, name: &OsStr) -> Option<Arc<Node>> {
        self.known(statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).ok()?)
    }

    /// The node of a regular file, if the kernel knows it.
    fn known(&self, status: Stat) -> Option<Arc<Node>> {
        let is_file = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile;
        is_file.then(|| self.nodes.find(identity(&status))).flatten()
    }

    pub(crate) fn remove(&self, parent: &Node, name: &OsStr, flags: AtFlags) -> io::Result<()> {
        let removed = match flags.contains(AtFlags::REMOVEDIR) {
            true => None,
            false => self.known_file(parent, name),
        };
        rustix::fs::unlinkat(parent, name, flags)?;
        if let Some(node) = removed {
            settle::drop_removed(self, &node);
        }
        Ok(())
    }

    /// Renames. A file that replaces another one is written out before: a crash later finds the
    /// old content or the new one, as on a plain file system.
    pub(crate) fn rename_to(
        &self,
        (parent, name): (&Node, &OsStr),
        (new_parent, new_name): (&Node, &OsStr),
        flags: RenameFlags,
    ) -> io::Result<()> {
        let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
        let there = match statat(new_parent, new_name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(status) => Some(status),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(error.into()),
        };
        if there.is_some()
            && let Some(node) = self.known_file(parent, name)
        {
            settle::write_out(&node)?;
        }
        let replaced = there.and_then(|status| self.known(status));
        if flags.is_empty() {
            rustix::fs::renameat(parent, name, new_parent, new_name)?;
        } else {
            rustix::fs::renameat_with(parent, name, new_parent, new_name, flags)?;
        }
        if let Some(node) = replaced {
            settle::drop_removed(self, &node);
        }
        Ok(())
    }

    pub(crate) fn link_to(&self, node: &Node, parent: &Node, name: &OsStr) -> io::Result<FileAttr> {
        rustix::fs::linkat(CWD, node.path(), parent, name, AtFlags::SYMLINK_FOLLOW)?;
        self.look_up_made(parent, name, |found| identity(found) == node.identity)
    }

    pub(crate) fn target_of(&self, node: &Node) -> io::Result<Vec<u8>> {
        Ok(rustix::fs::readlinkat(node, Path::new(""), Vec::new())?.into_bytes())
    }
}

/// Removes a name that was just made and could not be entered, so that the next try finds no file
/// in its way. Others may have put another object there.
fn take_back(parent: &Node, name: &OsStr, is_made: impl Fn(&Stat) -> bool) {
    let Ok(found) = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) else { return };
    if !is_made(&found) {
        return;
    }
    let flags = match FileType::from_raw_mode(found.st_mode) {
        FileType::Directory => AtFlags::REMOVEDIR,
        _ => AtFlags::empty(),
    };
    // The caller gets the first error.
    let _ = rustix::fs::unlinkat(parent, name, flags);
}
