//! An open file the ring can use: one descriptor, direct where the file system grants it.
//!
//! Why one descriptor and not a direct and a buffered one: a write lease is refused while a second
//! open exists, so the block that holds the end of file is written by switching `O_DIRECT` off and
//! on again ([`File::set_direct`]). Nothing here caches what the kernel knows: lengths, space and
//! marks are asked for by a system call each time, on the caller's thread.

use std::io;
use std::mem;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::EventfdFlags;
use rustix::fs::{FallocateFlags, FileType, OFlags, SeekFrom, XattrFlags};
use rustix::io::{DupFlags, Errno, retry_on_intr};

use crate::block_device;
use crate::direct::{self, Alignment, Direct, Mode};
use crate::extents::{self, Extents};
use crate::fork::Home;
use crate::geometry::Geometry;
use crate::hint;
use crate::lease::{self, LeaseWatch, Leased};
use crate::lock::{self, Lock};
use crate::open::{self, Access, Directory, How, LEASE_PATIENCE, Opened, Truncate};

/// The extended attribute that says how far space was reserved, so that the next open after a crash
/// gives it back.
const RESERVATION_MARK: &str = "user.forebay.reserved";

/// What kind of file it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// A regular file.
    Regular,
    /// A block device.
    Block,
    /// A directory, pipe, socket or character device: nothing this library serves.
    Other,
}

/// Which file it is, whatever its names; a block device is itself, whichever node names it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Identity {
    /// The file system's device number; of a block device, its own.
    pub device: u64,
    /// The inode's number on it; of a block device, one that no file has.
    pub inode: u64,
}

impl Identity {
    /// No file system numbers a file so.
    const DEVICE: u64 = u64::MAX;

    fn of(status: &rustix::fs::Stat) -> Self {
        match kind_of(FileType::from_raw_mode(status.st_mode)) {
            Kind::Block => Self { device: status.st_rdev, inode: Self::DEVICE },
            Kind::Regular | Kind::Other => Self { device: status.st_dev, inode: status.st_ino },
        }
    }
}

/// An open file.
#[derive(Debug)]
pub struct File {
    lease: Mutex<Option<Leased>>,
    locked: AtomicBool,
    /// Lease and lock stay with the open file.
    left: AtomicBool,
    home: Home,
    descriptor: OwnedFd,
    access: Access,
    kind: Kind,
    identity: Identity,
    direct: Direct,
    alignment: Alignment,
    directory: Directory,
}

impl File {
    /// Opens a file, waiting [`LEASE_PATIENCE`] at most for somebody's lease on it. A block device
    /// is opened exclusively, for reading too.
    ///
    /// # Errors
    /// What the kernel said; `WouldBlock` where the lease was not given up in time; `ResourceBusy`
    /// for a device that is mounted or held exclusively; `ReadOnlyFilesystem` where one that
    /// refuses writes is opened for them.
    pub fn open(path: &Path, how: &How) -> io::Result<Opened> {
        Self::open_within(path, how, LEASE_PATIENCE)
    }

    /// As [`File::open`], with a patience of the caller's.
    ///
    /// # Errors
    /// As [`File::open`].
    pub fn open_within(path: &Path, how: &How, patience: Duration) -> io::Result<Opened> {
        let (descriptor, created) = open::descriptor(path, how, Instant::now() + patience)?;
        let status = rustix::fs::fstat(&descriptor)?;
        let kind = kind_of(FileType::from_raw_mode(status.st_mode));
        // Without blocking was for the lease alone: the ring takes the flag as "fail rather than
        // wait".
        direct::clear_flags(descriptor.as_fd(), OFlags::NONBLOCK)?;
        if how.truncate == Truncate::Cut && kind == Kind::Regular && !created {
            retry_on_intr(|| rustix::fs::ftruncate(&descriptor, 0))?;
        }
        if kind == Kind::Block
            && how.access == Access::ReadWrite
            && block_device::is_read_only(descriptor.as_fd())?
        {
            return Err(Errno::ROFS.into());
        }
        let (direct, alignment) = direct_of(descriptor.as_fd(), kind)?;
        let directory = if created { open::keep_directory(path) } else { Directory::NotNeeded };
        let file = Self {
            lease: Mutex::new(None),
            locked: AtomicBool::new(false),
            left: AtomicBool::new(false),
            home: Home::here(),
            descriptor,
            access: how.access,
            kind,
            identity: Identity::of(&status),
            direct,
            alignment,
            directory,
        };
        Ok(Opened { file, created })
    }

    /// A file that was opened elsewhere: direct or not, leased and locked as it is, for that
    /// belongs to the open file and is shared with whoever else has it. Its lease is held by
    /// [`File::adopt_lease`], or by nobody here.
    ///
    /// # Errors
    /// What the kernel said; `InvalidInput` for one that is open neither for reading nor for
    /// reading and writing.
    pub fn of_descriptor(descriptor: OwnedFd) -> io::Result<Self> {
        let status = rustix::fs::fstat(&descriptor)?;
        let kind = kind_of(FileType::from_raw_mode(status.st_mode));
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
        let alignment = direct::alignment(descriptor.as_fd(), kind);
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
            access,
            kind,
            identity: Identity::of(&status),
            direct,
            alignment,
            directory: Directory::NotNeeded,
        })
    }

    /// Asks for direct I/O, as opening does: for a file that came from elsewhere, maybe in the
    /// midst of a buffered write.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn go_direct(&mut self) -> io::Result<()> {
        (self.direct, self.alignment) = direct_of(self.as_fd(), self.kind)?;
        Ok(())
    }

    /// Goes through the kernel's page cache from now on, whoever else has the open file included.
    ///
    /// # Errors
    /// What the kernel said.
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
            if is_only_name { open::keep_directory(path) } else { Directory::Unreadable };
    }

    /// Which file it is.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// Which file a path names, found without opening it: an open would break a lease, our own
    /// included.
    ///
    /// # Errors
    /// What the kernel said, `NotFound` among it.
    pub fn identity_of(path: &Path) -> io::Result<Identity> {
        let status = rustix::fs::stat(path)?;
        Ok(Identity::of(&status))
    }

    /// What kind of file it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What the descriptor may do.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// Whether requests go past the kernel's page cache.
    #[must_use]
    pub fn direct(&self) -> &Direct {
        &self.direct
    }

    /// What requests on the file must be aligned to; nothing where they go through the kernel's
    /// page cache.
    #[must_use]
    pub fn alignment(&self) -> Alignment {
        self.alignment
    }

    /// Bytes of the smallest block of the device, where the file is one.
    ///
    /// # Errors
    /// What the kernel said; `Unsupported` where it is no device.
    pub fn logical_block(&self) -> io::Result<u32> {
        match self.kind {
            Kind::Block => block_device::logical_block(self.as_fd()),
            Kind::Regular | Kind::Other => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Bytes in the file, or in the whole blocks of the device.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn length(&self) -> io::Result<u64> {
        match self.kind {
            Kind::Block => block_device::reachable(self.as_fd()),
            Kind::Regular | Kind::Other => {
                let length = rustix::fs::fstat(&self.descriptor)?.st_size;
                Ok(u64::try_from(length).expect("the kernel keeps lengths positive"))
            }
        }
    }

    /// Bytes of space the file takes, those reserved included.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn allocated_bytes(&self) -> io::Result<u64> {
        let blocks = rustix::fs::fstat(&self.descriptor)?.st_blocks;
        Ok(u64::try_from(blocks).expect("the kernel keeps counts positive") * 512)
    }

    /// Whether a file of this file system can have `end` bytes. Asks by a seek, which nothing here
    /// depends on.
    #[must_use]
    pub fn can_hold(&self, end: u64) -> bool {
        rustix::fs::seek(&self.descriptor, SeekFrom::Start(end)).is_ok()
    }

    /// Bytes this user may still allocate on the file's file system; without end on a device, where
    /// nothing has to be.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn free_bytes(&self) -> io::Result<u64> {
        if self.kind == Kind::Block {
            return Ok(u64::MAX);
        }
        let status = rustix::fs::fstatvfs(&self.descriptor)?;
        Ok(status.f_bavail.saturating_mul(status.f_frsize))
    }

    /// Switches the descriptor for the requests that follow. Where direct was refused nothing
    /// happens.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn set_direct(&self, mode: Mode) -> io::Result<()> {
        match (&self.direct, mode) {
            (Direct::Refused(_), _) => Ok(()),
            (Direct::Yes, Mode::Buffered) => direct::clear_flags(self.as_fd(), OFlags::DIRECT),
            (Direct::Yes, Mode::Direct) => Ok(direct::set_flags(self.as_fd(), OFlags::DIRECT)?),
        }
    }

    /// Writes all of `data` at `offset`, on the calling thread, in the mode the descriptor is in.
    /// Blocks until the device has it; interrupted and short writes are gone on with.
    ///
    /// # Errors
    /// What the kernel said; a prefix may have been written. `InvalidInput` where the mode asks for
    /// an alignment that `data` or `offset` does not have.
    pub fn write_all_at(&self, mut data: &[u8], mut offset: u64) -> io::Result<()> {
        while !data.is_empty() {
            let written = retry_on_intr(|| rustix::io::pwrite(&self.descriptor, data, offset))?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            data = &data[written..];
            offset += written as u64;
        }
        Ok(())
    }

    /// Sets the length; space beyond it is given back.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn truncate(&self, length: u64) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::ftruncate(&self.descriptor, length))?)
    }

    /// Allocates space, now; the length stays. Allocated, a later write there cannot run out of
    /// space.
    ///
    /// # Errors
    /// What the kernel said: `StorageFull` where there is no space.
    pub fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        self.fallocate(FallocateFlags::KEEP_SIZE, offset, length)
    }

    /// Gives space back; the length stays, the range reads as zeroes. (ext4 keeps what lies beyond
    /// the end: only [`File::truncate`] gives that back.)
    ///
    /// # Errors
    /// What the kernel said.
    pub fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        self.fallocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, length)
    }

    /// Says that a range is not needed: of a device by telling it, of a file by giving the space
    /// back.
    ///
    /// # Errors
    /// What the kernel said: `Unsupported` where the device cannot.
    pub fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        match self.kind {
            Kind::Block => block_device::discard(self.as_fd(), offset, length),
            Kind::Regular | Kind::Other => self.punch(offset, length),
        }
    }

    fn fallocate(&self, flags: FallocateFlags, offset: u64, length: u64) -> io::Result<()> {
        Ok(retry_on_intr(|| rustix::fs::fallocate(&self.descriptor, flags, offset, length))?)
    }

    /// In how many pieces the file lies. Writes out what the kernel's page cache holds of it first.
    ///
    /// # Errors
    /// What the kernel said: `Unsupported` where the file system cannot tell.
    pub fn extents(&self) -> io::Result<Extents> {
        extents::count(self.as_fd(), 0)
    }

    /// Where the byte at `offset` lies on the device of its file system; `None` for a hole, and for
    /// what has no place yet. A system call; what is not written out is not waited for.
    ///
    /// # Errors
    /// As [`File::extents`].
    pub fn physical_at(&self, offset: u64) -> io::Result<Option<u64>> {
        extents::physical(self.as_fd(), offset)
    }

    /// In how many places on the device a range lies: its pieces and how long they are together, of
    /// as much as one system call tells. What follows on there is one piece, written or not.
    ///
    /// # Errors
    /// As [`File::extents`].
    pub fn pieces_of(&self, bytes: Range<u64>) -> io::Result<Extents> {
        extents::places(self.as_fd(), bytes)
    }

    /// Whether its file system is known to overwrite in place: what is written there once costs it
    /// nothing the second time. XFS and ext4 do (but for blocks that files share); one that copies
    /// on write does not, and of others it is not known. A device has nothing to do at all. A
    /// system call.
    #[must_use]
    pub fn overwrites_in_place(&self) -> bool {
        const XFS: u64 = 0x5846_5342;
        const EXT: u64 = 0xef53;
        let kind = || rustix::fs::fstatfs(&self.descriptor).map(|status| status.f_type as u64);
        self.kind == Kind::Block || kind().is_ok_and(|kind| [XFS, EXT].contains(&kind))
    }

    /// Its extent-size hint, in bytes; `None` where it has none.
    ///
    /// # Errors
    /// What the kernel said where the file system has no such hints.
    pub fn extent_hint(&self) -> io::Result<Option<u32>> {
        hint::get(self.as_fd())
    }

    /// Has the file system allocate stretches of so many bytes for the file from now on, for good.
    ///
    /// # Errors
    /// `AlreadyExists` where a hint stands, which is left alone. What the kernel said:
    /// `InvalidInput` for a number that is no multiple of a block, or a file that has extents;
    /// `Unsupported` and others where the file system has no such hints.
    pub fn set_extent_hint(&self, bytes: u32) -> io::Result<()> {
        hint::set(self.as_fd(), bytes)
    }

    /// How its file system divides its space; `None` where it does not tell. A system call.
    #[must_use]
    pub fn geometry(&self) -> Option<Geometry> {
        Geometry::of(self.as_fd())
    }

    /// Whether space is allocated from `offset` on.
    ///
    /// # Errors
    /// As [`File::extents`].
    pub fn has_space_from(&self, offset: u64) -> io::Result<bool> {
        Ok(extents::count(self.as_fd(), offset)?.count > 0)
    }

    /// How far space was reserved by whoever had the file open last, and did not give it back.
    ///
    /// # Errors
    /// What the kernel said: `Unsupported` where the file system keeps no such attributes.
    pub fn reservation_mark(&self) -> io::Result<Option<u64>> {
        let mut text = [0; 20];
        match rustix::fs::fgetxattr(&self.descriptor, RESERVATION_MARK, &mut text[..]) {
            Ok(length) => {
                Ok(std::str::from_utf8(&text[..length]).ok().and_then(|text| text.parse().ok()))
            }
            // Longer than any number of 64 bits: not ours.
            Err(Errno::NODATA | Errno::RANGE) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Says how far space is reserved.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn set_reservation_mark(&self, end: u64) -> io::Result<()> {
        let text = end.to_string();
        Ok(rustix::fs::fsetxattr(
            &self.descriptor,
            RESERVATION_MARK,
            text.as_bytes(),
            XattrFlags::empty(),
        )?)
    }

    /// Says that nothing is reserved.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn remove_reservation_mark(&self) -> io::Result<()> {
        match rustix::fs::fremovexattr(&self.descriptor, RESERVATION_MARK) {
            Ok(()) | Err(Errno::NODATA) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Asks to be told before anybody else opens the file: the watch's callback gets `key`.
    ///
    /// # Errors
    /// What the kernel said: `WouldBlock` where somebody has the file open already,
    /// `PermissionDenied` where it belongs to another user, others where the file system has no
    /// leases.
    pub fn try_lease(&self, watch: &LeaseWatch, key: u64) -> io::Result<()> {
        let mut lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        if lease.is_none() {
            *lease = Some(watch.take(self.as_fd(), key)?);
        }
        Ok(())
    }

    /// Holds the lease that the open file has, where it came from elsewhere: the watch hears of its
    /// breaks from now on. What happened before is told by [`File::has_lease`], asked afterwards:
    /// where that is not so somebody waits, or it is gone, and [`File::release_lease`] lets him go
    /// on when all is written that is to be.
    ///
    /// # Errors
    /// What the kernel said; the lease stays with the open file then, and nobody here hears of it.
    pub fn adopt_lease(&self, watch: &LeaseWatch, key: u64) -> io::Result<()> {
        let mut lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        if lease.is_none() {
            *lease = Some(watch.adopt(self.as_fd(), key)?);
        }
        Ok(())
    }

    /// Whether the open file has a lease that nobody waits for, whoever holds it.
    #[must_use]
    pub fn is_leased(&self) -> bool {
        lease::is_whole(self.as_fd())
    }

    /// Gives up the lease that the open file has, whoever holds it: who waits for it goes on.
    /// Nothing happens where there is none.
    pub fn give_up_lease(&self) {
        lease::give_up(self.as_fd());
    }

    /// Whether the lease is held, and nobody waits for it.
    #[must_use]
    pub fn has_lease(&self) -> bool {
        let lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        lease.as_ref().is_some_and(Leased::is_whole)
    }

    /// Gives the lease up, which lets whoever waits for it go on. Nothing happens where there is
    /// none.
    pub fn release_lease(&self) {
        let lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(lease);
    }

    /// Locks the whole file against others who lock it, another engine of this process included;
    /// for writing where the descriptor may write. Does not wait.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn try_ofd_lock(&self) -> io::Result<Lock> {
        let lock = lock::try_take(self.as_fd(), self.access)?;
        self.locked.fetch_or(lock == Lock::Taken, Ordering::Relaxed);
        Ok(lock)
    }

    /// Gives the lock up; not where it was [left](File::leave).
    ///
    /// # Errors
    /// What the kernel said.
    pub fn ofd_unlock(&self) -> io::Result<()> {
        if self.left.load(Ordering::Acquire) {
            return Ok(());
        }
        lock::release(self.as_fd())?;
        self.locked.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Leaves lease and lock to whoever else has the open file: nothing here gives them up from now
    /// on, its drop included. They go when the last descriptor of it does, or when that one gives
    /// them up.
    pub fn leave(&self) {
        self.left.store(true, Ordering::Release);
        let lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(lease) = lease {
            lease.leave();
        }
    }

    /// Lets go of a block device, whoever still shares this: others may open it exclusively, and
    /// mount it, when this returns (under old kernels, when a ring it was registered with has
    /// noticed). From then on no request may name it. Nothing happens to a file that is no device.
    ///
    /// # Errors
    /// What the kernel said: then the device is let go of when this is dropped.
    pub fn let_go_of_device(&self) -> io::Result<()> {
        if self.kind != Kind::Block {
            return Ok(());
        }
        let nothing = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?;
        // SAFETY: the number is that of a descriptor which stays open during the call and after it:
        // what it names is exchanged in one step. It is never closed twice, for this second owner
        // is not dropped.
        let mut number =
            mem::ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(self.descriptor.as_raw_fd()) });
        Ok(rustix::io::dup3(&nothing, &mut number, DupFlags::CLOEXEC)?)
    }

    pub(crate) fn directory(&self) -> &Directory {
        &self.directory
    }
}

/// Gives up lease and lock before the descriptor closes: a child that was forked and lives on keeps
/// the descriptor, and with it both.
impl Drop for File {
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

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Switches the descriptor to direct, where that is granted; what is to be aligned then.
fn direct_of(descriptor: BorrowedFd<'_>, kind: Kind) -> io::Result<(Direct, Alignment)> {
    let alignment = direct::alignment(descriptor, kind);
    let direct = direct::go_direct(descriptor, kind, alignment)?;
    let alignment = alignment.filter(|_| direct == Direct::Yes).unwrap_or(Alignment::NONE);
    Ok((direct, alignment))
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
    shared::<Arc<File>>();
};
