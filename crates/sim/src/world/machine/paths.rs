//! Paths, and the calls that change names.

use std::ffi::OsString;
use std::path::{Component, Path};

use forebay_block::Errno;

use super::inode::Content;
use super::names::Node;
use super::state::{Found, Last, Machine};

/// Symbolic links that a path may lead through.
const MOST_LINKS: u32 = 40;

impl Machine {
    /// Follows a path from the root.
    pub(crate) fn resolve(&self, path: &Path, last: Last) -> Result<Found, Errno> {
        let root = self.volumes[0].root;
        let mut found = Found { directory: root, name: OsString::new(), node: Some(root) };
        let mut rest: Vec<OsString> = parts(path);
        let mut links = 0;
        if rest.is_empty() && path.as_os_str().is_empty() {
            return Err(Errno(libc::ENOENT));
        }
        while let Some(part) = rest.pop() {
            let directory = found.node.ok_or(Errno(libc::ENOENT))?;
            if !self.names.is_directory(directory) {
                return Err(Errno(libc::ENOTDIR));
            }
            if part == "/" {
                found.node = Some(root);
                continue;
            }
            if part == ".." {
                found.node = Some(self.names.parent(directory));
                continue;
            }
            let node = self.names.lookup(directory, &part);
            let node = node.map(|node| self.mounts.get(&node).copied().unwrap_or(node));
            let content = node.map(|node| &self.inode(node).content);
            if let Some(Content::Link(target)) = content
                && (last == Last::Follow || !rest.is_empty())
            {
                links += 1;
                if links > MOST_LINKS {
                    return Err(Errno(libc::ELOOP));
                }
                rest.append(&mut parts(target));
                found.node = Some(directory);
                continue;
            }
            found = Found { directory, name: part, node };
        }
        Ok(found)
    }

    /// Follows a path to something that exists.
    pub(crate) fn existing(&self, path: &Path, last: Last) -> Result<Node, Errno> {
        self.resolve(path, last)?.node.ok_or(Errno(libc::ENOENT))
    }

    /// Removes a name.
    pub(crate) fn unlink(&mut self, path: &Path) -> Result<(), Errno> {
        let found = self.resolve(path, Last::Keep)?;
        let node = found.node.ok_or(Errno(libc::ENOENT))?;
        if self.names.is_directory(node) {
            return Err(Errno(libc::EISDIR));
        }
        self.names.assign(found.directory, &found.name, None);
        self.collect();
        Ok(())
    }

    /// Gives a file another name of the same file system.
    pub(crate) fn link(&mut self, from: &Path, to: &Path) -> Result<(), Errno> {
        let node = self.existing(from, Last::Keep)?;
        let at = self.resolve(to, Last::Keep)?;
        match at.node {
            _ if self.names.is_directory(node) => Err(Errno(libc::EPERM)),
            Some(_) => Err(Errno(libc::EEXIST)),
            None if self.inode(node).volume != self.inode(at.directory).volume => {
                Err(Errno(libc::EXDEV))
            }
            None => {
                self.names.assign(at.directory, &at.name, Some(node));
                Ok(())
            }
        }
    }

    /// Moves a name, over another one if that exists.
    pub(crate) fn rename(&mut self, from: &Path, to: &Path) -> Result<(), Errno> {
        let (old, new) = (self.resolve(from, Last::Keep)?, self.resolve(to, Last::Keep)?);
        let node = old.node.ok_or(Errno(libc::ENOENT))?;
        if self.inode(node).volume != self.inode(new.directory).volume {
            return Err(Errno(libc::EXDEV));
        }
        match new.node {
            // Two names of one file: POSIX leaves both.
            Some(there) if there == node => return Ok(()),
            Some(there) if self.names.is_directory(there) => return Err(Errno(libc::EISDIR)),
            _ => {}
        }
        self.names.rename((old.directory, &old.name), (new.directory, &new.name));
        self.collect();
        Ok(())
    }
}

/// The parts of a path, the first one last. An absolute path starts with "/".
fn parts(path: &Path) -> Vec<OsString> {
    let parts = path.components().filter_map(|part| match part {
        Component::RootDir => Some(OsString::from("/")),
        Component::ParentDir => Some(OsString::from("..")),
        Component::Normal(name) => Some(name.to_owned()),
        Component::CurDir | Component::Prefix(_) => None,
    });
    let mut parts: Vec<OsString> = parts.collect();
    parts.reverse();
    parts
}
