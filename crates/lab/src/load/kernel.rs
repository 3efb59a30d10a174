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
}

/// Whether a file gets its space when it is opened, in one piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Space {
    AsItGrows,
    Ahead,
}

/// A job's files, opened.
#[derive(Debug)]
pub(crate) struct KernelFiles {
    files: Vec<File>,
    paths: Vec<PathBuf>,
    flags: ReadWriteFlags,
}

impl KernelFiles {
    /// Returns one file that is open already.
    pub(crate) fn one(file: File, path: PathBuf) -> Self {
        Self { files: vec![file], paths: vec![path], flags: ReadWriteFlags::empty() }
    }

    pub(crate) fn open(plan: &JobPlan, opening: Opening) -> Result<Self, CellError> {
        let mut files = Vec::with_capacity(plan.files.len());
        let mut paths = Vec::with_capacity(plan.files.len());
        for file in &plan.files {
            let path = &file.path;
            let mut options = OpenOptions::new();
            options.read(true).write(plan.writes());
            options.create(plan.writes() && file.kind == FileKind::Regular);
            if opening.caching == Caching::Direct {
                options.custom_flags(libc::O_DIRECT);
            }
            let open = options.open(path).context_at("could not open it", path)?;
            if plan.writes() && file.kind == FileKind::Regular {
                const LENGTH: &str = "could not give it its length";
                if opening.space == Space::Ahead {
                    fallocate(&open, FallocateFlags::empty(), 0, file.length)
                        .context_at(LENGTH, path)?;
                } else if plan.job.declared == YesNo::Yes {
                    open.set_len(file.length).context_at(LENGTH, path)?;
                }
            }
            files.push(open);
            paths.push(path.clone());
        }
        let flags = match opening.caching {
            Caching::Uncached => ReadWriteFlags::from_bits_retain(libc::RWF_DONTCACHE as u32),
            Caching::Buffered | Caching::Direct => ReadWriteFlags::empty(),
        };
        Ok(Self { files, paths, flags })
    }

    pub(crate) fn descriptor(&self, file: usize) -> i32 {
        self.files[file].as_raw_fd()
    }

    /// Returns each file and its path.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&File, &PathBuf)> {
        self.files.iter().zip(&self.paths)
    }

    pub(crate) fn flags(&self) -> ReadWriteFlags {
        self.flags
    }

    pub(crate) fn failed(&self, operation: &Operation, error: &io::Error) -> CellError {
        let Operation { kind, bytes, offset, .. } = operation;
        let verb = if *kind == Kind::Read { "read" } else { "write" };
        let what = format!("could not {verb} {bytes} bytes at {offset}");
        CellError::failed_at(what, &self.paths[operation.file], error)
    }

    pub(crate) fn sync(&self, file: usize, how: FinalSync) -> Result<(), CellError> {
        let result = match how {
            FinalSync::Data => self.files[file].sync_data(),
            FinalSync::All => self.files[file].sync_all(),
        };
        result.context_at("could not sync it", &self.paths[file])
    }

    /// Transfers all of it, however many calls that takes.
    fn transfer(&self, operation: &Operation, buffer: &mut [u8]) -> io::Result<()> {
        debug_assert_eq!(buffer.len(), operation.bytes as usize);
        let file = &self.files[operation.file];
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
}

/// Keeps what a job dirtied and cached near a budget, as databases do with `sync_file_range`.
///
/// After each window's worth of I/O it waits for the writeback it started a window ago, starts that
/// of the window just written, and drops clean pages. So at most two windows of a job are in
/// memory.
#[derive(Debug)]
pub(crate) struct Window {
    bytes: u64,
    filled: u64,
}

impl Window {
    pub(crate) fn new(bytes: u64) -> Self {
        debug_assert!(bytes > 0, "a window without room");
        Self { bytes: bytes.max(1), filled: 0 }
    }

    /// Counts bytes that were read or written. Writes behind and drops a full window, which may
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

/// Drops the clean pages of a file from the page cache.
pub(crate) fn drop_cached(path: &Path) -> Result<(), CellError> {
    let file = File::open(path);
    let dropped = file.and_then(|file| Ok(fadvise(&file, 0, None, Advice::DontNeed)?));
    dropped.context_at("cannot drop it from the page cache", path)
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

/// Files for single calls, which may keep near a budget.
pub(crate) struct Calls {
    files: KernelFiles,
    window: Option<Window>,
}

impl Calls {
    /// With at most two windows of these bytes in memory, if any.
    pub(crate) fn new(files: KernelFiles, window_bytes: Option<u64>) -> Self {
        Self { files, window: window_bytes.map(Window::new) }
    }
}

impl Serial for Calls {
    fn transfer(&mut self, operation: Operation, buffer: &mut [u8]) -> Result<(), CellError> {
        let moved = self.files.transfer(&operation, buffer);
        moved.map_err(|error| self.files.failed(&operation, &error))?;
        match &mut self.window {
            Some(window) => window.moved(operation.bytes, &self.files),
            None => Ok(()),
        }
    }

    fn sync(&mut self, file: usize, how: FinalSync) -> Result<(), CellError> {
        self.files.sync(file, how)
    }

    fn close(self) -> Result<(), CellError> {
        Ok(())
    }
}
