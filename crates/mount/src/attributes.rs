//! Attributes: those of the source, corrected by data that is not written out yet; and changes of
//! them.

use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::buffer::spare_capacity;
use rustix::fs::XattrFlags;
use rustix::fs::{FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_NOW, Uid};

use crate::caller::Caller;
use crate::data::Access;
use crate::mounted::Mount;
use crate::node::Node;
use crate::open_file::OpenFile;
use crate::passed::open_for;
use crate::rights::{self, ACCESS_LIST, CAPABILITY};
use crate::settle;
use crate::times::{Wish, changed_at, time, timespec};
use crate::wire::Attributes;

/// Bytes of a block of `st_blocks`.
const BLOCK: u64 = 512;

/// Attributes that a request sets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) mode: Option<u32>,
    pub(crate) user: Option<u32>,
    pub(crate) group: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) accessed: Option<Wish>,
    pub(crate) modified: Option<Wish>,
}

impl Wanted {
    fn is_nothing(&self) -> bool {
        let Self { mode, user, group, size, accessed, modified } = self;
        mode.or(*user).or(*group).is_none() && size.is_none() && accessed.or(*modified).is_none()
    }
}

/// The attributes of a node as its file system call would find them on a plain file system.
pub(crate) fn of(node: &Node) -> io::Result<Attributes> {
    // Before the source is asked, which has all pages only once a close is over.
    let (open, closing_size) = {
        let state = node.state();
        (state.any().cloned(), state.closing_size)
    };
    let size = open.map(|file| file.data.size()).transpose()?.flatten().or(closing_size);
    Ok(shown(node, &node.status()?, size))
}

/// The attributes of a node by a status of the source: of one that was not known at that moment, or
/// that has no data.
pub(crate) fn by(node: &Node, status: &Stat) -> Attributes {
    shown(node, status, None)
}

/// Returns attributes without anything but the number and the kind.
pub(crate) fn nothing_but(inode: u64, kind: FileType) -> Attributes {
    Attributes {
        number: inode,
        size: 0,
        blocks: 0,
        accessed: UNIX_EPOCH,
        modified: UNIX_EPOCH,
        changed: UNIX_EPOCH,
        kind,
        permissions: 0,
        links: 1,
        user: 0,
        group: 0,
        device: 0,
        block_bytes: 4096,
    }
}

/// The attributes by the answer of the source, and the size of an open file.
fn shown(node: &Node, status: &Stat, size: Option<u64>) -> Attributes {
    let mut attributes = Attributes {
        number: node.number,
        size: status.st_size.cast_unsigned(),
        blocks: status.st_blocks.cast_unsigned(),
        accessed: time(status.st_atime, status.st_atime_nsec),
        modified: time(status.st_mtime, status.st_mtime_nsec),
        changed: changed_at(status),
        kind: node.kind,
        permissions: status.st_mode & 0o7777,
        links: u32::try_from(status.st_nlink).unwrap_or(u32::MAX),
        user: status.st_uid,
        group: status.st_gid,
        device: encoded(status.st_rdev),
        block_bytes: u32::try_from(status.st_blksize).unwrap_or(4096),
    };
    if !node.is_file() {
        return attributes;
    }
    if let Some(size) = size {
        attributes.size = size;
    }
    let state = node.state();
    if let Some(accessed) = state.accessed {
        attributes.accessed = accessed;
    }
    if let Some(written) = state.written {
        attributes.modified = written;
        attributes.changed = attributes.changed.max(written);
        // As ext4 and XFS, which count blocks that are written but not allocated yet.
        let whole = attributes.size.next_multiple_of(4096) / BLOCK;
        let most = attributes.blocks.saturating_add(state.written_bytes.div_ceil(BLOCK));
        attributes.blocks = attributes.blocks.max(whole.min(most));
    } else if let Some((source, shown)) = state.shown
        && source == attributes.changed
    {
        attributes.changed = shown;
    }
    attributes
}

/// A device number in the form of the protocol, which is that of `mknod(2)` in 32 bits.
fn encoded(device: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

/// The device number of a request.
pub(crate) fn device(encoded: u32) -> u64 {
    let (major, minor) = ((encoded & 0xfff00) >> 8, (encoded & 0xff) | ((encoded >> 12) & 0xfff00));
    rustix::fs::makedev(major, minor)
}

fn wanted_time(time: Option<Wish>) -> Timespec {
    match time {
        Some(Wish::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(Wish::At(time)) => timespec(Some(time)),
        None => timespec(None),
    }
}

fn moment(time: Wish) -> SystemTime {
    match time {
        Wish::At(time) => time,
        Wish::Now => SystemTime::now(),
    }
}

/// Bytes of the largest extended attribute, and of the largest list of names.
const EXTENDED_BYTES: usize = 64 << 10;

/// Returns the value of an extended attribute.
///
/// # Errors
/// `ERANGE` if it is longer than `size`, unless that is 0.
pub(crate) fn extended(node: &Node, name: &OsStr, size: u32) -> io::Result<Vec<u8>> {
    let most = if size == 0 { EXTENDED_BYTES } else { EXTENDED_BYTES.min(size as usize) };
    let mut found = Vec::with_capacity(most);
    node.at_path(|path| rustix::fs::getxattr(path, name, spare_capacity(&mut found)))?;
    Ok(found)
}

/// Returns the names of all extended attributes, each with a zero byte at its end.
pub(crate) fn extended_names(node: &Node) -> io::Result<Vec<u8>> {
    let mut found = Vec::with_capacity(EXTENDED_BYTES);
    node.at_path(|path| rustix::fs::listxattr(path, spare_capacity(&mut found)))?;
    Ok(found)
}

impl Mount {
    /// Sets an extended attribute.
    pub(crate) fn set_extended(
        &self,
        node: &Arc<Node>,
        (name, value): (&OsStr, &[u8]),
        flags: XattrFlags,
        caller: &Caller,
    ) -> io::Result<()> {
        if name == CAPABILITY {
            // A later write-out would remove it, as each write to a file does.
            settle::settle(self, node);
        }
        node.at_path(|path| rustix::fs::setxattr(path, name, value, flags))?;
        if name == ACCESS_LIST { rights::after_access_list(node, caller) } else { Ok(()) }
    }

    /// Sets attributes of a node. `open` is the file of the request, if it has one. Blocks.
    pub(crate) fn set_attributes(
        &self,
        node: &Arc<Node>,
        open: Option<Arc<OpenFile>>,
        wanted: &Wanted,
        caller: &Caller,
    ) -> io::Result<Attributes> {
        // `chown` to the same user and group arrives as a change of nothing.
        let has_owner = wanted.user.is_some() || wanted.group.is_some();
        let before = (has_owner || wanted.is_nothing()).then(|| node.status()).transpose()?;
        if has_owner {
            // As for chown(2), -1 changes nothing.
            let user = wanted.user.map(Uid::from_raw_unchecked);
            node.set_owner(user, wanted.group.map(Gid::from_raw_unchecked))?;
        }
        if let Some(mode) = wanted.mode {
            let mode = Mode::from_raw_mode(mode & 0o7777);
            if mode.intersects(Mode::SUID | Mode::SGID) && !rights::keeps_bits() {
                // A later write-out would remove them.
                settle::settle(self, node);
            }
            node.set_mode(mode)?;
        }
        if let Some(before) = before {
            rights::after_new_owner(node, &before, caller, has_owner)?;
        }
        if let Some(size) = wanted.size {
            self.drop_bits(node, &node.status()?, caller)?;
            self.set_size(node, open, size)?;
        }
        if wanted.accessed.is_some() || wanted.modified.is_some() {
            self.set_times(node, wanted.accessed, wanted.modified)?;
        }
        node.note_changed();
        of(node)
    }

    /// Sets times. A later write-out would set the time of the last write again, so the file is
    /// written out before, and a time that is not settled yet is settled as the new one.
    fn set_times(
        &self,
        node: &Arc<Node>,
        accessed: Option<Wish>,
        modified: Option<Wish>,
    ) -> io::Result<()> {
        let (unsettled, is_adopted) = {
            let state = node.state();
            (state.written, state.is_adopted)
        };
        if unsettled.is_some() || is_adopted {
            settle::write_out(node)?;
        }
        // A close would set the time of the last write again.
        let _closing = node.closing();
        node.set_times(&Timestamps {
            last_access: wanted_time(accessed),
            last_modification: wanted_time(modified),
        })?;
        let mut state = node.state();
        if let (Some(_), Some(accessed)) = (state.written, accessed) {
            state.accessed = Some(moment(accessed));
        }
        if let (Some(_), Some(modified)) = (unsettled, modified)
            && state.written == unsettled
        {
            state.written = Some(moment(modified));
        }
        Ok(())
    }

    fn set_size(&self, node: &Arc<Node>, open: Option<Arc<OpenFile>>, size: u64) -> io::Result<()> {
        if !node.protection()?.is_empty() {
            // Not even by a descriptor that was opened before.
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        let in_engine = node.state().writable().cloned();
        let (file, is_own) = match in_engine.or(open.filter(|file| file.access != Access::Read)) {
            Some(file) => (file, false),
            None => (open_for(&self.way, node, OFlags::WRONLY, None)?, true),
        };
        if is_own {
            file.opened_with(OFlags::RDWR);
        }
        let done = file.data.set_size(size);
        if done.is_ok() {
            node.state().is_replaced |= size == 0;
            file.note_write(0);
        }
        if is_own {
            self.end_open(file);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_of_requests_are_those_of_the_source() {
        for (major, minor) in [(1, 3), (8, 17), (259, 300), (4095, 0xf_ffff)] {
            let number = rustix::fs::makedev(major, minor);
            assert_eq!(device(encoded(number)), number, "{major}:{minor}");
        }
    }
}
