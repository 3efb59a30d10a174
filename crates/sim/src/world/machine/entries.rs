//! Calls that change the entries of directories. Each is one step, as in a journal.

use forebay_block::Errno;

use super::names::Node;
use super::state::{Found, Machine};

/// Whether a rename may replace a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Replace {
    /// The name stands for the other file from then on.
    Yes,
    /// The rename fails with `EEXIST` (`RENAME_NOREPLACE`).
    No,
}

impl Machine {
    /// Removes a name of a file.
    pub(crate) fn unlink(&mut self, found: &Found) -> Result<(), Errno> {
        let node = self.changeable(found)?;
        if self.names.is_directory(node) {
            return Err(Errno(libc::EISDIR));
        }
        self.remove(found);
        Ok(())
    }

    fn remove(&mut self, found: &Found) {
        let sequence = self.next_sequence();
        self.names.assign(found.directory, &found.name, None, sequence);
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
