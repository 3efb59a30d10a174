//! Files that only their creator uses.

use std::io;
use std::ops::Range;

use forebay_block::Operation;
use forebay_uring::Lock;

use super::file::OpenFile;
use crate::marks;
use crate::random::PerMille;
use crate::world::machine::{Work, call, call_bio};

/// A new file that only its creator uses: written through the page cache of the kernel, past the
/// engine's cache.
#[derive(Debug)]
pub struct PrivateFile {
    file: OpenFile,
    /// Failures of the machine when it was opened.
    failures: u64,
}

impl PrivateFile {
    pub(super) fn of(descriptor: u64) -> io::Result<Self> {
        let failures = call(|machine| Ok(machine.failures()))?;
        OpenFile::buffered(descriptor).map(|file| Self { file, failures })
    }

    /// Writes all of `data` at `offset`. The data outlives the process, and not a loss of power.
    ///
    /// # Errors
    /// The error of the file system; a prefix may have been written.
    pub fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(data, offset)
    }

    /// Writes a range from the kernel's cache to the device and waits. Makes nothing durable.
    ///
    /// # Errors
    /// The error of the device, once: a later sync may succeed although the range is lost.
    pub fn write_back(&self, bytes: Range<u64>) -> io::Result<()> {
        let bio = call_bio(Operation::FlushData, bytes);
        self.file.submit_work(Work::WriteBack, bio, Vec::new()).map(|_| ())
    }

    /// Makes the file durable (`fsync`). Blocks.
    ///
    /// # Errors
    /// The error of the device. No later sync makes the data durable.
    pub fn sync(&self) -> io::Result<()> {
        let bio = call_bio(Operation::FlushData, 0..0);
        self.file.submit_work(Work::Bio, bio, Vec::new()).map(|_| ())
    }

    /// Returns whether the file system has little else to write, which may be at any time.
    #[must_use]
    pub fn may_sync_all(&self, _files: usize, _bytes: u64) -> bool {
        call(|machine| Ok(machine.random.happens(PerMille(500)))).unwrap_or_default()
    }

    /// Makes all files of the file system durable (`syncfs`). Blocks.
    ///
    /// # Errors
    /// The error of a device since the file was opened, for any file.
    pub fn sync_all(&self) -> io::Result<()> {
        self.file.sync_file_system()?;
        let failures = call(|machine| Ok(machine.failures()))?;
        marks::hit("synced with all");
        let has_failed = failures != self.failures;
        if has_failed { Err(io::Error::from_raw_os_error(libc::EIO)) } else { Ok(()) }
    }

    /// Sets the permission bits, which the machine does not keep.
    ///
    /// # Errors
    /// If the descriptor is closed.
    pub fn set_mode(&self, _mode: u32) -> io::Result<()> {
        self.links().map(drop)
    }

    /// Tries to lock the file for this open file description. Returns `false` if another one holds
    /// the lock.
    ///
    /// # Errors
    /// If the descriptor is closed.
    pub fn try_lock(&self) -> io::Result<bool> {
        Ok(self.file.try_ofd_lock()? == Lock::Taken)
    }

    /// Returns the number of names of the file: 0 once it is unlinked.
    ///
    /// # Errors
    /// If the descriptor is closed.
    pub fn links(&self) -> io::Result<u64> {
        call(|machine| machine.links(self.file.number()))
    }
}
