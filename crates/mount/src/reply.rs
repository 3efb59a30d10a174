//! Replies: the features that are agreed on, results of one kind, and the numbers of errors.

use std::io;
use std::sync::Arc;

use fuser::{
    Errno, FileAttr, FopenFlags, Generation, InitFlags, KernelConfig, ReplyAttr, ReplyCreate,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyXattr,
};
use rustix::fs::{OFlags, StatVfs};

use crate::limits::{ATTRIBUTES_KEPT, REQUEST_BYTES};
use crate::mounted::Mount;
use crate::open_file::OpenFile;
use crate::passed::how;

/// Replies to one request with a result by an expression, or with its error.
macro_rules! answer {
    ($reply:ident, $result:expr, $found:pat => $answer:expr) => {
        match $result {
            Ok($found) => $answer,
            Err(error) => $reply.error(error.into()),
        }
    };
}
pub(crate) use answer;

/// Agrees with the kernel on features. Returns how files are opened.
pub(crate) fn agree(config: &mut KernelConfig) -> FopenFlags {
    let _ = config.set_max_write(REQUEST_BYTES);
    let wanted = InitFlags::FUSE_ATOMIC_O_TRUNC
        | InitFlags::FUSE_DONT_MASK
        | InitFlags::FUSE_POSIX_ACL
        | InitFlags::FUSE_PARALLEL_DIROPS
        | InitFlags::FUSE_AUTO_INVAL_DATA
        | InitFlags::FUSE_ASYNC_DIO;
    let _ = config.add_capabilities(wanted & config.capabilities());
    if rustix::process::geteuid().is_root() {
        // Only root can look up each name that it can list.
        let wanted = InitFlags::FUSE_DO_READDIRPLUS | InitFlags::FUSE_READDIRPLUS_AUTO;
        let _ = config.add_capabilities(wanted & config.capabilities());
    }
    // Linux 6.6. Before it, a file opened past the page cache has no shared mappings; then the
    // page cache is used, and each write still comes here at once.
    if config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP).is_ok() {
        FopenFlags::FOPEN_DIRECT_IO
    } else {
        FopenFlags::empty()
    }
}

/// Replies with an open file. The flags are those of the open, and how files are opened.
pub(crate) fn opened(
    reply: ReplyOpen,
    mount: &Mount,
    file: Arc<OpenFile>,
    (flags, otherwise): (OFlags, FopenFlags),
) {
    let (how, backing) = (how(&file, flags, otherwise), file.backing.clone());
    let handle = mount.files.add(file);
    match backing {
        Some(backing) => reply.opened_passthrough(handle, how, &backing),
        None => reply.opened(handle, how),
    }
}

/// Replies with a file that was created or found, and is open.
pub(crate) fn made(
    reply: ReplyCreate,
    mount: &Mount,
    (attributes, file): (FileAttr, Arc<OpenFile>),
    (flags, otherwise): (OFlags, FopenFlags),
) {
    let (how, backing) = (how(&file, flags, otherwise), file.backing.clone());
    let (handle, kept) = (mount.files.add(file), &ATTRIBUTES_KEPT);
    match backing {
        Some(backing) => {
            reply.created_passthrough(kept, &attributes, GENERATION, handle, how, &backing);
        }
        None => reply.created(kept, &attributes, GENERATION, handle, how),
    }
}

/// Replies with the space of a file system.
pub(crate) fn space(reply: ReplyStatfs, found: io::Result<StatVfs>) {
    answer!(reply, found, of => reply.statfs(
        of.f_blocks,
        of.f_bfree,
        of.f_bavail,
        of.f_files,
        of.f_ffree,
        of.f_bsize as u32,
        of.f_namemax as u32,
        of.f_frsize as u32,
    ));
}

/// A node keeps its inode until the kernel has forgotten the number, so one generation is enough.
pub(crate) const GENERATION: Generation = Generation(0);

/// Replies with an entry or an error.
pub(crate) fn entry(reply: ReplyEntry, made: io::Result<FileAttr>) {
    match made {
        Ok(attributes) => reply.entry(&ATTRIBUTES_KEPT, &attributes, GENERATION),
        Err(error) => reply.error(error.into()),
    }
}

pub(crate) fn empty(reply: ReplyEmpty, done: io::Result<()>) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error.into()),
    }
}

pub(crate) fn attr(reply: ReplyAttr, found: io::Result<FileAttr>) {
    match found {
        Ok(attributes) => reply.attr(&ATTRIBUTES_KEPT, &attributes),
        Err(error) => reply.error(error.into()),
    }
}

/// Replies with the value of an attribute, or with its size if none is asked for.
pub(crate) fn value(reply: ReplyXattr, size: u32, found: io::Result<Vec<u8>>) {
    match found {
        Ok(found) if size == 0 => reply.size(found.len() as u32),
        Ok(found) if found.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(found) => reply.data(&found),
        Err(error) => reply.error(error.into()),
    }
}
