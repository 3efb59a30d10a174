//! The requests of the kernel: each is taken apart, carried out, and answered.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use forebay_uring::fuse::Backing;
use rustix::fs::{AtFlags, FallocateFlags, FileType, OFlags, RenameFlags, XattrFlags};

use crate::attributes::{self, Wanted};
use crate::caller::Caller;
use crate::data::Sync;
use crate::directory::OpenDirectory;
use crate::mounted::Mount;
use crate::node::Node;
use crate::open_file::OpenFile;
use crate::passed::{Pass, how};
use crate::reply::Reply;
use crate::rights::visible;
use crate::settle;
use crate::times::{Wish, requested};
use crate::wire::{FSYNC_DATA, Fields, Request, TO_RUN, kind, set};

/// Receiver of the kernel's requests.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) mount: Arc<Mount>,
    /// The connection with the kernel.
    pub(crate) device: Arc<OwnedFd>,
    /// How files are opened: past the page cache if shared mappings work with that.
    pub(crate) opened: u32,
}

impl Served {
    /// Carries a request out, and puts its result into the reply. Blocks.
    ///
    /// # Errors
    /// The error that the caller gets; the reply does not count then.
    pub(crate) fn serve(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> io::Result<()> {
        let mut fields = request.fields();
        match request.kind {
            kind::LOOKUP => {
                let (parent, name) = (self.node(request.node)?, fields.name()?);
                reply.found(&self.mount.look_up(&parent, name)?.1)
            }
            kind::GETATTR => reply.attributes(&attributes::of(&*self.node(request.node)?)?),
            kind::SETATTR => self.set_attributes(request, reply),
            kind::OPEN => self.open(request, reply),
            kind::READ => self.read(fields, reply),
            kind::WRITE => self.write(request, reply),
            kind::FLUSH => self.mount.flush_file(&*self.mount.files.get(fields.long()?)?),
            kind::RELEASE => self.release(fields),
            kind::FSYNC => {
                let (handle, what) = synced(fields)?;
                self.mount.files.get(handle)?.sync(what)
            }
            kind::FALLOCATE => self.allocate(request),
            kind::LSEEK => {
                let [handle, offset] = fields.longs()?;
                let [whence] = fields.words()?;
                let (file, whence) = (self.mount.files.get(handle)?, whence.cast_signed());
                reply.longs([self.mount.seek_file(&file, offset.cast_signed(), whence)?])
            }
            kind::COPY_FILE_RANGE => self.copy(request, reply),
            kind::IOCTL => Err(io::Error::from_raw_os_error(libc::ENOTTY)),
            _ => self.serve_directory(request, reply),
        }
    }

    /// The same for requests about names, directories and extended attributes.
    fn serve_directory(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> io::Result<()> {
        let (node, mut fields) = (|| self.node(request.node), request.fields());
        match request.kind {
            kind::CREATE | kind::TMPFILE => self.create(request, reply),
            kind::MKNOD => {
                let [mode, device, umask, _] = fields.words()?;
                let (kind, device) = (FileType::from_raw_mode(mode), attributes::device(device));
                let (parent, name) = (node()?, fields.name()?);
                let make = |mode| rustix::fs::mknodat(&*parent, name, kind, mode, device);
                let (caller, modes) = (Caller::of(request), (mode, umask));
                reply.found(&self.mount.make(&caller, &parent, name, modes, make)?)
            }
            kind::MKDIR => {
                let [mode, umask] = fields.words()?;
                let (parent, name) = (node()?, fields.name()?);
                let make = |mode| rustix::fs::mkdirat(&*parent, name, mode);
                let (caller, modes) = (Caller::of(request), (mode, umask));
                reply.found(&self.mount.make(&caller, &parent, name, modes, make)?)
            }
            kind::SYMLINK => {
                let (parent, name, target) = (node()?, fields.name()?, fields.name()?);
                let make = |_| rustix::fs::symlinkat(target, &*parent, name);
                let caller = Caller::of(request);
                reply.found(&self.mount.make(&caller, &parent, name, (0, 0), make)?)
            }
            kind::LINK => {
                let linked = self.node(fields.long()?)?;
                reply.found(&self.mount.link_to(&linked, &*node()?, fields.name()?)?)
            }
            kind::READLINK => reply.bytes(&self.mount.target_of(&*node()?)?),
            kind::UNLINK => self.mount.remove(&*node()?, fields.name()?, AtFlags::empty()),
            kind::RMDIR => self.mount.remove(&*node()?, fields.name()?, AtFlags::REMOVEDIR),
            kind::RENAME => {
                let to = fields.long()?;
                self.rename(&*node()?, to, RenameFlags::empty(), fields)
            }
            kind::RENAME2 => {
                let (to, [flags, _]) = (fields.long()?, fields.words()?);
                self.rename(&*node()?, to, RenameFlags::from_bits_retain(flags), fields)
            }
            kind::OPENDIR => {
                let ([flags], node) = (fields.words()?, node()?);
                let hidden = self.mount.hidden_in(&node);
                let open = OpenDirectory::open(node, flags.cast_signed(), hidden)?;
                reply.opened(self.mount.directories.add(Arc::new(open)), 0, None)
            }
            kind::READDIR | kind::READDIRPLUS => {
                let ([handle, position], [most]) = (fields.longs()?, fields.words()?);
                let open = self.mount.directories.get(handle)?;
                match request.kind {
                    kind::READDIR => open.read(position, most, reply),
                    _ => self.mount.list(&open, (position, most), reply),
                }
            }
            kind::RELEASEDIR => {
                self.mount.directories.remove(fields.long()?);
                Ok(())
            }
            kind::FSYNCDIR => {
                let (handle, what) = synced(fields)?;
                self.mount.directories.get(handle)?.sync(what)
            }
            kind::STATFS => reply.space(&rustix::fs::fstatvfs(&*node()?)?),
            kind::SETXATTR => {
                let [size, flags] = fields.words()?;
                let (name, value) = (fields.name()?, fields.data(size as usize)?);
                let flags = XattrFlags::from_bits_retain(flags);
                self.mount.set_extended(&node()?, (name, value), flags, &Caller::of(request))
            }
            kind::GETXATTR => {
                let [size, _] = fields.words()?;
                reply.value(size, &attributes::extended(&*node()?, fields.name()?, size)?)
            }
            kind::LISTXATTR => {
                let [size, _] = fields.words()?;
                let names = attributes::extended_names(&*node()?)?;
                reply.value(size, &visible(names, &Caller::of(request)))
            }
            kind::REMOVEXATTR => {
                let name = fields.name()?;
                node()?.at_path(|path: &Path| rustix::fs::removexattr(path, name))
            }
            kind::DESTROY => Ok(()),
            // The kernel sends a request of such a kind no more.
            _ => Err(io::Error::from_raw_os_error(libc::ENOSYS)),
        }
    }

    /// Ends lookups that the kernel has forgotten. Such a request has no reply.
    pub(crate) fn forget(&self, request: &Request<'_>) -> io::Result<()> {
        let mut fields = request.fields();
        if request.kind == kind::FORGET {
            self.forget_one(request.node, fields.long()?);
            return Ok(());
        }
        let [count, _] = fields.words()?;
        let mut each = fields.rest();
        for _ in 0..count {
            let [number, lookups] = each.longs()?;
            self.forget_one(number, lookups);
        }
        Ok(())
    }

    fn forget_one(&self, number: u64, lookups: u64) {
        if let Some(node) = self.mount.nodes.forget(number, lookups) {
            node.state().is_linkable = false;
            settle::drop_removed(&self.mount, &node);
        }
    }

    fn node(&self, number: u64) -> io::Result<Arc<Node>> {
        self.mount.nodes.get(number)
    }

    fn set_attributes(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> io::Result<()> {
        let mut fields = request.fields();
        let [which, _] = fields.words()?;
        let [handle, size, _, accessed, modified, _] = fields.longs()?;
        let [accessed_part, modified_part, _, mode, _, user, group, _] = fields.words()?;
        let is_set = |bit: u32| which & bit != 0;
        let wish = |bit, now, seconds, part| match (is_set(bit), is_set(now)) {
            (false, _) => Ok(None),
            (true, true) => Ok(Some(Wish::Now)),
            (true, false) => requested(seconds, part).map(|time| Some(Wish::At(time))),
        };
        let wanted = Wanted {
            mode: is_set(set::MODE).then_some(mode),
            user: is_set(set::USER).then_some(user),
            group: is_set(set::GROUP).then_some(group),
            size: is_set(set::SIZE).then_some(size),
            accessed: wish(set::ACCESSED, set::ACCESSED_NOW, accessed, accessed_part)?,
            modified: wish(set::MODIFIED, set::MODIFIED_NOW, modified, modified_part)?,
        };
        let node = self.node(request.node)?;
        let open = is_set(set::HANDLE).then(|| self.mount.files.get(handle).ok()).flatten();
        let set = self.mount.set_attributes(&node, open, &wanted, &Caller::of(request));
        reply.attributes(&set?)
    }

    /// Renames: the fields that are left are the old name and the new one.
    fn rename(
        &self,
        from: &Node,
        to: u64,
        flags: RenameFlags,
        mut fields: Fields<'_>,
    ) -> io::Result<()> {
        let (name, new_name) = (fields.name()?, fields.name()?);
        self.mount.rename_to((from, name), (&*self.node(to)?, new_name), flags)
    }

    fn open(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> io::Result<()> {
        let [flags] = request.fields().words()?;
        let (node, flags) = (self.node(request.node)?, OFlags::from_bits_retain(flags));
        let pass = |file: BorrowedFd<'_>| Backing::new(&self.device, file);
        let pass = self.mount.passing.is_on().then_some(&pass as Pass<'_>);
        let file = self.mount.open_file(&node, flags, &Caller::of(request), pass)?;
        self.opened(file, flags, reply)
    }

    fn create(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> io::Result<()> {
        let mut fields = request.fields();
        let [flags, mode, umask, _] = fields.words()?;
        let (parent, modes) = (self.node(request.node)?, (mode, umask));
        let (caller, flags) = (Caller::of(request), OFlags::from_bits_retain(flags));
        let (attributes, file) = match request.kind {
            kind::TMPFILE => self.mount.create_unnamed(&caller, &parent, modes, flags)?,
            _ => self.mount.create_file(&caller, &parent, fields.name()?, modes, flags)?,
        };
        reply.found(&attributes)?;
        self.opened(file, flags, reply)
    }

    /// Replies with an open file. The flags are those of the open.
    fn opened(&self, file: Arc<OpenFile>, flags: OFlags, reply: &mut Reply<'_>) -> io::Result<()> {
        let how = how(&file, flags, self.opened);
        let backing = file.backing.as_ref().map(|backing| backing.number());
        reply.opened(self.mount.files.add(file), how, backing)
    }

    fn release(&self, mut fields: Fields<'_>) -> io::Result<()> {
        let (handle, [flags]) = (fields.long()?, fields.words()?);
        let Some(file) = self.mount.files.remove(handle) else { return Ok(()) };
        if flags & TO_RUN != 0 {
            let mut state = file.node.state();
            state.runs = state.runs.saturating_sub(1);
        }
        self.mount.end_open(file);
        Ok(())
    }

    fn read(&self, mut fields: Fields<'_>, reply: &mut Reply<'_>) -> io::Result<()> {
        let ([handle, offset], [size, _]) = (fields.longs()?, fields.words()?);
        let (_, [flags, _]) = (fields.long()?, fields.words()?);
        let file = self.mount.files.get(handle)?;
        reply.filled(size, |memory| file.read(memory, offset, flags.cast_signed()))
    }

    fn write(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> io::Result<()> {
        let mut fields = request.fields();
        let ([handle, offset], [size, kind]) = (fields.longs()?, fields.words()?);
        let (_, [flags, _]) = (fields.long()?, fields.words()?);
        let (file, data) = (self.mount.files.get(handle)?, fields.data(size as usize)?);
        let how = (flags.cast_signed(), Caller::of_write(request, kind));
        reply.count(self.mount.write_file(&file, offset, data, how)? as u64)
    }

    fn allocate(&self, request: &Request<'_>) -> io::Result<()> {
        let mut fields = request.fields();
        let ([handle, offset, length], [mode]) = (fields.longs()?, fields.words()?);
        let file = self.mount.files.get(handle)?;
        let flags = FallocateFlags::from_bits_retain(mode);
        self.mount.allocate(&file, flags, (offset, length), &Caller::of(request))
    }

    fn copy(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> io::Result<()> {
        let mut fields = request.fields();
        let [from, from_offset, _, to, to_offset, length] = fields.longs()?;
        let (from, to) = (self.mount.files.get(from)?, self.mount.files.get(to)?);
        let (from, to) = ((&*from, from_offset), (&*to, to_offset));
        reply.count(self.mount.copy_range(from, to, length, &Caller::of(request))?)
    }
}

/// The open file or directory of a request to sync it, and what to sync.
fn synced(mut fields: Fields<'_>) -> io::Result<(u64, Sync)> {
    let (handle, [flags]) = (fields.long()?, fields.words()?);
    let what = if flags & FSYNC_DATA != 0 { Sync::Data } else { Sync::All };
    Ok((handle, what))
}
