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
use crate::probe;

const DONT_CACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(libc::RWF_DONTCACHE as u32);

/// File systems whose `syncfs` ends with a flush of the device. That of FUSE, for example, does not
/// reach the server.
const FLUSHED_TOGETHER: [&str; 3] = ["ext4", "xfs", "btrfs"];

/// Syncs of fewer files side by side flush the device no more often.
const FILES_TOGETHER: usize = 16;

/// Bytes of other programs that a sync of the whole file system may write.
const OTHERS_BYTES: u64 = 8 << 20;

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

    /// Returns whether [`PrivateFile::sync_all`] makes its promise on this file system and is
    /// quicker than syncs of this many files: it has little else to write now, at most `bytes` that
    /// are the caller's, and 8 MiB more.
    #[must_use]
    pub fn may_sync_all(&self, files: usize, bytes: u64) -> bool {
        if files < FILES_TOGETHER {
            return false;
        }
        let name = probe::known_file_system_of(&self.descriptor);
        let has_little = |unwritten| unwritten <= bytes + OTHERS_BYTES;
        name.is_some_and(|name| FLUSHED_TOGETHER.contains(&name))
            && unwritten_bytes().is_some_and(has_little)
    }

    /// Makes all files of the file system durable (`syncfs`). Blocks.
    ///
    /// # Errors
    /// The error of the kernel, for any file that was opened after this one. It may be that of
    /// another program.
    pub fn sync_all(&self) -> io::Result<()> {
        retry_on_intr(|| rustix::fs::syncfs(&self.descriptor))?;
        // Before 5.17 the kernel drops an error of the journal here, and ext4 without a journal
        // flushes the device before it writes inodes. A sync of one file has neither fault.
        self.sync()
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

/// Returns the bytes that wait in the page cache of the machine to be written or are being written.
fn unwritten_bytes() -> Option<u64> {
    unwritten_in(&std::fs::read_to_string("/proc/vmstat").ok()?)
}

fn unwritten_in(vmstat: &str) -> Option<u64> {
    let pages = |name| {
        let line = vmstat.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse::<u64>().ok()
    };
    Some((pages("nr_dirty ")? + pages("nr_writeback ")?) * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unwritten_bytes_of_a_machine_are_found_in_its_counters() {
        let page = rustix::param::page_size() as u64;
        let text = "nr_dirtied 9\nnr_dirty 7\nnr_writeback 5\nnr_writeback_temp 3\n";
        assert_eq!(unwritten_in(text), Some(12 * page));
        assert_eq!(unwritten_in("nr_dirty 7\n"), None);
        assert_eq!(unwritten_in("nr_dirty x\nnr_writeback 5\n"), None);
        assert!(unwritten_bytes().is_some());
    }

    #[test]
    fn files_are_durable_together_where_that_is_known() {
        let directory = tempfile::tempdir_in(".").unwrap();
        let file = std::fs::File::create_new(directory.path().join("file")).unwrap();
        let file = PrivateFile::new(file.into());
        file.write_all_at(b"data", 0).unwrap();
        // Bytes of other programs do not count here.
        let may = file.may_sync_all(FILES_TOGETHER, u64::MAX / 2);
        let name = probe::file_system(directory.path()).unwrap();
        assert_eq!(may, FLUSHED_TOGETHER.contains(&name.as_str()), "{name}");
        file.sync_all().unwrap();
        assert!(!file.may_sync_all(FILES_TOGETHER - 1, u64::MAX / 2));
    }
}
