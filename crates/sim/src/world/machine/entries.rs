//! Calls that change the entries of directories. Each is one step, as in a journal.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use forebay_block::Errno;
use forebay_uring::{Identity, Replace};

use super::flying::Work;
use super::inode::Content;
use super::names::Node;
use super::opened::Directory;
use super::state::{Found, Last, Machine};
use crate::faults::NO_SPACE;
use crate::world;

impl Machine {
    /// Follows a name from an open directory.
    pub(crate) fn entry(&self, directory: u64, name: &OsStr, last: Last) -> Result<Found, Errno> {
        self.resolve_from(self.node_of(directory)?, Path::new(name), last)
    }

    /// Returns the names in an open directory, in any order.
    pub(crate) fn entries(&mut self, directory: u64) -> Result<Vec<OsString>, Errno> {
        let node = self.node_of(directory)?;
        let mut names: Vec<OsString> = self.names.entries(node).keys().cloned().collect();
        names.sort_by_cached_key(|_| self.random.draw());
        Ok(names)
    }

    /// Returns the number of failures that a sync of a whole file system reports, so far.
    pub(crate) fn failures(&self) -> u64 {
        self.failures
    }

    /// Returns the number of names of an open file.
    pub(crate) fn links(&self, descriptor: u64) -> Result<u64, Errno> {
        Ok(self.names.links(self.node_of(descriptor)?) as u64)
    }

    /// Returns the identity of the directory that a flush for the sake of an open file flushes;
    /// `None` if no directory is kept, or the kept one was removed.
    pub(crate) fn kept_directory(&self, descriptor: u64) -> Result<Option<Identity>, Errno> {
        let Directory::Kept(node) = self.descriptor(descriptor)?.directory else { return Ok(None) };
        Ok(self.nodes[node.0].as_ref().map(|inode| inode.identity))
    }

    /// Begins the flush of the directory that is kept for an open file.
    pub(crate) fn begin_directory_flush(&mut self, descriptor: u64) -> Result<u64, Errno> {
        let Directory::Kept(directory) = self.descriptor(descriptor)?.directory else {
            return Err(Errno(libc::EOPNOTSUPP));
        };
        let node = self.node_of(descriptor)?;
        Ok(self.begin_flush(world::process(), Work::Names(directory), node))
    }

    /// Fails at the rate of the faults of names.
    pub(crate) fn try_names(&mut self) -> Result<(), Errno> {
        if self.random.happens(self.plan.faults.names) {
            return Err(*self.random.pick(&[NO_SPACE, Errno::IO]));
        }
        Ok(())
    }

    /// Makes an empty directory.
    pub(crate) fn make_directory(&mut self, at: &Found) -> Result<(), Errno> {
        match at.node {
            Some(_) => Err(Errno(libc::EEXIST)),
            None => self.create(at, Content::Directory).map(|_| ()),
        }
    }

    /// Removes a name of a file.
    pub(crate) fn unlink(&mut self, found: &Found) -> Result<(), Errno> {
        let node = self.changeable(found)?;
        if self.names.is_directory(node) {
            return Err(Errno(libc::EISDIR));
        }
        self.remove(found);
        Ok(())
    }

    /// Removes an empty directory.
    pub(crate) fn remove_directory(&mut self, found: &Found) -> Result<(), Errno> {
        let node = self.changeable(found)?;
        if !self.names.is_directory(node) {
            return Err(Errno(libc::ENOTDIR));
        }
        if !self.names.entries(node).is_empty() {
            return Err(Errno(libc::ENOTEMPTY));
        }
        self.remove(found);
        Ok(())
    }

    fn remove(&mut self, found: &Found) {
        let sequence = self.next_sequence();
        self.names.assign(found.directory, &found.name, None, sequence);
        if let Some(node) = found.node {
            self.touch(node, sequence);
        }
        self.collect();
    }

    /// Gives a file another name of the same file system.
    pub(crate) fn link(&mut self, from: &Found, to: &Found) -> Result<(), Errno> {
        let node = self.changeable(from)?;
        self.check_directory(to.directory)?;
        if self.names.is_directory(node) {
            return Err(Errno(libc::EPERM));
        }
        if to.node.is_some() {
            return Err(Errno(libc::EEXIST));
        }
        self.check_volume(from, to)?;
        let sequence = self.next_sequence();
        self.names.assign(to.directory, &to.name, Some(node), sequence);
        self.touch(node, sequence);
        Ok(())
    }

    /// Moves a name, over another one if that exists.
    pub(crate) fn rename(
        &mut self,
        from: &Found,
        to: &Found,
        replace: Replace,
    ) -> Result<(), Errno> {
        self.check_volume(from, to)?;
        let node = self.changeable(from)?;
        self.check_directory(to.directory)?;
        let is_directory = self.names.is_directory(node);
        if is_directory && self.names.above(to.directory).contains(&node) {
            return Err(Errno::INVALID);
        }
        if let Some(there) = to.node {
            if replace == Replace::No {
                return Err(Errno(libc::EEXIST));
            }
            if there == node {
                // Two names of one file: POSIX leaves both.
                return Ok(());
            }
            self.changeable(to)?;
            match (is_directory, self.names.is_directory(there)) {
                (false, true) => return Err(Errno(libc::EISDIR)),
                (true, false) => return Err(Errno(libc::ENOTDIR)),
                (true, true) if !self.names.entries(there).is_empty() => {
                    return Err(Errno(libc::ENOTEMPTY));
                }
                _ => {}
            }
        }
        let sequence = self.next_sequence();
        self.names.rename((from.directory, &from.name), (to.directory, &to.name), sequence);
        self.touch(node, sequence);
        self.collect();
        Ok(())
    }

    /// Returns the node of a name that can be changed.
    fn changeable(&self, found: &Found) -> Result<Node, Errno> {
        let node = found.node.ok_or(Errno(libc::ENOENT))?;
        if self.is_root(node) {
            return Err(Errno(libc::EBUSY));
        }
        self.check_directory(found.directory)?;
        Ok(node)
    }

    /// Returns an error if no name in a directory can be changed.
    pub(super) fn check_directory(&self, directory: Node) -> Result<(), Errno> {
        if !self.is_root(directory) && self.names.links(directory) == 0 {
            return Err(Errno(libc::ENOENT));
        }
        if self.volume_of(directory).is_read_only {
            return Err(Errno(libc::EROFS));
        }
        Ok(())
    }

    fn check_volume(&self, from: &Found, to: &Found) -> Result<(), Errno> {
        let volume = |found: &Found| self.inode(found.directory).volume;
        if volume(from) == volume(to) { Ok(()) } else { Err(Errno(libc::EXDEV)) }
    }
}
