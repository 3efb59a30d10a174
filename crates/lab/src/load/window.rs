//! A window: keeping what a job dirtied and cached near a budget, as databases do with
//! `sync_file_range`.
//!
//! After each window's worth of I/O it waits for the writeback it started a window ago, starts that
//! of the window just written, and drops what is clean. So at most two windows of a job are in
//! memory.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use rustix::fs::{Advice, fadvise};

use super::kernel::KernelFiles;
use super::{CellError, Context};

/// How far it is filled.
#[derive(Debug)]
pub(crate) struct Window {
    bytes: u64,
    filled: u64,
}

impl Window {
    pub(crate) fn new(bytes: u64) -> Self {
        Self { bytes: bytes.max(1), filled: 0 }
    }

    /// So many bytes were read or written; a full window is written behind and dropped, which may
    /// block.
    pub(crate) fn moved(&mut self, bytes: u32, files: &KernelFiles) -> Result<(), CellError> {
        self.filled += u64::from(bytes);
        if self.filled < self.bytes {
            return Ok(());
        }
        self.filled = 0;
        for (file, path) in files.each() {
            write_behind(file).context_at("could not write behind", path)?;
        }
        Ok(())
    }
}

/// Waits for writeback, starts it for dirty pages, and drops clean ones.
pub(crate) fn write_behind(file: &File) -> io::Result<()> {
    sync_range(file, libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE)?;
    Ok(fadvise(file, 0, None, Advice::DontNeed)?)
}

/// Starts writeback of the file's dirty pages.
pub(crate) fn start_writeback(file: &File) -> io::Result<()> {
    sync_range(file, libc::SYNC_FILE_RANGE_WRITE)
}

fn sync_range(file: &File, flags: libc::c_uint) -> io::Result<()> {
    // SAFETY: no memory is passed; the descriptor is open for as long as `file` lives.
    match unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
