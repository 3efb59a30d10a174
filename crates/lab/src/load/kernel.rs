//! The kernel's own paths, a call at a time: `pread`, `pwrite` and their flags.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate};
use rustix::io::{ReadWriteFlags, preadv2, pwritev2};

use super::error::{CellError, Context};
use super::lane::Serial;
use super::layout::{FileKind, JobPlan};
use super::sequence::{Kind, Operation};
use crate::job::{Caching, FinalSync, YesNo};

/// How a job's files are opened and given space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Opening {
    pub(crate) caching: Caching,
    pub(crate) space: Space,
    /// Bytes after which it writes behind and drops, if it does.
    pub(crate) window_bytes: Option<u64>,
}

/// Whether a file gets its space when it is opened, in one piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Space {
    AsItGrows,
    Ahead,
}

/// A job's files, opened. With a window, their dirty and cached pages stay near a budget, as
/// databases do with `sync_file_range`. After each window's worth of I/O the job waits for the
/// writeback it started a window ago, starts that of the window just written, and drops clean
/// pages. So at most two windows of a job are in memory.
#[derive(Debug)]
pub(crate) struct KernelFiles {
    files: Vec<(File, PathBuf)>,
    flags: ReadWriteFlags,
    window_bytes: Option<u64>,
    moved: u64,
}

impl KernelFiles {
    /// Returns one file that is open already.
    pub(crate) fn one(file: File, path: PathBuf) -> Self {
        let flags = ReadWriteFlags::empty();
        Self { files: vec![(file, path)], flags, window_bytes: None, moved: 0 }
    }

    pub(crate) fn open(plan: &JobPlan, opening: Opening) -> Result<Self, CellError> {
        let Opening { caching, space, window_bytes } = opening;
        debug_assert!(window_bytes != Some(0), "a window without room");
        let mut files = Vec::with_capacity(plan.files.len());
        for file in &plan.files {
            let path = &file.path;
            let is_made = plan.writes() && file.kind == FileKind::Regular;
            let mut options = OpenOptions::new();
            options.read(true).write(plan.writes()).create(is_made);
            if caching == Caching::Direct {
                options.custom_flags(libc::O_DIRECT);
            }
            let open = options.open(path).context_at("could not open it", path)?;
            let sized = match space {
                Space::Ahead if is_made => {
                    fallocate(&open, FallocateFlags::empty(), 0, file.length).map_err(Into::into)
                }
                Space::AsItGrows if is_made && plan.job.declared == YesNo::Yes => {
                    open.set_len(file.length)
                }
                _ => Ok(()),
            };
            sized.context_at("could not give it its length", path)?;
            files.push((open, path.clone()));
        }
        let flags = match caching {
            Caching::Uncached => ReadWriteFlags::from_bits_retain(libc::RWF_DONTCACHE as u32),
            Caching::Buffered | Caching::Direct => ReadWriteFlags::empty(),
        };
        Ok(Self { files, flags, window_bytes, moved: 0 })
    }

    pub(crate) fn descriptor(&self, file: usize) -> i32 {
        self.files[file].0.as_raw_fd()
    }

    pub(crate) fn descriptors(&self) -> Vec<i32> {
        self.files.iter().map(|(file, _)| file.as_raw_fd()).collect()
    }

    pub(crate) fn flags(&self) -> ReadWriteFlags {
        self.flags
    }

    pub(crate) fn failed(&self, operation: &Operation, error: &io::Error) -> CellError {
        let Operation { kind, bytes, offset, .. } = operation;
        let verb = if *kind == Kind::Read { "read" } else { "write" };
        let what = format!("could not {verb} {bytes} bytes at {offset}");
        CellError::failed_at(what, &self.files[operation.file].1, error)
    }

    /// Transfers all of it, however many calls that takes.
    fn move_all(&self, operation: &Operation, buffer: &mut [u8]) -> io::Result<()> {
        let (file, _) = &self.files[operation.file];
        if self.flags.is_empty() {
            return match operation.kind {
                Kind::Read => file.read_exact_at(buffer, operation.offset),
                Kind::Write => file.write_all_at(buffer, operation.offset),
            };
        }
        let mut done = 0;
        while done < buffer.len() {
            let offset = operation.offset + done as u64;
            let part = &mut buffer[done..];
            let moved = match operation.kind {
                Kind::Read => preadv2(file, &mut [IoSliceMut::new(part)], offset, self.flags),
                Kind::Write => pwritev2(file, &[IoSlice::new(part)], offset, self.flags),
            };
            match moved {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(moved) => done += moved,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Counts bytes that were read or written. Writes behind and drops a full window, which may
    /// block.
    pub(crate) fn count_moved(&mut self, bytes: u32) -> Result<(), CellError> {
        let Some(window_bytes) = self.window_bytes else { return Ok(()) };
        self.moved += u64::from(bytes);
        if self.moved < window_bytes {
            return Ok(());
        }
        self.moved = 0;
        for (file, path) in &self.files {
            write_behind(file).context_at("could not write behind", path)?;
        }
        Ok(())
    }
}

impl Serial for KernelFiles {
    fn transfer(&mut self, operation: Operation, buffer: &mut [u8]) -> Result<(), CellError> {
        let moved = self.move_all(&operation, &mut buffer[..operation.bytes as usize]);
        moved.map_err(|error| self.failed(&operation, &error))?;
        self.count_moved(operation.bytes)
    }

    fn sync(&mut self, file: usize, how: FinalSync) -> Result<(), CellError> {
        let (file, path) = &self.files[file];
        let synced = match how {
            FinalSync::Data => file.sync_data(),
            FinalSync::All => file.sync_all(),
        };
        synced.context_at("could not sync it", path)
    }
}

/// Waits for writeback, starts it for dirty pages, and drops clean ones.
pub(crate) fn write_behind(file: &File) -> io::Result<()> {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE;
    // SAFETY: no memory is passed; the descriptor is open for as long as `file` lives.
    if unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, flags) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(fadvise(file, 0, None, Advice::DontNeed)?)
}

/// Drops the clean pages of a file from the page cache.
pub(crate) fn drop_cached(path: &Path) -> Result<(), CellError> {
    let file = File::open(path);
    let dropped = file.and_then(|file| Ok(fadvise(&file, 0, None, Advice::DontNeed)?));
    dropped.context_at("cannot drop it from the page cache", path)
}
