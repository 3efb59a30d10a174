//! Lists of directories with the attributes of their files.

use std::io;
use std::os::unix::ffi::OsStrExt as _;

use fuser::ReplyDirectoryPlus;

use crate::attributes;
use crate::directory::{Entry, OpenDirectory};
use crate::limits::{ATTRIBUTES_KEPT, DIRECTORY_BYTES};
use crate::mounted::Mount;
use crate::reply::GENERATION;

impl Mount {
    /// Adds entries from a position on until the reply is full, and looks each of them up: programs
    /// that list a directory often look at its files next.
    pub(crate) fn list(
        &self,
        open: &OpenDirectory,
        position: u64,
        reply: &mut ReplyDirectoryPlus,
    ) -> io::Result<()> {
        let mut is_first = true;
        // The entries are longer than those of the source.
        open.each(position, DIRECTORY_BYTES / 4, |Entry { inode, next, kind, name }| {
            let is_link = matches!(name.as_bytes(), b"." | b"..");
            let attributes = if is_link {
                // The kernel does not use them.
                attributes::nothing_but(inode, kind)
            } else {
                match self.look_up(&open.node, name) {
                    Ok((_, attributes)) => attributes,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
                    Err(error) if is_first => return Err(error),
                    // The next request begins with this entry.
                    Err(_) => return Ok(true),
                }
            };
            is_first = false;
            let (number, kept) = (attributes.ino, &ATTRIBUTES_KEPT);
            let is_full = reply.add(number, next, name, kept, &attributes, GENERATION);
            if is_full && !is_link {
                drop(self.nodes.forget(number.0, 1));
            }
            Ok(is_full)
        })
    }
}
