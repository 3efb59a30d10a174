//! Open directories: their entries, and syncs of them.

use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::{Arc, Mutex, PoisonError};

use fuser::{INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, SeekFrom, openat, statat};

use crate::attributes;
use crate::data::Sync;
use crate::limits::{ATTRIBUTES_KEPT, DIRECTORY_BYTES};
use crate::mounted::Mount;
use crate::node::{Node, kind};
use crate::reply::GENERATION;

/// An entry of a directory.
struct Entry<'a> {
    inode: u64,
    /// Position of the next one.
    next: u64,
    kind: fuser::FileType,
    name: &'a OsStr,
}

/// An open directory of the source.
#[derive(Debug)]
pub(crate) struct OpenDirectory {
    node: Arc<Node>,
    /// Its position is set by each read.
    descriptor: Mutex<OwnedFd>,
}

impl OpenDirectory {
    /// Opens a directory with the flags of the descriptor.
    pub(crate) fn open(node: Arc<Node>, flags: i32) -> io::Result<Self> {
        let kept = OFlags::from_bits_retain(flags.cast_unsigned()) & OFlags::NOATIME;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // Not by its name `.`, which needs the right to enter it.
        let descriptor = openat(CWD, node.path(), flags | kept, Mode::empty())?;
        Ok(Self { node, descriptor: Mutex::new(descriptor) })
    }

    /// Adds entries from a position on until the reply is full.
    pub(crate) fn read(&self, position: u64, reply: &mut ReplyDirectory) -> io::Result<()> {
        self.each(position, DIRECTORY_BYTES, |Entry { inode, next, kind, name }| {
            Ok(reply.add(INodeNo(inode), next, kind, name))
        })
    }

    /// Adds entries likewise, and looks each of them up: programs that list a directory often look
    /// at its files next.
    pub(crate) fn look_up(
        &self,
        position: u64,
        mount: &Mount,
        reply: &mut ReplyDirectoryPlus,
    ) -> io::Result<()> {
        let mut is_first = true;
        // The entries are longer than those of the source.
        self.each(position, DIRECTORY_BYTES / 4, |Entry { inode, next, kind, name }| {
            let is_link = matches!(name.as_bytes(), b"." | b"..");
            let attributes = if is_link {
                // The kernel does not use them.
                attributes::nothing_but(inode, kind)
            } else {
                match mount.look_up(&self.node, name) {
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
                drop(mount.nodes.forget(number.0, 1));
            }
            Ok(is_full)
        })
    }

    /// Calls with each entry from a position on until that returns true. Reads this many bytes at
    /// once.
    fn each(
        &self,
        position: u64,
        bytes: usize,
        mut add: impl FnMut(Entry<'_>) -> io::Result<bool>,
    ) -> io::Result<()> {
        let descriptor = self.descriptor.lock().unwrap_or_else(PoisonError::into_inner);
        rustix::fs::seek(&*descriptor, SeekFrom::Start(position))?;
        let mut memory = [MaybeUninit::uninit(); DIRECTORY_BYTES];
        let mut entries = RawDir::new(&*descriptor, &mut memory[..bytes]);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            let kind = kind(match entry.file_type() {
                FileType::Unknown => {
                    let status = statat(&*descriptor, name, AtFlags::SYMLINK_NOFOLLOW);
                    status.map_or(FileType::RegularFile, |status| {
                        FileType::from_raw_mode(status.st_mode)
                    })
                }
                known => known,
            });
            let (inode, next) = (entry.ino(), entry.next_entry_cookie());
            if add(Entry { inode, next, kind, name })? {
                break;
            }
        }
        Ok(())
    }

    pub(crate) fn sync(&self, what: Sync) -> io::Result<()> {
        let descriptor = self.descriptor.lock().unwrap_or_else(PoisonError::into_inner);
        match what {
            Sync::Data => Ok(rustix::fs::fdatasync(&*descriptor)?),
            Sync::All => Ok(rustix::fs::fsync(&*descriptor)?),
        }
    }
}
