//! Names: lookups, and changes of directories of the source.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay::intent_log;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Stat, openat, statat};
use rustix::io::Errno;

use crate::attributes;
use crate::caller::Caller;
use crate::data::Access;
use crate::mounted::Mount;
use crate::node::{Node, ROOT, identity};
use crate::open_file::OpenFile;
use crate::passed;
use crate::rights::mode_of_new;
use crate::settle;
use crate::wire::Attributes;

impl Mount {
    /// Returns the name in a directory that programs do not see: that of the intent log.
    pub(crate) fn hidden_in(&self, directory: &Node) -> Option<&'static str> {
        let hides = directory.number == ROOT && self.way.stack().is_some_and(|way| way.hides_log);
        hides.then_some(intent_log::NAME)
    }

    /// Refuses a name that programs do not see, as one that is missing or may not be made.
    fn check_name(&self, parent: &Node, name: &OsStr, error: Errno) -> io::Result<()> {
        match self.hidden_in(parent) {
            Some(hidden) if name == hidden => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Finds an object by its name in a directory, and counts the lookup.
    pub(crate) fn look_up(
        &self,
        parent: &Node,
        name: &OsStr,
    ) -> io::Result<(Arc<Node>, Attributes)> {
        self.check_name(parent, name, Errno::NOENT)?;
        let status = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
        match self.nodes.look_up(identity(&status)) {
            // The source may have other pages of a file by now.
            Some(node) => {
                let status = Some(&status).filter(|_| !node.is_file());
                self.looked_up(node, status)
            }
            None => self.look_up_new(parent, name),
        }
    }

    /// The same for one that is probably not known.
    fn look_up_new(&self, parent: &Node, name: &OsStr) -> io::Result<(Arc<Node>, Attributes)> {
        let opened = self.forgetting.patiently(|| open_name(parent, name));
        let descriptor = opened.inspect_err(|error| {
            if matches!(*error, Errno::MFILE | Errno::NFILE) {
                self.log("no descriptor is free; raise the limit of open files (ulimit -n)");
            }
        })?;
        self.enter(descriptor)
    }

    /// The same in a listing, which waits for no descriptor: the kernel has locked the directory
    /// meanwhile, and cannot forget a name in it.
    pub(crate) fn look_up_listed(
        &self,
        parent: &Node,
        name: &OsStr,
    ) -> io::Result<(Arc<Node>, Attributes)> {
        self.enter(open_name(parent, name)?)
    }

    fn enter(&self, descriptor: OwnedFd) -> io::Result<(Arc<Node>, Attributes)> {
        let status = rustix::fs::fstat(&descriptor)?;
        let (node, is_new) = self.nodes.enter(descriptor, &status, 1);
        self.forgetting.after_lookup(self.descriptors());
        self.looked_up(node, is_new.then_some(&status))
    }

    /// Returns an object that was looked up with its attributes, by a status that is right.
    fn looked_up(
        &self,
        node: Arc<Node>,
        status: Option<&Stat>,
    ) -> io::Result<(Arc<Node>, Attributes)> {
        let attributes = match status {
            Some(status) => attributes::by(&node, status),
            None => {
                attributes::of(&node).inspect_err(|_| drop(self.nodes.forget(node.number, 1)))?
            }
        };
        Ok((node, attributes))
    }

    /// Makes a directory, link or special file by `make`, and looks it up.
    pub(crate) fn make(
        &self,
        caller: &Caller,
        parent: &Node,
        name: &OsStr,
        (mode, umask): (u32, u32),
        make: impl FnOnce(Mode) -> rustix::io::Result<()>,
    ) -> io::Result<Attributes> {
        self.check_name(parent, name, Errno::PERM)?;
        let (mode, bit) = mode_of_new(caller, parent, mode)?;
        caller.make(umask, bit, || make(mode))?;
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
    ) -> io::Result<Attributes> {
        let found = self.look_up(parent, name).inspect_err(|_| take_back(parent, name, is_made));
        Ok(found?.1)
    }

    /// Creates a file and opens it. Opens one that another program has created meanwhile.
    pub(crate) fn create_file(
        &self,
        caller: &Caller,
        parent: &Node,
        name: &OsStr,
        (mode, umask): (u32, u32),
        flags: OFlags,
    ) -> io::Result<(Attributes, Arc<OpenFile>)> {
        let how = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        self.check_name(parent, name, Errno::PERM)?;
        let (mode, bit) = mode_of_new(caller, parent, mode)?;
        let open = || openat(parent, name, how, mode);
        let created = caller.make(umask, bit, || self.forgetting.patiently(open));
        let descriptor = match created {
            Ok(descriptor) => descriptor,
            Err(error)
                if error.kind() == io::ErrorKind::AlreadyExists
                    && !flags.contains(OFlags::EXCL) =>
            {
                return self.open_found(caller, parent, name, flags);
            }
            Err(error) => return Err(error),
        };
        self.open_created(descriptor, flags, |descriptor| {
            let created = rustix::fs::fstat(descriptor).map(|status| identity(&status));
            take_back(parent, name, |found| created == Ok(identity(found)));
        })
    }

    /// Creates a file without a name in the file system of a directory, and opens it. It can get a
    /// name later, unless the flags contain `O_EXCL`.
    pub(crate) fn create_unnamed(
        &self,
        caller: &Caller,
        parent: &Node,
        (mode, umask): (u32, u32),
        flags: OFlags,
    ) -> io::Result<(Attributes, Arc<OpenFile>)> {
        let how = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | flags & OFlags::EXCL;
        let (mode, bit) = mode_of_new(caller, parent, mode)?;
        let open = || openat(parent, c".", how, mode);
        let descriptor = caller.make(umask, bit, || self.forgetting.patiently(open))?;
        let created = self.open_created(descriptor, flags, |_| {})?;
        let node = &created.1.node;
        node.state().is_linkable = !flags.contains(OFlags::EXCL);
        node.may_be_removed.store(true, Ordering::Relaxed);
        Ok(created)
    }

    /// Enters a file that was just created, as open with these flags. Calls `take_back` if that
    /// fails, because the caller gets the error.
    fn open_created(
        &self,
        descriptor: OwnedFd,
        flags: OFlags,
        take_back: impl FnOnce(&OwnedFd),
    ) -> io::Result<(Attributes, Arc<OpenFile>)> {
        let entered = self.forgetting.patiently(|| self.nodes.enter_open(&descriptor, 1));
        let (node, status) = entered.inspect_err(|_| take_back(&descriptor))?;
        let taken = passed::take(&self.way, &node, descriptor);
        let file = taken.inspect_err(|_| drop(self.nodes.forget(node.number, 1)))?;
        file.opened_with(flags | OFlags::CREATE);
        self.forgetting.after_lookup(self.descriptors());
        match status {
            Some(status) => Ok((attributes::by(&node, &status), file)),
            None => self.with_attributes(&node, file),
        }
    }

    /// Opens a file that the kernel does not know: it has not checked whether the caller may do so.
    ///
    /// # Errors
    /// `ESTALE` unless the caller owns the file and its mode permits the open. The kernel looks the
    /// name up again then, and checks.
    fn open_found(
        &self,
        caller: &Caller,
        parent: &Node,
        name: &OsStr,
        flags: OFlags,
    ) -> io::Result<(Attributes, Arc<OpenFile>)> {
        let look_again = || io::Error::from_raw_os_error(libc::ESTALE);
        let (node, found) = self.look_up(parent, name).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => look_again(),
            _ => error,
        })?;
        let opened = match is_permitted(&found, caller, flags) {
            true => self.open_file(&node, flags, caller, None),
            false => Err(look_again()),
        };
        let file = opened.inspect_err(|_| drop(self.nodes.forget(node.number, 1)))?;
        self.with_attributes(&node, file)
    }

    /// Returns an open file with the attributes of its node, or ends the open.
    fn with_attributes(
        &self,
        node: &Node,
        file: Arc<OpenFile>,
    ) -> io::Result<(Attributes, Arc<OpenFile>)> {
        match attributes::of(node) {
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
        self.check_name(parent, name, Errno::NOENT)?;
        let removed = match flags.contains(AtFlags::REMOVEDIR) {
            true => None,
            false => self.known_file(parent, name),
        };
        rustix::fs::unlinkat(parent, name, flags)?;
        if let Some(node) = removed {
            settle::note_removed(self, &node);
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
        self.check_name(parent, name, Errno::NOENT)?;
        self.check_name(new_parent, new_name, Errno::PERM)?;
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
            settle::note_removed(self, &node);
        }
        Ok(())
    }

    pub(crate) fn link_to(
        &self,
        node: &Node,
        parent: &Node,
        name: &OsStr,
    ) -> io::Result<Attributes> {
        self.check_name(parent, name, Errno::PERM)?;
        let flags = AtFlags::SYMLINK_FOLLOW;
        node.at_path(|path| rustix::fs::linkat(CWD, path, parent, name, flags))?;
        node.state().is_linkable = false;
        self.look_up_made(parent, name, |found| identity(found) == node.identity)
    }

    pub(crate) fn target_of(&self, node: &Node) -> io::Result<Vec<u8>> {
        Ok(rustix::fs::readlinkat(node, Path::new(""), Vec::new())?.into_bytes())
    }
}

/// Whether a file is the caller's own and its mode permits an open.
fn is_permitted(found: &Attributes, caller: &Caller, flags: OFlags) -> bool {
    let reads = !flags.contains(OFlags::WRONLY);
    let writes = Access::of(flags) == Access::ReadWrite;
    let mode = Mode::from_raw_mode(found.permissions);
    found.kind == FileType::RegularFile
        && found.user == caller.user
        && (!reads || mode.contains(Mode::RUSR))
        && (!writes || mode.contains(Mode::WUSR))
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

/// Opens a name for looks at it, not for its content.
fn open_name(parent: &Node, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    openat(parent, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use forebay::{Engine, Options};

    use super::*;

    #[test]
    fn a_file_that_the_kernel_does_not_know_is_opened_for_its_owner_alone() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let engine =
            Engine::start(Options { cache_bytes: Some(16 << 20), ..Options::default() }).unwrap();
        let mount = Mount::unmounted(directory.path(), engine.clone());
        let root = mount.nodes.get(ROOT).unwrap();
        std::fs::write(directory.path().join("file"), b"text").unwrap();
        let own = Caller::here();
        let open = |caller: &Caller, flags| {
            let opened = mount.open_found(caller, &root, OsStr::new("file"), flags);
            opened.map(|(_, file)| mount.end_open(file)).map_err(|error| error.raw_os_error())
        };
        open(&own, OFlags::RDWR).unwrap();
        let stranger = Caller { user: own.user + 1, ..own };
        assert_eq!(open(&stranger, OFlags::RDONLY), Err(Some(libc::ESTALE)));
        let path = directory.path().join("file");
        rustix::fs::chmod(&path, Mode::RUSR).unwrap();
        open(&own, OFlags::RDONLY).unwrap();
        assert_eq!(open(&own, OFlags::WRONLY), Err(Some(libc::ESTALE)));
        assert_eq!(open(&own, OFlags::RDONLY | OFlags::TRUNC), Err(Some(libc::ESTALE)));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(open(&own, OFlags::RDONLY), Err(Some(libc::ESTALE)));
        drop(mount);
        engine.shutdown(Duration::from_secs(10)).unwrap();
    }
}
