//! Size, space and extents of a file. Nothing here is remembered: each question is a system call.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::Ordering;

use rustix::fs::{AtFlags, FallocateFlags, SeekFrom, StatxFlags};
use rustix::io::{Errno, retry_on_intr};

use super::{Kind, OpenFile};
use crate::block_device;
use crate::direct::Direct;
use crate::extents::{self, Extents};
use crate::geometry::Geometry;
use crate::longest;
use crate::rewrite::Rewrite;

/// Returns the bytes that this user can still allocate on the file system of a file or a directory.
///
/// # Errors
/// The error of the kernel.
pub fn free_bytes(descriptor: BorrowedFd<'_>) -> io::Result<u64> {
    let status = rustix::fs::fstatvfs(descriptor)?;
    // XFS subtracts the blocks that it holds back, and the result can go below zero for a moment
    // while requests in flight reserve blocks: then it is a number of almost 2^64.
    let is_negative = status.f_bavail > status.f_blocks;
    let blocks = if is_negative { 0 } else { status.f_bavail };
    Ok(blocks.saturating_mul(status.f_frsize))
}

impl OpenFile {
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
        free_bytes(self.as_fd())
    }

    /// Returns the space that a write of a page needs that has data already.
    #[must_use]
    pub fn rewrite(&self) -> Rewrite {
        Rewrite::of(self.as_fd())
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

    /// Returns the ranges of the file with blocks that no other file shares, written or only
    /// reserved, as far as one system call reports them.
    ///
    /// # Errors
    /// As [`OpenFile::extents`].
    pub fn own_space(&self) -> io::Result<Vec<Range<u64>>> {
        extents::own(self.as_fd())
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
}
