//! The requests of the kernel. Each method decodes one, has it done, and replies.

use std::ffi::OsStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, INodeNo,
    IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{AtFlags, FallocateFlags, FileType, OFlags, XattrFlags};

use crate::attributes::{self, Wanted};
use crate::caller::Caller;
use crate::data::Sync;
use crate::directory::OpenDirectory;
use crate::mounted::Mount;
use crate::node::Node;
use crate::passed::Pass;
use crate::reply::{agree, answer, attr, empty, entry, made, opened, space, value};
use crate::rights::visible;
use crate::settle;
use crate::times::requested;

/// Receiver of the kernel's requests.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) mount: Arc<Mount>,
    /// How files are opened: past the page cache if shared mappings work with that.
    pub(crate) opened: FopenFlags,
}

impl Served {
    fn node(&self, number: INodeNo) -> io::Result<Arc<Node>> {
        self.mount.nodes.get(number.0)
    }
}

impl Filesystem for Served {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        self.opened = agree(config);
        self.mount.passing.agree(config, &self.mount.way);
        Ok(())
    }

    fn lookup(&self, _: &Request, dir: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.node(dir).and_then(|parent| self.mount.look_up(&parent, name));
        entry(reply, found.map(|(_, attributes)| attributes));
    }

    fn forget(&self, _: &Request, ino: INodeNo, lookups: u64) {
        if let Some(node) = self.mount.nodes.forget(ino.0, lookups) {
            settle::drop_removed(&self.mount, &node);
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        attr(reply, self.node(ino).and_then(|node| attributes::of(&node)));
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        user: Option<u32>,
        group: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        fh: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (accessed, modified) = (accessed.map(requested), modified.map(requested));
        let wanted = Wanted { mode, user, group, size, accessed, modified };
        let set = self.node(ino).and_then(|node| {
            let open = fh.and_then(|fh| self.mount.files.get(fh).ok());
            self.mount.set_attributes(&node, open, &wanted, &Caller::of(req))
        });
        attr(reply, set);
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        let target = self.node(ino).and_then(|node| self.mount.target_of(&node));
        answer!(reply, target, target => reply.data(&target));
    }

    fn mknod(
        &self,
        req: &Request,
        dir: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let (kind, device) = (FileType::from_raw_mode(mode), attributes::device(device));
        let made = self.node(dir).and_then(|parent| {
            let make = |mode| rustix::fs::mknodat(&*parent, name, kind, mode, device);
            self.mount.make(&Caller::of(req), &parent, name, (mode, umask), make)
        });
        entry(reply, made);
    }

    fn mkdir(
        &self,
        req: &Request,
        dir: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let made = self.node(dir).and_then(|parent| {
            let make = |mode| rustix::fs::mkdirat(&*parent, name, mode);
            self.mount.make(&Caller::of(req), &parent, name, (mode, umask), make)
        });
        entry(reply, made);
    }

    fn unlink(&self, _: &Request, dir: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let remove = |dir: Arc<Node>| self.mount.remove(&dir, name, AtFlags::empty());
        empty(reply, self.node(dir).and_then(remove));
    }

    fn rmdir(&self, _: &Request, dir: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let remove = |dir: Arc<Node>| self.mount.remove(&dir, name, AtFlags::REMOVEDIR);
        empty(reply, self.node(dir).and_then(remove));
    }

    fn symlink(&self, req: &Request, dir: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let made = self.node(dir).and_then(|parent| {
            let make = |_| rustix::fs::symlinkat(target, &*parent, name);
            self.mount.make(&Caller::of(req), &parent, name, (0, 0), make)
        });
        entry(reply, made);
    }

    fn rename(
        &self,
        _: &Request,
        dir: INodeNo,
        name: &OsStr,
        to: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let renamed = self.node(dir).and_then(|from| {
            self.mount.rename_to((&from, name), (&*self.node(to)?, new_name), flags)
        });
        empty(reply, renamed);
    }

    fn link(&self, _: &Request, ino: INodeNo, dir: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let nodes = self.node(ino).and_then(|node| Ok((node, self.node(dir)?)));
        let linked = nodes.and_then(|(node, parent)| self.mount.link_to(&node, &parent, name));
        entry(reply, linked);
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let flags = OFlags::from_bits_retain(flags.0 as u32);
        let pass = |file: BorrowedFd<'_>| reply.open_backing(file);
        let pass = self.mount.passing.is_on().then_some(&pass as Pass<'_>);
        let open = |node| self.mount.open_file(&node, flags, &Caller::of(req), pass);
        let file = self.node(ino).and_then(open);
        answer!(reply, file, file => opened(reply, &self.mount, file, (flags, self.opened)));
    }

    fn create(
        &self,
        req: &Request,
        dir: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let flags = OFlags::from_bits_retain(flags as u32);
        let created = self.node(dir).and_then(|parent| {
            self.mount.create_file(&Caller::of(req), &parent, name, (mode, umask), flags)
        });
        answer!(reply, created, of => made(reply, &self.mount, of, (flags, self.opened)));
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let file = match self.mount.files.get(fh) {
            Ok(file) => file,
            Err(error) => return reply.error(error.into()),
        };
        self.mount.read_file(&file, flags.0, offset, size as usize, |read| {
            answer!(reply, read, read => reply.data(read));
        });
    }

    fn write(
        &self,
        req: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        kind: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let how = (flags.0, Caller::of_write(req, kind));
        let file = self.mount.files.get(fh);
        let written = file.and_then(|file| self.mount.write_file(&file, offset, data, how));
        answer!(reply, written, written => reply.written(written as u32));
    }

    fn flush(&self, _: &Request, _: INodeNo, fh: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        empty(reply, self.mount.files.get(fh).and_then(|file| self.mount.flush_file(&file)));
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        if let Some(file) = self.mount.files.remove(fh) {
            self.mount.end_open(file);
        }
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, fh: FileHandle, is_data: bool, reply: ReplyEmpty) {
        let what = if is_data { Sync::Data } else { Sync::All };
        empty(reply, self.mount.files.get(fh).and_then(|file| file.sync(what)));
    }

    fn opendir(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let opened = self.node(ino).and_then(|node| OpenDirectory::open(node, flags.0));
        let added = opened.map(|open| self.mount.directories.add(Arc::new(open)));
        answer!(reply, added, fh => reply.opened(fh, FopenFlags::empty()));
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let open = self.mount.directories.get(fh);
        answer!(reply, open.and_then(|open| open.read(offset, &mut reply)), () => reply.ok());
    }

    fn readdirplus(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let open = self.mount.directories.get(fh);
        let read = open.and_then(|open| self.mount.list(&open, offset, &mut reply));
        answer!(reply, read, () => reply.ok());
    }

    fn releasedir(&self, _: &Request, _: INodeNo, fh: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.mount.directories.remove(fh);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, fh: FileHandle, is_data: bool, reply: ReplyEmpty) {
        let what = if is_data { Sync::Data } else { Sync::All };
        empty(reply, self.mount.directories.get(fh).and_then(|open| open.sync(what)));
    }

    fn statfs(&self, _: &Request, ino: INodeNo, reply: ReplyStatfs) {
        space(reply, self.node(ino).and_then(|node| Ok(rustix::fs::fstatvfs(&*node)?)));
    }

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let flags = XattrFlags::from_bits_retain(flags as u32);
        let set = |node| self.mount.set_extended(&node, (name, value), flags, &Caller::of(req));
        empty(reply, self.node(ino).and_then(set));
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let found = self.node(ino).and_then(|node| attributes::extended(&node, name, size));
        value(reply, size, found);
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let found = self.node(ino).and_then(|node| attributes::extended_names(&node));
        value(reply, size, found.map(|names| visible(names, &Caller::of(req))));
    }

    fn removexattr(&self, _: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let remove = |path: &Path| rustix::fs::removexattr(path, name);
        empty(reply, self.node(ino).and_then(|node| node.at_path(remove)));
    }

    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        _: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }

    fn fallocate(
        &self,
        req: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let (flags, range) = (FallocateFlags::from_bits_retain(mode as u32), (offset, length));
        let file = self.mount.files.get(fh);
        let done = file.and_then(|file| self.mount.allocate(&file, flags, range, &Caller::of(req)));
        empty(reply, done);
    }

    fn lseek(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let file = self.mount.files.get(fh);
        let found = file.and_then(|file| self.mount.seek_file(&file, offset, whence));
        answer!(reply, found, found => reply.offset(found.cast_signed()));
    }

    fn copy_file_range(
        &self,
        req: &Request,
        _: INodeNo,
        handle_from: FileHandle,
        offset_from: u64,
        _: INodeNo,
        handle_to: FileHandle,
        offset_to: u64,
        length: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let files = &self.mount.files;
        let copied = files.get(handle_from).and_then(|from| {
            let (to, caller) = (files.get(handle_to)?, Caller::of(req));
            self.mount.copy_range((&from, offset_from), (&to, offset_to), length, &caller)
        });
        answer!(reply, copied, copied => reply.written(copied as u32));
    }
}
