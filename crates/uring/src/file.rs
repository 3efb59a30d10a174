//! An open file that the ring can use: one descriptor, with direct I/O if the file system supports
//! it.
//!
//! Why one descriptor and not a direct and a buffered one: a write lease is refused while a second
//! open exists, so the block that holds the end of file is written by switching `O_DIRECT` off and
//! on again ([`OpenFile::set_direct`]). Nothing here caches what the kernel knows: lengths, space
//! and marks are asked for by a system call each time, on the caller's thread.

mod leased;
mod space;

pub use self::space::free_bytes;

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::EventfdFlags;
use rustix::fs::{AtFlags, FileType, OFlags, StatxFlags};
use rustix::io::{DupFlags, Errno, FdFlags, retry_on_intr};

use crate::block_device;
use crate::direct::{self, Alignment, Direct, Mode};
use crate::fork::Home;
use crate::lease::Leased;
use crate::lock;
use crate::open::{
    self, Access, Create, Descriptor, Directory, How, LEASE_PATIENCE, Opened, Truncate,
};

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
