//! Lists of directories with the attributes of their files.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use rustix::fs::FileType;

use crate::attributes;
use crate::directory::{Entry, OpenDirectory};
use crate::limits::{ATTRIBUTES_KEPT, DIRECTORY_BYTES};
use crate::mounted::Mount;
use crate::node::Node;
use crate::reply::Reply;
use crate::wire::Attributes;

impl Mount {
    /// Adds entries from a position on, until the reply has this many bytes or is full, and looks
    /// each of them up: programs that list a directory often look at its files next.
    pub(crate) fn list(
        &self,
        open: &OpenDirectory,
        (position, most): (u64, u32),
        reply: &mut Reply<'_>,
    ) -> io::Result<()> {
        // The entries are longer than those of the source.
        open.each(position, DIRECTORY_BYTES / 4, |Entry { inode, next, kind, name }| {
            let is_link = matches!(name.as_bytes(), b"." | b"..");
            let found = match is_link {
                // The kernel does not use them.
                true => Ok(attributes::nothing_but(inode, kind)),
                false => {
                    let found = match self.nodes.is_known(inode) {
                        true => self.look_up(&open.node, name),
                        false => self.look_up_listed(&open.node, name),
                    };
                    found.map(|(_, attributes)| attributes)
                }
            };
            let (attributes, kept) = match found {
                Ok(attributes) => (attributes, ATTRIBUTES_KEPT),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
                // The kernel looks the name up again, and a program gets the error then.
                Err(_) => (self.unopened(&open.node, inode, kind)?, Duration::ZERO),
            };
            let is_added = reply.entry_with(most, (next, name), &attributes, kept)?;
            if !is_added && !is_link {
                drop(self.nodes.forget(attributes.number, 1));
            }
            Ok(!is_added)
        })
    }

    /// Returns attributes of an object that cannot be opened, such as a damaged one, and counts the
    /// lookup.
    fn unopened(&self, parent: &Node, inode: u64, kind: FileType) -> io::Result<Attributes> {
        match self.nodes.enter_again((parent.identity.0, inode)) {
            Ok(node) => attributes::of(&node),
            Err(number) => Ok(attributes::nothing_but(number, kind)),
        }
    }
}
