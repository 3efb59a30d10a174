//! A new file that only its creator uses, written past every cache of the engine.
//!
//! Nobody reads it before it is complete, so keeping its pages is worth nothing. Each write goes
//! through the page cache of the kernel with `RWF_DONTCACHE` (Linux 6.14): the kernel starts to
//! write the pages out at once, and drops them once they are written. Before 6.14, and on file
//! systems that do not have it, the same is done by `sync_file_range` and `posix_fadvise`. Neither
//! makes anything durable; only [`PrivateFile::sync`] does.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::Mode;
use rustix::io::{Errno, ReadWriteFlags, retry_on_intr};

use crate::file;
use crate::lock::{self, Lock};
use crate::open::Access;
use crate::page_cache;

const DONT_CACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(libc::RWF_DONTCACHE as u32);

/// A new file that only its creator uses. Dropping it closes the descriptor.
#[derive(Debug)]
pub struct PrivateFile {
    descriptor: OwnedFd,
    /// Whether the kernel drops written pages by itself, as far as is known.
    drops_pages: AtomicBool,
}

impl PrivateFile {
    pub(crate) fn new(descriptor: OwnedFd) -> Self {
        Self { descriptor, drops_pages: AtomicBool::new(true) }
    }

    /// Writes all of `data` at `offset`, and starts to write it out. Blocks. Short and interrupted
    /// writes are continued.
    ///
    /// # Errors
    /// The error of the kernel; a prefix may have been written.
    pub fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        file::write_all(data, offset, |data, offset| self.write_once(data, offset))?;
        if !self.drops_pages.load(Ordering::Relaxed) {
            let bytes = offset..offset + data.len() as u64;
            page_cache::start_writing(&self.descriptor, bytes)?;
        }
        Ok(())
    }

    fn write_once(&self, data: &[u8], offset: u64) -> rustix::io::Result<usize> {
        if self.drops_pages.load(Ordering::Relaxed) {
            let data = [io::IoSlice::new(data)];
            match rustix::io::pwritev2(&self.descriptor, &data, offset, DONT_CACHE) {
                Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => {
                    self.drops_pages.store(false, Ordering::Relaxed);
                }
                result => return result,
            }
        }
        rustix::io::pwrite(&self.descriptor, data, offset)
    }

    /// Waits until a range is written to the device, and drops its pages from the page cache. It is
    /// not durable after that.
    ///
    /// # Errors
    /// The error of the device. The kernel reports it once: a later [`PrivateFile::sync`] may
    /// succeed although the range is lost.
    pub fn write_back(&self, bytes: Range<u64>) -> io::Result<()> {
        page_cache::write_out(&self.descriptor, bytes)?;
        self.drop_pages();
        Ok(())
    }

    /// Makes the file durable, with its permission bits (`fsync`). Blocks.
    ///
    /// # Errors
    /// The error of the device.
    pub fn sync(&self) -> io::Result<()> {
        retry_on_intr(|| rustix::fs::fsync(&self.descriptor))?;
        self.drop_pages();
        Ok(())
    }

    /// Sets the permission bits. The umask does not apply.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        Ok(rustix::fs::fchmod(&self.descriptor, Mode::from_raw_mode(mode))?)
    }

    /// Tries to lock the file for its open file description. Returns false if another one has it
    /// locked. Does not wait.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn try_lock(&self) -> io::Result<bool> {
        Ok(lock::try_take(self.descriptor.as_fd(), Access::ReadWrite)? == Lock::Taken)
    }

    /// Returns the number of names of the file: 0 once the last one was removed.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn links(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.descriptor)?.st_nlink)
    }

    /// Drops pages that the kernel does not drop by itself.
    fn drop_pages(&self) {
        if !self.drops_pages.load(Ordering::Relaxed) {
            page_cache::drop_pages(&self.descriptor);
        }
    }
}
