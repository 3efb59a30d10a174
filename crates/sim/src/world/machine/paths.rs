//! Paths.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use forebay_block::Errno;

use super::inode::Content;
use super::names::Node;
use super::state::{Found, Last, Machine};

/// Symbolic links that a path may lead through.
const MOST_LINKS: u32 = 40;

impl Machine {
    /// Follows a path from the root.
    pub(crate) fn resolve(&self, path: &Path, last: Last) -> Result<Found, Errno> {
        self.resolve_from(self.volumes[0].root, path, last)
    }

    /// Follows a path from a directory.
    pub(super) fn resolve_from(
        &self,
        start: Node,
        path: &Path,
        last: Last,
    ) -> Result<Found, Errno> {
        let root = self.volumes[0].root;
        let mut found = Found { directory: start, name: OsString::new(), node: Some(start) };
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

    /// Returns a path that leads to an open file.
    pub(crate) fn path_of(&self, descriptor: u64) -> Result<PathBuf, Errno> {
        let wanted = self.node_of(descriptor)?;
        let mut left = vec![(PathBuf::from("/"), self.volumes[0].root)];
        while let Some((path, directory)) = left.pop() {
            for (name, node) in self.names.entries(directory) {
                let node = self.mounts.get(node).copied().unwrap_or(*node);
                if node == wanted {
                    return Ok(path.join(name));
                }
                if self.names.is_directory(node) {
                    left.push((path.join(name), node));
                }
            }
        }
        Err(Errno(libc::ENOENT))
    }

    /// Follows a path to something that exists.
    pub(crate) fn existing(&self, path: &Path, last: Last) -> Result<Node, Errno> {
        self.resolve(path, last)?.node.ok_or(Errno(libc::ENOENT))
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
