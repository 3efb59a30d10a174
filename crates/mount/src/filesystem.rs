//! The requests of the kernel. Each method decodes one, has it done, and replies.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation,
    INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek,
    ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{AtFlags, FallocateFlags, FileType, Mode, OFlags, XattrFlags};

use crate::attributes::{self, Wanted};
use crate::data::{Sync, Way};
use crate::directory::OpenDirectory;
use crate::limits::{ATTRIBUTES_KEPT, REQUEST_BYTES};
use crate::node::{Node, Nodes};
use crate::open_file::OpenFile;
use crate::settle::{self, Settling};

/// A mounted source.
#[derive(Debug)]
pub(crate) struct Mount {
    pub(crate) way: Way,
    pub(crate) nodes: Nodes,
    pub(crate) settling: Settling,
    files: Handles<OpenFile>,
    directories: Handles<OpenDirectory>,
    log: Log,
}

/// Gets one line for each thing that no request can be told.
#[derive(Clone)]
pub(crate) struct Log(pub(crate) Arc<dyn Fn(&str) + Send + std::marker::Sync>);

impl std::fmt::Debug for Log {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Log")
    }
}

impl Mount {
    pub(crate) fn log(&self, line: &str) {
        (self.log.0)(line);
    }

    pub(crate) fn new(way: Way, nodes: Nodes, log: Log) -> Self {
        Self {
            way,
            nodes,
            log,
            settling: Settling::default(),
            files: Handles::default(),
            directories: Handles::default(),
        }
    }
}

/// Numbers of open files, as the kernel sends them.
#[derive(Debug)]
struct Handles<T> {
    last: AtomicU64,
    open: RwLock<HashMap<u64, Arc<T>>>,
}

impl<T> Default for Handles<T> {
    fn default() -> Self {
        Self { last: AtomicU64::new(0), open: RwLock::default() }
    }
}

impl<T> Handles<T> {
    fn add(&self, open: Arc<T>) -> FileHandle {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.open.write().unwrap_or_else(PoisonError::into_inner).insert(number, open);
        FileHandle(number)
    }

    fn get(&self, handle: FileHandle) -> io::Result<Arc<T>> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.get(&handle.0).cloned().ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }

    fn remove(&self, handle: FileHandle) -> Option<Arc<T>> {
        self.open.write().unwrap_or_else(PoisonError::into_inner).remove(&handle.0)
    }
}

/// What the kernel talks to.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) mount: Arc<Mount>,
    /// How files are opened: past the page cache if shared mappings work with that.
    opened: FopenFlags,
}

impl Served {
    pub(crate) fn new(mount: Arc<Mount>) -> Self {
        Self { mount, opened: FopenFlags::empty() }
    }

    fn node(&self, number: INodeNo) -> io::Result<Arc<Node>> {
        self.mount.nodes.get(number.0)
    }
}

/// Numbers of inodes are not used again, so all are of one generation.
const GENERATION: Generation = Generation(0);

/// Replies with an entry or an error.
fn entry(reply: ReplyEntry, made: io::Result<fuser::FileAttr>) {
    match made {
        Ok(attributes) => reply.entry(&ATTRIBUTES_KEPT, &attributes, GENERATION),
        Err(error) => reply.error(error.into()),
    }
}

fn empty(reply: ReplyEmpty, done: io::Result<()>) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error.into()),
    }
}

fn attr(reply: ReplyAttr, found: io::Result<fuser::FileAttr>) {
    match found {
        Ok(attributes) => reply.attr(&ATTRIBUTES_KEPT, &attributes),
        Err(error) => reply.error(error.into()),
    }
}

/// Replies with the value of an attribute, or with its size if none is asked for.
fn value(reply: ReplyXattr, size: u32, found: io::Result<Vec<u8>>) {
    match found {
        Ok(found) if size == 0 => reply.size(found.len() as u32),
        Ok(found) if found.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(found) => reply.data(&found),
        Err(error) => reply.error(error.into()),
    }
}

/// Bytes of the largest extended attribute, and of the largest list of names.
const XATTR_BYTES: usize = 64 << 10;

impl Filesystem for Served {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let _ = config.set_max_write(REQUEST_BYTES);
        let wanted = InitFlags::FUSE_ATOMIC_O_TRUNC
            | InitFlags::FUSE_DONT_MASK
            | InitFlags::FUSE_POSIX_ACL
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_AUTO_INVAL_DATA
            | InitFlags::FUSE_ASYNC_DIO;
        let _ = config.add_capabilities(wanted & config.capabilities());
        // Linux 6.6. Before it, a file opened past the page cache has no shared mappings; then the
        // page cache is used, and each write still comes here at once.
        if config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP).is_ok() {
            self.opened = FopenFlags::FOPEN_DIRECT_IO;
        }
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.node(parent).and_then(|parent| self.mount.look_up(&parent, name));
        entry(reply, found.map(|(_, attributes)| attributes));
    }

    fn forget(&self, _request: &Request, number: INodeNo, lookups: u64) {
        if let Some(node) = self.mount.nodes.forget(number.0, lookups) {
            settle::drop_removed(&self.mount, &node);
        }
    }

    fn getattr(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        attr(reply, self.node(number).and_then(|node| attributes::of(&node)));
    }

    fn setattr(
        &self,
        _request: &Request,
        number: INodeNo,
        mode: Option<u32>,
        user: Option<u32>,
        group: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _changed: Option<SystemTime>,
        handle: Option<FileHandle>,
        _created: Option<SystemTime>,
        _backed_up: Option<SystemTime>,
        _stored: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let wanted = Wanted { mode, user, group, size, accessed, modified };
        let set = self.node(number).and_then(|node| {
            let open = handle.and_then(|handle| self.mount.files.get(handle).ok());
            self.mount.set_attributes(&node, open, &wanted)
        });
        attr(reply, set);
    }

    fn readlink(&self, _request: &Request, number: INodeNo, reply: ReplyData) {
        match self.node(number).and_then(|node| self.mount.target_of(&node)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(error.into()),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let (kind, device) = (FileType::from_raw_mode(mode), attributes::device(device));
        let mode = Mode::from_raw_mode(mode & 0o7777);
        let made = self.node(parent).and_then(|parent| {
            self.mount.make(request, &parent, name, umask, || {
                rustix::fs::mknodat(&*parent, name, kind, mode, device)
            })
        });
        entry(reply, made);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let mode = Mode::from_raw_mode(mode & 0o7777);
        let made = self.node(parent).and_then(|parent| {
            let make = || rustix::fs::mkdirat(&*parent, name, mode);
            self.mount.make(request, &parent, name, umask, make)
        });
        entry(reply, made);
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let flags = AtFlags::empty();
        empty(reply, self.node(parent).and_then(|parent| self.mount.remove(&parent, name, flags)));
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let flags = AtFlags::REMOVEDIR;
        empty(reply, self.node(parent).and_then(|parent| self.mount.remove(&parent, name, flags)));
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let made = self.node(parent).and_then(|parent| {
            let make = || rustix::fs::symlinkat(target, &*parent, name);
            self.mount.make(request, &parent, name, 0, make)
        });
        entry(reply, made);
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let renamed = self.node(parent).and_then(|parent| {
            let new_parent = self.node(new_parent)?;
            self.mount.rename_to((&parent, name), (&new_parent, new_name), flags)
        });
        empty(reply, renamed);
    }

    fn link(
        &self,
        _request: &Request,
        number: INodeNo,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        let linked = self.node(number).and_then(|node| {
            let parent = self.node(parent)?;
            self.mount.link_to(&node, &parent, name)
        });
        entry(reply, linked);
    }

    fn open(&self, _request: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let flags = OFlags::from_bits_retain(flags.0 as u32);
        match self.node(number).and_then(|node| self.mount.open_file(&node, flags)) {
            Ok(file) => reply.opened(self.mount.files.add(file), self.opened),
            Err(error) => reply.error(error.into()),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let flags = OFlags::from_bits_retain(flags as u32);
        let created = self.node(parent).and_then(|parent| {
            self.mount.create_file(request, &parent, name, (mode, umask), flags)
        });
        match created {
            Ok((attributes, file)) => {
                let handle = self.mount.files.add(file);
                reply.created(&ATTRIBUTES_KEPT, &attributes, GENERATION, handle, self.opened);
            }
            Err(error) => reply.error(error.into()),
        }
    }

    fn read(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let file = match self.mount.files.get(handle) {
            Ok(file) => file,
            Err(error) => return reply.error(error.into()),
        };
        self.mount.read_file(&file, offset, size as usize, |read| match read {
            Ok(read) => reply.data(read),
            Err(error) => reply.error(error.into()),
        });
    }

    fn write(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let file = self.mount.files.get(handle);
        match file.and_then(|file| self.mount.write_file(&file, offset, data, flags.0)) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(error.into()),
        }
    }

    fn flush(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        empty(reply, self.mount.files.get(handle).and_then(|file| self.mount.flush_file(&file)));
    }

    fn release(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        if let Some(file) = self.mount.files.remove(handle) {
            self.mount.end_open(file);
        }
        reply.ok();
    }

    fn fsync(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        is_data: bool,
        reply: ReplyEmpty,
    ) {
        let what = if is_data { Sync::Data } else { Sync::All };
        empty(reply, self.mount.files.get(handle).and_then(|file| file.data.sync(what)));
    }

    fn opendir(&self, _request: &Request, number: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.node(number).and_then(|node| OpenDirectory::open(&node)) {
            Ok(open) => {
                reply.opened(self.mount.directories.add(Arc::new(open)), FopenFlags::empty());
            }
            Err(error) => reply.error(error.into()),
        }
    }

    fn readdir(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let open = self.mount.directories.get(handle);
        match open.and_then(|open| open.read(offset, &mut reply)) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error.into()),
        }
    }

    fn releasedir(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.mount.directories.remove(handle);
        reply.ok();
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        is_data: bool,
        reply: ReplyEmpty,
    ) {
        let what = if is_data { Sync::Data } else { Sync::All };
        empty(reply, self.mount.directories.get(handle).and_then(|open| open.sync(what)));
    }

    fn statfs(&self, _request: &Request, number: INodeNo, reply: ReplyStatfs) {
        let status = self.node(number).and_then(|node| Ok(rustix::fs::fstatvfs(&*node)?));
        match status {
            Ok(status) => reply.statfs(
                status.f_blocks,
                status.f_bfree,
                status.f_bavail,
                status.f_files,
                status.f_ffree,
                status.f_bsize as u32,
                status.f_namemax as u32,
                status.f_frsize as u32,
            ),
            Err(error) => reply.error(error.into()),
        }
    }

    fn setxattr(
        &self,
        _request: &Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let flags = XattrFlags::from_bits_retain(flags as u32);
        let set = self
            .node(number)
            .and_then(|node| Ok(rustix::fs::setxattr(node.path(), name, value, flags)?));
        empty(reply, set);
    }

    fn getxattr(
        &self,
        _request: &Request,
        number: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        let found = self.node(number).and_then(|node| {
            let mut found = Vec::with_capacity(XATTR_BYTES);
            let space = rustix::buffer::spare_capacity(&mut found);
            rustix::fs::getxattr(node.path(), name, space)?;
            Ok(found)
        });
        value(reply, size, found);
    }

    fn listxattr(&self, _request: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        let found = self.node(number).and_then(|node| {
            let mut found = Vec::with_capacity(XATTR_BYTES);
            let space = rustix::buffer::spare_capacity(&mut found);
            rustix::fs::listxattr(node.path(), space)?;
            Ok(found)
        });
        value(reply, size, found);
    }

    fn removexattr(&self, _request: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed =
            self.node(number).and_then(|node| Ok(rustix::fs::removexattr(node.path(), name)?));
        empty(reply, removed);
    }

    fn ioctl(
        &self,
        _request: &Request,
        _number: INodeNo,
        _handle: FileHandle,
        _flags: IoctlFlags,
        _command: u32,
        _data: &[u8],
        _size: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }

    fn fallocate(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let flags = FallocateFlags::from_bits_retain(mode as u32);
        let file = self.mount.files.get(handle);
        empty(reply, file.and_then(|file| self.mount.allocate(&file, flags, offset, length)));
    }

    fn lseek(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let file = self.mount.files.get(handle);
        let found = file.and_then(|file| {
            let offset = u64::try_from(offset);
            let offset = offset.map_err(|_| io::Error::from_raw_os_error(libc::ENXIO))?;
            self.mount.seek_file(&file, offset, whence)
        });
        match found {
            Ok(found) => reply.offset(found.cast_signed()),
            Err(error) => reply.error(error.into()),
        }
    }

    fn copy_file_range(
        &self,
        _request: &Request,
        _from: INodeNo,
        handle_from: FileHandle,
        offset_from: u64,
        _to: INodeNo,
        handle_to: FileHandle,
        offset_to: u64,
        length: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let files = self
            .mount
            .files
            .get(handle_from)
            .and_then(|from| Ok((from, self.mount.files.get(handle_to)?)));
        let copied = files.and_then(|(from, to)| {
            self.mount.copy_range((&from, offset_from), (&to, offset_to), length)
        });
        match copied {
            Ok(copied) => reply.written(copied as u32),
            Err(error) => reply.error(error.into()),
        }
    }
}
