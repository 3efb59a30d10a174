//! Appends at the end that a file has at that moment, which other programs may move.
//!
//! The kernel finds the end and writes there in one step, under its lock of the file. Direct I/O
//! has no appends of any length, and the mode of the descriptor belongs to the requests of the
//! ring. So appends go through the page cache, by a second descriptor. It is opened with the first
//! append. It excludes a lease, so it is closed before the file asks for one.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::sync::{MutexGuard, PoisonError};

use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::retry_on_intr;

use crate::file::OpenFile;

impl OpenFile {
    /// Appends bytes at the end that the file has now, and returns their offset and number, which
    /// may be fewer. Returns `None` if the file cannot be opened for that. Blocks while another
    /// program has a lease of the file, and while the kernel throttles writers.
    pub fn append(&self, data: &[u8]) -> Option<io::Result<(u64, usize)>> {
        // No other append has it meanwhile, so its position is the end of this one.
        let idle = self.appender().take();
        let descriptor = match idle {
            Some(descriptor) => descriptor,
            None => {
                let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOCTTY | OFlags::CLOEXEC;
                // The file may have lost its name.
                let path = format!("/proc/self/fd/{}", self.as_fd().as_raw_fd());
                retry_on_intr(|| rustix::fs::open(&path, flags, Mode::empty())).ok()?
            }
        };
        let written = retry_on_intr(|| rustix::io::write(&descriptor, data)).and_then(|written| {
            let end = rustix::fs::seek(&descriptor, SeekFrom::Current(0))?;
            Ok((end - written as u64, written))
        });
        *self.appender() = Some(descriptor);
        Some(written.map_err(io::Error::from))
    }

    /// Closes the second descriptor, if no append uses it.
    pub(crate) fn end_appends(&self) {
        let idle = self.appender().take();
        drop(idle);
    }

    fn appender(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.appender.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
