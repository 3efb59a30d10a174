//! The kernel's own paths, a call at a time: `pread`, `pwrite` and their flags.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{ReadWriteFlags, preadv2, pwritev2};

use super::lane::Serial;
use super::layout::{FileKind, JobPlan};
use super::sequence::{Kind, Operation};
use super::window::Window;
use super::{CellError, Context};
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

    /// Each file and where it is.
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

    /// All of it, however many calls that takes.
    fn transfer(&self, operation: &Operation, buffer: &mut [u8]) -> io::Result<()> {
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
