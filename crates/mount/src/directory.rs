//! Open directories: their entries, and syncs of them.

use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, FileType, OFlags, RawDir, SeekFrom, statat};

use crate::data::Sync;
use crate::limits::DIRECTORY_BYTES;
use crate::node::Node;
use crate::reply::Reply;

/// An entry of a directory.
pub(crate) struct Entry<'a> {
    pub(crate) inode: u64,
    /// Position of the next one.
    pub(crate) next: u64,
    pub(crate) kind: FileType,
    pub(crate) name: &'a OsStr,
}

/// An open directory of the source.
#[derive(Debug)]
pub(crate) struct OpenDirectory {
    pub(crate) node: Arc<Node>,
    /// Name that is left out.
    hidden: Option<&'static str>,
    /// Its position is set by each read.
    descriptor: Mutex<OwnedFd>,
}

impl OpenDirectory {
    /// Opens a directory with the flags of the descriptor.
    pub(crate) fn open(
        node: Arc<Node>,
        flags: i32,
        hidden: Option<&'static str>,
    ) -> io::Result<Self> {
        let kept = OFlags::from_bits_retain(flags.cast_unsigned()) & OFlags::NOATIME;
        // Not by its name `.`, which needs the right to enter it.
        let descriptor = node.open(OFlags::RDONLY | OFlags::DIRECTORY | kept)?;
        Ok(Self { node, hidden, descriptor: Mutex::new(descriptor) })
    }

    /// Adds entries from a position on, until the reply has this many bytes or is full.
    pub(crate) fn read(&self, position: u64, most: u32, reply: &mut Reply<'_>) -> io::Result<()> {
        self.each(position, DIRECTORY_BYTES, |Entry { inode, next, kind, name }| {
            Ok(!reply.entry(most, (inode, next), kind, name)?)
        })
    }

    /// Calls with each entry from a position on until that returns true. Reads this many bytes at
    /// once.
    pub(crate) fn each(
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
            if self.hidden.is_some_and(|hidden| name == hidden) {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::Unknown => {
                    let status = statat(&*descriptor, name, AtFlags::SYMLINK_NOFOLLOW);
                    status.map_or(FileType::RegularFile, |status| {
                        FileType::from_raw_mode(status.st_mode)
                    })
                }
                known => known,
            };
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
