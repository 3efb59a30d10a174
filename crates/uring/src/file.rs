//! An open file that the ring can use: one descriptor, with direct I/O if the file system supports
//! it.
//!
//! Why one descriptor and not a direct and a buffered one: a write lease is refused while a second
//! open exists, so the block that holds the end of file is written by switching `O_DIRECT` off and
//! on again ([`OpenFile::set_direct`]). Nothing here caches what the kernel knows: lengths, space
//! and marks are asked for by a system call each time, on the caller's thread.

use std::io;
use std::mem;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::EventfdFlags;
use rustix::fs::{AtFlags, FallocateFlags, FileType, OFlags, SeekFrom, StatxFlags};
use rustix::io::{DupFlags, Errno, FdFlags, retry_on_intr};

use crate::block_device;
use crate::coverage::Coverage;
use crate::direct::{self, Alignment, Direct, Mode};
use crate::extents::{self, Extents};
use crate::fork::Home;
use crate::geometry::Geometry;
use crate::lease::{self, LeaseWatch, Leased};
use crate::lock::{self, Lock};
use crate::longest;
use crate::open::{
    self, Access, Create, Descriptor, Directory, How, LEASE_PATIENCE, Opened, Truncate,
};
use crate::rewrite::Rewrite;

/// Type of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// A regular file.
    Regular,
    /// A block device.
    Block,
    /// A directory, pipe, socket or character device, which this library does not serve.
    Other,
}

/// Identity of a file, independent of its names; for a block device, independent of its nodes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Identity {
    /// Device number of the file system, or of the block device itself.
    pub device: u64,
    /// Inode number, or for a block device a number that no file has.
    pub inode: u64,
}

impl Identity {
    /// No file system numbers a file so.
    const DEVICE: u64 = u64::MAX;

    pub(crate) fn of(status: &rustix::fs::Stat) -> Self {
        match kind_of(FileType::from_raw_mode(status.st_mode)) {
            Kind::Block => Self { device: status.st_rdev, inode: Self::DEVICE },
            Kind::Regular | Kind::Other => Self { device: status.st_dev, inode: status.st_ino },
        }
    }
}

/// An open file or block device.
#[derive(Debug)]
pub struct OpenFile {
    lease: Mutex<Option<Leased>>,
    locked: AtomicBool,
    /// Lease and lock stay with the open file.
    left: AtomicBool,
    home: Home,
    descriptor: OwnedFd,
    /// Locked while flags of the descriptor are changed.
    pub(crate) flags: Mutex<()>,
    /// Whether reads are to leave the time of the last access.
    pub(crate) leaves_accessed: AtomicBool,
    /// Second descriptor, for appends.
    pub(crate) appender: Mutex<Option<OwnedFd>>,
    /// Whether the descriptor may write. Set once more by [`OpenFile::make_writable`].
    is_writable: AtomicBool,
    kind: Kind,
    identity: Identity,
    direct: Direct,
    alignment: Alignment,
    directory: Directory,
    /// Reads end where the file ends; see [`OpenFile::ends_reads`].
    ends_reads: AtomicBool,
}

impl OpenFile {
    /// Opens a file, and waits up to [`LEASE_PATIENCE`] for another program to release its lease. A
    /// block device is opened exclusively, even for reading.
    ///
    /// # Errors
    /// The error of the kernel; `WouldBlock` if the lease was not released in time; `ResourceBusy`
    /// for a block device that is mounted or in use; `ReadOnlyFilesystem` for writing to a
    /// read-only device.
    pub fn open(path: &Path, how: &How) -> io::Result<Opened> {
        Self::open_within(path, how, LEASE_PATIENCE)
    }

    /// Opens a file as [`OpenFile::open`], and waits up to `patience` for a lease.
    ///
    /// # Errors
    /// As [`OpenFile::open`].
    pub fn open_within(path: &Path, how: &How, patience: Duration) -> io::Result<Opened> {
        let Descriptor { descriptor, created, is_nonblocking, may_be_link } =
            open::descriptor(path, how, Instant::now() + patience)?;
        let Looked { kind, identity, reported } = look(descriptor.as_fd())?;
        // Nothing else than these two flags can be set on a new descriptor, so one call sets both.
        let (direct, alignment) = direct_of(descriptor.as_fd(), kind, reported, OFlags::empty())?;
        if is_nonblocking && direct != Direct::Yes {
            // It was for the lease alone: the ring takes the flag as "fail rather than wait".
            rustix::fs::fcntl_setfl(&descriptor, OFlags::empty())?;
        }
        if how.truncate == Truncate::Cut && kind == Kind::Regular && !created {
            retry_on_intr(|| rustix::fs::ftruncate(&descriptor, 0))?;
        }
        if kind == Kind::Block
            && how.access == Access::ReadWrite
            && block_device::is_read_only(descriptor.as_fd())?
        {
            return Err(Errno::ROFS.into());
        }
        let directory = if created && how.create != Create::Temporary {
            open::keep_directory(path, may_be_link)
        } else {
            Directory::NotNeeded
        };
        let file = Self {
            lease: Mutex::new(None),
            locked: AtomicBool::new(false),
            left: AtomicBool::new(false),
            home: Home::here(),
            descriptor,
            flags: Mutex::new(()),
            leaves_accessed: AtomicBool::new(false),
            appender: Mutex::new(None),
            is_writable: AtomicBool::new(how.access == Access::ReadWrite),
            kind,
            identity,
            direct,
            alignment,
            directory,
            ends_reads: AtomicBool::new(false),
        };
        Ok(Opened { file, created })
    }

    /// Takes over a file that another process opened. Its mode, lease and lock belong to the open
    /// file and stay as they are. [`OpenFile::adopt_lease`] watches its lease.
    ///
    /// # Errors
    /// The error of the kernel; `InvalidInput` for a descriptor that is open for writing only.
    pub fn of_descriptor(descriptor: OwnedFd) -> io::Result<Self> {
        let Looked { kind, identity, reported } = look(descriptor.as_fd())?;
        let flags = rustix::fs::fcntl_getfl(&descriptor)?;
        let access = match flags & OFlags::ACCMODE {
            OFlags::RDONLY if !flags.contains(OFlags::PATH) => Access::Read,
            OFlags::RDWR => Access::ReadWrite,
            _ => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "open neither to read nor for both",
                ));
            }
        };
        let alignment = direct::alignment(descriptor.as_fd(), kind, reported);
        let (direct, alignment) = match alignment.filter(|_| flags.contains(OFlags::DIRECT)) {
            Some(alignment) => (Direct::Yes, alignment),
            None => (Direct::Refused("it was not when it came here".into()), Alignment::NONE),
        };
        Ok(Self {
            lease: Mutex::new(None),
            locked: AtomicBool::new(false),
            left: AtomicBool::new(false),
            home: Home::here(),
            descriptor,
            flags: Mutex::new(()),
            leaves_accessed: AtomicBool::new(false),
            appender: Mutex::new(None),
            is_writable: AtomicBool::new(access == Access::ReadWrite),
            kind,
            identity,
            direct,
            alignment,
            directory: Directory::NotNeeded,
            ends_reads: AtomicBool::new(false),
        })
    }

    /// Takes over a file that the program opened, as [`OpenFile::open`] opens it: direct if the
    /// file system supports that, with reads and writes that wait and that have an offset each, and
    /// closed in programs that this one starts. Duplicates of the descriptor share its mode.
    ///
    /// # Errors
    /// As [`OpenFile::of_descriptor`].
    pub fn given(descriptor: OwnedFd) -> io::Result<Self> {
        let mut file = Self::of_descriptor(descriptor)?;
        rustix::io::fcntl_setfd(&file.descriptor, FdFlags::CLOEXEC)?;
        direct::clear_flags(file.as_fd(), OFlags::NONBLOCK | OFlags::APPEND)?;
        if file.kind == Kind::Regular {
            file.go_direct()?;
        }
        Ok(file)
    }

    /// Switches a file that was taken over to direct I/O, if the file system supports it.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn go_direct(&mut self) -> io::Result<()> {
        let (reported, flags) = (look(self.as_fd())?.reported, rustix::fs::fcntl_getfl(&*self)?);
        (self.direct, self.alignment) = direct_of(self.as_fd(), self.kind, reported, flags)?;
        Ok(())
    }

    /// Switches the open file to buffered I/O, in all processes that share it.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn go_buffered(&mut self) -> io::Result<()> {
        direct::clear_flags(self.as_fd(), OFlags::DIRECT)?;
        (self.direct, self.alignment) = (Direct::Refused("turned off".into()), Alignment::NONE);
        Ok(())
    }

    /// Makes [`FlushDirectory`](forebay_block::Operation::FlushDirectory) flush the directory of
    /// this path, for a file whose entry may not be durable although this open did not create it.
    ///
    /// The whole file system is synced instead if the path is gone or names another file by now,
    /// and if the file has several names: the entry may then be in another directory.
    pub fn made_at(&mut self, path: &Path) {
        let is_only_name = rustix::fs::stat(path)
            .is_ok_and(|status| Identity::of(&status) == self.identity && status.st_nlink == 1);
        self.directory =
            if is_only_name { open::keep_directory(path, true) } else { Directory::Unreadable };
    }

    /// Returns the identity of the file.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Returns the identity of the file at a path without opening it, because an open would break
    /// leases.
    ///
    /// # Errors
    /// The error of the kernel, such as `NotFound`.
    pub fn identity_of(path: &Path) -> io::Result<Identity> {
        let status = rustix::fs::stat(path)?;
        Ok(Identity::of(&status))
    }

    /// Returns the type of the file.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the access mode of the descriptor.
    #[must_use]
    pub fn access(&self) -> Access {
        if self.is_writable.load(Ordering::Acquire) { Access::ReadWrite } else { Access::Read }
    }

    /// Replaces the read-only descriptor by that of `other`, which has the same file open for
    /// writing too. The number stays the same. The lock of `other` stays with the open file.
    ///
    /// The old open file lives on until its last request has ended and the ring has registered the
    /// new one: [`Backend::renew`](crate::Backend::renew), or a new attach.
    ///
    /// # Errors
    /// `InvalidInput` if `other` is not writable or another file; `Unsupported` if only this one
    /// grants direct I/O; otherwise the kernel's error. Nothing has changed then.
    pub fn make_writable(&self, mut other: OpenFile) -> io::Result<()> {
        if other.access() != Access::ReadWrite || other.identity != self.identity {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        match (&self.direct, &other.direct) {
            (Direct::Yes, Direct::Refused(_)) => return Err(io::ErrorKind::Unsupported.into()),
            (Direct::Refused(_), Direct::Yes) => other.go_buffered()?,
            (Direct::Yes, Direct::Yes) | (Direct::Refused(_), Direct::Refused(_)) => {}
        }
        // A read lease is gone: the other descriptor could not be opened before.
        self.release_lease();
        if self.leaves_accessed.load(Ordering::Relaxed) {
            other.leave_accessed();
        }
        self.replace_descriptor(other.as_fd())?;
        let is_locked = mem::replace(other.locked.get_mut(), false);
        self.locked.fetch_or(is_locked, Ordering::Relaxed);
        self.is_writable.store(true, Ordering::Release);
        Ok(())
    }

    /// Makes the descriptor's number name what `by` names, in one step.
    fn replace_descriptor(&self, by: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: the number is that of a descriptor which stays open during the call and after it.
        // It is never closed twice, for this second owner is not dropped.
        let mut number =
            mem::ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(self.descriptor.as_raw_fd()) });
        Ok(rustix::io::dup3(by, &mut number, DupFlags::CLOEXEC)?)
    }

    /// Returns whether the file is accessed with direct I/O, or the reason why not.
    #[must_use]
    pub fn direct(&self) -> &Direct {
        &self.direct
    }

    /// Returns the alignment that requests need; [`Alignment::NONE`] for buffered I/O.
    #[must_use]
    pub fn alignment(&self) -> Alignment {
        self.alignment
    }

    /// Returns the logical block size of a block device in bytes.
    ///
    /// # Errors
    /// The error of the kernel; `Unsupported` if the file is not a block device.
    pub fn logical_block(&self) -> io::Result<u32> {
        match self.kind {
            Kind::Block => block_device::logical_block(self.as_fd()),
            Kind::Regular | Kind::Other => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Returns the size of the file, or of the whole blocks of the block device, in bytes. A file
    /// system whose files others change is asked again, also if this kernel remembers a size.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn length(&self) -> io::Result<u64> {
        match self.kind {
            Kind::Block => block_device::reachable(self.as_fd()),
            Kind::Regular | Kind::Other => {
                let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
                match rustix::fs::statx(&self.descriptor, c"", flags, StatxFlags::SIZE) {
                    Ok(status) => Ok(status.stx_size),
                    // Forbidden in some sandboxes.
                    Err(Errno::PERM | Errno::NOSYS) => {
                        let length = rustix::fs::fstat(&self.descriptor)?.st_size;
                        Ok(u64::try_from(length).expect("the kernel keeps lengths positive"))
                    }
                    Err(error) => Err(error.into()),
                }
            }
        }
    }

    /// Notes that a read failed with `EIO`. Returns true if it should be sent again, with fewer
    /// bytes: once per file.
    ///
    /// XFS allocates space of buffered writes late, and more than was written. If free space is in
    /// pieces, a part beyond the end of the file stays unallocated after the data is written. A
    /// direct read that reaches it fails with `EIO` ("Direct I/O collision with buffered writes" in
    /// the kernel's log), although the file is whole.
    pub(crate) fn ends_reads(&self) -> bool {
        self.kind == Kind::Regular
            && self.direct == Direct::Yes
            && !self.ends_reads.swap(true, Ordering::Relaxed)
    }

    /// Returns how many bytes of a read are asked of the kernel: all, or after
    /// [`OpenFile::ends_reads`] those up to the end of the file.
    pub(crate) fn readable(&self, offset: u64, length: u64) -> u64 {
        if !self.ends_reads.load(Ordering::Relaxed) {
            return length;
        }
        let end = self.length().unwrap_or(u64::MAX - (1 << 20));
        let end = end.next_multiple_of(u64::from(self.alignment.offset));
        length.min(end.saturating_sub(offset))
    }

    /// Returns the allocated bytes of the file, including reserved space.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn allocated_bytes(&self) -> io::Result<u64> {
        let blocks = rustix::fs::fstat(&self.descriptor)?.st_blocks;
        Ok(u64::try_from(blocks).expect("the kernel keeps counts positive") * 512)
    }

    /// Returns the ranges of bytes that have data, in order, or `None` if there are more than
    /// `most`. The rest reads as zeroes; it may have space.
    ///
    /// # Errors
    /// The error of the kernel. A file system that does not know reports one range.
    pub fn data(&self, most: usize) -> io::Result<Option<Vec<Range<u64>>>> {
        let (mut data, mut at) = (Vec::new(), 0);
        loop {
            let start = match rustix::fs::seek(&self.descriptor, SeekFrom::Data(at)) {
                Ok(start) => start,
                Err(Errno::NXIO) => return Ok(Some(data)),
                Err(errno) => return Err(errno.into()),
            };
            if data.len() == most {
                return Ok(None);
            }
            at = rustix::fs::seek(&self.descriptor, SeekFrom::Hole(start))?;
            data.push(start..at);
        }
    }

    /// Returns a size that a file can have on every file system, within the limit of this process.
    #[must_use]
    pub fn sure_end(&self) -> u64 {
        longest::limit().unwrap_or(u64::MAX).min(1 << 31)
    }

    /// Returns whether a file of this file system and this process can have `end` bytes.
    #[must_use]
    pub fn can_hold(&self, end: u64) -> bool {
        longest::can_hold(&self.descriptor, end)
    }

    /// Returns the bytes that this user can still allocate on the file system; unlimited for a
    /// block device.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn free_bytes(&self) -> io::Result<u64> {
        if self.kind == Kind::Block {
            return Ok(u64::MAX);
        }
        let status = rustix::fs::fstatvfs(&self.descriptor)?;
        // XFS subtracts the blocks that it holds back, and the result can go below zero for a moment
        // while requests in flight reserve blocks: then it is a number of almost 2^64.
        let is_negative = status.f_bavail > status.f_blocks;
        let blocks = if is_negative { 0 } else { status.f_bavail };
        Ok(blocks.saturating_mul(status.f_frsize))
    }

    /// Returns the space that a write of a page needs that has data already.
    #[must_use]
    pub fn rewrite(&self) -> Rewrite {
        Rewrite::of(self.as_fd())
    }

    /// Switches the descriptor between direct and buffered I/O for the next requests. Does nothing
    /// if direct I/O is not supported.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn set_direct(&self, mode: Mode) -> io::Result<()> {
        let _changing = self.changing_flags();
        match (&self.direct, mode) {
            (Direct::Refused(_), _) => Ok(()),
            (Direct::Yes, Mode::Buffered) => direct::clear_flags(self.as_fd(), OFlags::DIRECT),
            (Direct::Yes, Mode::Direct) => Ok(direct::set_flags(self.as_fd(), OFlags::DIRECT)?),
        }
    }

    /// Writes all of `data` at `offset` on the calling thread, in the current mode of the
    /// descriptor. Blocks. Interrupted and short writes are continued.
    ///
    /// # Errors
    /// The error of the kernel; a prefix may have been written. `InvalidInput` if `data` or
    /// `offset` is not aligned for direct I/O.
    pub fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        write_all(data, offset, |data, offset| rustix::io::pwrite(&self.descriptor, data, offset))
    }

    /// Sets the size of the file (`ftruncate`). Space beyond it is freed.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn truncate(&self, length: u64) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::ftruncate(&self.descriptor, length))?)
    }

    /// Allocates space for a range without changing the size, so that a later write cannot run out
    /// of space.
    ///
    /// # Errors
    /// The error of the kernel: `StorageFull` if there is no space.
    pub fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        self.fallocate(FallocateFlags::KEEP_SIZE, offset, length)
    }

    /// Allocates space for a range as [`OpenFile::allocate`], and gives the file blocks of its own
    /// where it shares some with another file (XFS).
    ///
    /// # Errors
    /// As [`OpenFile::allocate`].
    pub fn allocate_alone(&self, offset: u64, length: u64) -> io::Result<()> {
        let alone = FallocateFlags::KEEP_SIZE | FallocateFlags::UNSHARE_RANGE;
        match self.fallocate(alone, offset, length) {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                self.allocate(offset, length)
            }
            allocated => allocated,
        }
    }

    /// Allocates space for a range, and extends the file to its end if it is shorter. It is never
    /// made shorter, also if other programs extend it at the same time.
    ///
    /// # Errors
    /// As [`OpenFile::allocate`].
    pub fn extend(&self, offset: u64, length: u64) -> io::Result<()> {
        self.fallocate(FallocateFlags::empty(), offset, length)
    }

    /// Frees the space of a range, which then reads as zeroes, without changing the size. ext4
    /// keeps space beyond the end; only [`OpenFile::truncate`] frees that.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        self.fallocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, length)
    }

    /// Discards a range of a block device, or frees the space of a range of a file.
    ///
    /// # Errors
    /// The error of the kernel: `Unsupported` if the device cannot discard.
    pub fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        match self.kind {
            Kind::Block => block_device::discard(self.as_fd(), offset, length),
            Kind::Regular | Kind::Other => self.punch(offset, length),
        }
    }

    fn fallocate(&self, flags: FallocateFlags, offset: u64, length: u64) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::fallocate(&self.descriptor, flags, offset, length))?)
    }

    /// Returns the extents of the file, as [`Extents::of`].
    ///
    /// # Errors
    /// As [`Extents::of`].
    pub fn extents(&self) -> io::Result<Extents> {
        Extents::of(self.as_fd())
    }

    /// Returns the offset on the device of the byte at `offset`, or `None` if it has no block yet.
    /// Makes one system call, and does not write out the page cache.
    ///
    /// # Errors
    /// As [`OpenFile::extents`].
    pub fn physical_at(&self, offset: u64) -> io::Result<Option<u64>> {
        extents::physical(self.as_fd(), offset)
    }

    /// Returns the number and total length of the contiguous pieces of a range on the device, as
    /// far as one system call reports them. Adjacent written and unwritten extents count as one
    /// piece.
    ///
    /// # Errors
    /// As [`OpenFile::extents`].
    pub fn pieces_of(&self, bytes: Range<u64>) -> io::Result<Extents> {
        extents::places(self.as_fd(), bytes)
    }

    /// Returns the allocation groups of the file system, or `None` if it reports none. Makes one
    /// system call.
    #[must_use]
    pub fn geometry(&self) -> Option<Geometry> {
        Geometry::of(self.as_fd())
    }

    /// Returns whether space is allocated from `offset` on.
    ///
    /// # Errors
    /// As [`OpenFile::extents`].
    pub fn has_space_from(&self, offset: u64) -> io::Result<bool> {
        Ok(extents::count(self.as_fd(), offset)?.count > 0)
    }

    /// Takes a lease of the file: a write lease, or a read lease if it is open for reading only.
    /// When another program opens the file, in the second case for writing, the callback of the
    /// watch gets `key`.
    ///
    /// # Errors
    /// The error of the kernel: `WouldBlock` if the file is open elsewhere, in the second case for
    /// writing; `PermissionDenied` if it belongs to another user; others if the file system has no
    /// leases.
    pub fn try_lease(&self, watch: &LeaseWatch, key: u64) -> io::Result<()> {
        let kind = match self.access() {
            Access::Read => lease::Kind::Read,
            Access::ReadWrite => lease::Kind::Write,
        };
        let mut lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        if lease.as_ref().is_some_and(|lease| !lease.is_whole()) {
            // Another program waits for it, and it is about to be released.
            return Err(Errno::AGAIN.into());
        }
        if lease.is_none() {
            self.end_appends();
            *lease = Some(watch.take(self.as_fd(), key, kind)?);
        }
        Ok(())
    }

    /// Returns the programs that a lease of this file holds off. Makes one system call, and a few
    /// more on an overlay.
    #[must_use]
    pub fn lease_coverage(&self) -> Coverage {
        Coverage::of(self.as_fd())
    }

    /// Watches the lease that a file from another process already has. If [`OpenFile::has_lease`]
    /// is false afterwards, the lease is gone or another program waits for it; call
    /// [`OpenFile::release_lease`] once everything is written.
    ///
    /// # Errors
    /// The error of the kernel; the lease then stays with the open file and is not watched.
    pub fn adopt_lease(&self, watch: &LeaseWatch, key: u64) -> io::Result<()> {
        let mut lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        if lease.is_none() {
            *lease = Some(watch.adopt(self.as_fd(), key)?);
        }
        Ok(())
    }

    /// Returns whether the open file has a lease that no program waits for, in any process.
    #[must_use]
    pub fn is_leased(&self) -> bool {
        lease::is_whole(self.as_fd())
    }

    /// Gives up the lease of the open file, in all processes. Does nothing without a
    /// lease.
    pub fn give_up_lease(&self) {
        lease::give_up(self.as_fd());
    }

    /// Returns whether this process holds the lease and no program waits for it.
    #[must_use]
    pub fn has_lease(&self) -> bool {
        let lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        lease.as_ref().is_some_and(Leased::is_whole)
    }

    /// Returns whether the lease is held, even if another program waits for it. False if the kernel
    /// has taken it, or does not list it. Reads a file of `/proc`.
    #[must_use]
    pub fn has_lease_still(&self) -> bool {
        let lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        lease.as_ref().is_some_and(Leased::is_there)
    }

    /// Gives up the lease, which lets waiting programs continue. Does nothing without a lease.
    pub fn release_lease(&self) {
        let lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(lease);
    }

    /// Tries to lock the whole file against other engines, in this and other processes; for writing
    /// if the descriptor is writable. Does not wait.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn try_ofd_lock(&self) -> io::Result<Lock> {
        let lock = lock::try_take(self.as_fd(), self.access())?;
        self.locked.fetch_or(lock == Lock::Taken, Ordering::Relaxed);
        Ok(lock)
    }

    /// Releases the lock, unless it was [left](OpenFile::leave).
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn ofd_unlock(&self) -> io::Result<()> {
        if self.left.load(Ordering::Acquire) {
            return Ok(());
        }
        lock::release(self.as_fd())?;
        self.locked.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Leaves lease and lock to the other processes that share the open file. This process does not
    /// release them after that, not even on drop.
    pub fn leave(&self) {
        self.left.store(true, Ordering::Release);
        let lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(lease) = lease {
            lease.leave();
        }
    }

    /// Closes the descriptor, even if this file is still shared: the caller waits if the close
    /// blocks, and a later drop does not. After it, other programs can open a block device
    /// exclusively and mount it (on old kernels, once a ring that it was registered with has
    /// noticed). No request may name the file afterwards.
    ///
    /// # Errors
    /// The error of the kernel; the descriptor is then closed when this is dropped.
    pub fn close(&self) -> io::Result<()> {
        /// Descriptor in place of those of closed files, until their number is free again.
        static NOTHING: OnceLock<OwnedFd> = OnceLock::new();
        self.end_appends();
        let nothing = match NOTHING.get() {
            Some(nothing) => nothing,
            None => {
                let made = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?;
                NOTHING.get_or_init(|| made)
            }
        };
        self.replace_descriptor(nothing.as_fd())
    }

    pub(crate) fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Returns the identity of the directory that
    /// [`FlushDirectory`](forebay_block::Operation::FlushDirectory) flushes for this file; `None`
    /// if it is not one directory.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn kept_directory(&self) -> io::Result<Option<Identity>> {
        match &self.directory {
            Directory::Kept(directory) => Ok(Some(Identity::of(&rustix::fs::fstat(directory)?))),
            Directory::NotNeeded | Directory::Unreadable => Ok(None),
        }
    }

    /// Makes the entry of the file durable: flushes that directory, or the whole file system if the
    /// directory is not known. Blocks.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn sync_directory(&self) -> io::Result<()> {
        match &self.directory {
            Directory::Kept(directory) => retry_on_intr(|| rustix::fs::fsync(directory))?,
            Directory::Unreadable => retry_on_intr(|| rustix::fs::syncfs(self))?,
            Directory::NotNeeded => {}
        }
        Ok(())
    }
}

/// Makes writes until all of `data` is written at `offset`. Interrupted and short ones are
/// continued.
pub(crate) fn write_all(
    mut data: &[u8],
    mut offset: u64,
    write: impl Fn(&[u8], u64) -> rustix::io::Result<usize>,
) -> io::Result<()> {
    while !data.is_empty() {
        let written = retry_on_intr(|| write(data, offset))?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        data = &data[written..];
        offset += written as u64;
    }
    Ok(())
}

/// Gives up lease and lock before the descriptor closes: a child that was forked and lives on keeps
/// the descriptor, and with it both.
impl Drop for OpenFile {
    fn drop(&mut self) {
        let lease = self.lease.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if !self.home.is_here() {
            // They are the parent's.
            mem::forget(lease);
            return;
        }
        drop(lease);
        if *self.locked.get_mut() && !*self.left.get_mut() {
            lock::release(self.as_fd())
                .unwrap_or_else(|error| tracing::warn!(%error, "could not unlock the file"));
        }
    }
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Switches the descriptor to direct, if that is granted. Returns the alignment needed then.
fn direct_of(
    descriptor: BorrowedFd<'_>,
    kind: Kind,
    reported: Option<Alignment>,
    flags: OFlags,
) -> io::Result<(Direct, Alignment)> {
    let alignment = direct::alignment(descriptor, kind, reported);
    let direct = direct::go_direct(descriptor, kind, alignment, flags)?;
    let alignment = alignment.filter(|_| direct == Direct::Yes).unwrap_or(Alignment::NONE);
    Ok((direct, alignment))
}

/// Properties of an open file that one call returns.
struct Looked {
    kind: Kind,
    identity: Identity,
    /// Alignment of direct I/O, zeroes included; from Linux 6.1 on.
    reported: Option<Alignment>,
}

fn look(descriptor: BorrowedFd<'_>) -> io::Result<Looked> {
    let wanted = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::DIOALIGN;
    let Ok(status) = rustix::fs::statx(descriptor, "", AtFlags::EMPTY_PATH, wanted) else {
        // Forbidden in some sandboxes.
        let status = rustix::fs::fstat(descriptor)?;
        let kind = kind_of(FileType::from_raw_mode(status.st_mode));
        return Ok(Looked { kind, identity: Identity::of(&status), reported: None });
    };
    let kind = kind_of(FileType::from_raw_mode(u32::from(status.stx_mode)));
    let identity = match kind {
        Kind::Block => Identity {
            device: rustix::fs::makedev(status.stx_rdev_major, status.stx_rdev_minor),
            inode: Identity::DEVICE,
        },
        Kind::Regular | Kind::Other => Identity {
            device: rustix::fs::makedev(status.stx_dev_major, status.stx_dev_minor),
            inode: status.stx_ino,
        },
    };
    let reported = status.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    let reported = reported.then_some(Alignment {
        memory: status.stx_dio_mem_align,
        offset: status.stx_dio_offset_align,
    });
    Ok(Looked { kind, identity, reported })
}

fn kind_of(file_type: FileType) -> Kind {
    match file_type {
        FileType::RegularFile => Kind::Regular,
        FileType::BlockDevice => Kind::Block,
        _ => Kind::Other,
    }
}

// So that what the ring shares by `Arc` stays shareable.
const _: fn() = || {
    fn shared<T: Send + Sync>() {}
    shared::<Arc<OpenFile>>();
};
