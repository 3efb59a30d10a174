//! The cost of a write into memory by itself: calls that copy the caller's buffer, on one thread.
//!
//! ```text
//! every block once, not counted  [ blocks in a random order, again and again ]  every block with its content, compared
//! ```
//!
//! The part in brackets is counted, and its pages all exist: the call and the copy are measured.
//! The bare copy goes into a shared mapping of a memory file, which is what an engine's arena is.
//! The clock is read once for many calls, so that it is not measured itself.

use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use forebay::{Engine, Open};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::content::Content;
use super::library::build_engine;
use super::shuffle::Permutation;
use super::verify;
use super::{CellError, Context};
use crate::cell::{CellResult, Verify};
use crate::through::{CopyCell, CopyWay};

/// Calls between two looks at the clock.
const CALLS_BETWEEN_LOOKS: usize = 64;

pub(crate) fn run(cell: &CopyCell) -> Result<CellResult, CellError> {
    let blocks = cell.file_bytes.checked_div(u64::from(cell.block_bytes)).unwrap_or(0);
    if blocks == 0 || !cell.file_bytes.is_multiple_of(u64::from(cell.block_bytes)) {
        return Err(CellError::invalid("a copy needs a file of whole blocks, one at least"));
    }
    match cell.way {
        CopyWay::Memcpy => measure(cell, blocks, Memory::new(cell.file_bytes)?),
        CopyWay::Pwrite => measure(cell, blocks, Cached::new(&cell.directory)?),
        CopyWay::Forebay => measure(cell, blocks, Library::new(cell)?),
    }
}

trait Target {
    fn write(&mut self, from: &[u8], offset: u64) -> Result<(), CellError>;

    /// Closes it, and returns a file to read the data back.
    fn end(self) -> Result<File, CellError>;
}

fn measure<T: Target>(
    cell: &CopyCell,
    blocks: u64,
    mut target: T,
) -> Result<CellResult, CellError> {
    let block_bytes = u64::from(cell.block_bytes);
    let order = Permutation::new(blocks, cell.seed);
    let offsets: Vec<u64> = (0..blocks).map(|index| order.at(index) * block_bytes).collect();
    let mut from = vec![0xf0; cell.block_bytes as usize];
    for &offset in &offsets {
        target.write(&from, offset)?;
    }
    let time = Duration::from_secs_f64(cell.seconds);
    let mut again = offsets.iter().cycle();
    let began = Instant::now();
    let mut calls = 0_u64;
    let elapsed = loop {
        for &offset in again.by_ref().take(CALLS_BETWEEN_LOOKS) {
            target.write(&from, offset)?;
        }
        calls += CALLS_BETWEEN_LOOKS as u64;
        let elapsed = began.elapsed();
        if elapsed >= time {
            break elapsed;
        }
    };
    let each = elapsed.as_secs_f64() / calls as f64;
    let metrics = [
        ("ns_per_io", each * 1e9),
        ("iops", 1.0 / each),
        ("write_bytes_per_s", block_bytes as f64 / each),
        ("elapsed_s", elapsed.as_secs_f64()),
    ];
    let metrics = metrics.map(|(name, value)| (name.to_owned(), value)).into();
    let mut notes = Vec::new();
    let content = Content::new(cell.seed, Path::new(cell.way.name()));
    if cell.verify == Verify::After {
        for &offset in &offsets {
            content.fill(offset, &mut from);
            target.write(&from, offset)?;
        }
    }
    let written = target.end()?;
    if cell.verify == Verify::After {
        for offset in (0..cell.file_bytes).step_by(from.len()) {
            verify::compare(&written, Path::new(cell.way.name()), content, offset, &mut from)?;
        }
        notes.push(super::verified(cell.file_bytes));
    }
    Ok(CellResult { metrics, notes, detail: None })
}

/// A shared mapping of a memory file.
struct Memory {
    start: NonNull<u8>,
    bytes: usize,
    file: File,
}

impl Memory {
    fn new(bytes: u64) -> Result<Self, CellError> {
        const NO_MEMORY: &str = "no memory to copy into";
        let file: OwnedFd = memfd_create("forebay-copy", MemfdFlags::CLOEXEC).context(NO_MEMORY)?;
        ftruncate(&file, bytes).context(NO_MEMORY)?;
        let bytes = bytes as usize;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, access, flags, &file, 0) }
            .context(NO_MEMORY)?;
        // As an engine asks of its arena; refused where there are no huge pages.
        // SAFETY: the range is the mapping just made, and its content does not depend on the
        // advice.
        let _ = unsafe { madvise(start, bytes, Advice::LinuxHugepage) };
        let start = NonNull::new(start.cast()).expect("a mapping is never at zero");
        Ok(Self { start, bytes, file: file.into() })
    }
}

impl Target for Memory {
    fn write(&mut self, from: &[u8], offset: u64) -> Result<(), CellError> {
        let end = usize::try_from(offset).ok().and_then(|offset| offset.checked_add(from.len()));
        assert!(end.is_some_and(|end| end <= self.bytes), "{} bytes at {offset}", from.len());
        // SAFETY: the offset was just held against the length of the mapping.
        let into = unsafe { self.start.add(offset as usize) };
        // SAFETY: `into` is valid for as many bytes, as was just checked, and nobody holds a
        // reference to the mapping.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), into.as_ptr(), from.len()) };
        Ok(())
    }

    fn end(self) -> Result<File, CellError> {
        self.file.try_clone().context("could not keep the memory file")
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping that was made in `new`, used by nobody from here on.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// A file in the page cache.
struct Cached {
    file: File,
    path: PathBuf,
}

impl Cached {
    fn new(directory: &Path) -> Result<Self, CellError> {
        let path = directory.join("copy");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .context_at("could not open it", &path)?;
        Ok(Self { file, path })
    }
}

impl Target for Cached {
    fn write(&mut self, from: &[u8], offset: u64) -> Result<(), CellError> {
        self.file.write_all_at(from, offset).context_at("could not write", &self.path)
    }

    fn end(self) -> Result<File, CellError> {
        self.file.sync_data().context_at("could not sync it", &self.path)?;
        verify::open_again(&self.path)
    }
}

/// A file in an engine's cache.
struct Library {
    engine: Engine,
    file: forebay::File,
    path: PathBuf,
}

impl Library {
    fn new(cell: &CopyCell) -> Result<Self, CellError> {
        let path = cell.directory.join("copy");
        let engine = build_engine(0, &cell.settings, None)?;
        let file = engine.open(&path, Open::create()).context("could not open it")?;
        Ok(Self { engine, file, path })
    }
}

impl Target for Library {
    fn write(&mut self, from: &[u8], offset: u64) -> Result<(), CellError> {
        self.file.write_at(from, offset).context("could not write")
    }

    fn end(self) -> Result<File, CellError> {
        const PATIENCE: Duration = Duration::from_secs(60);
        let Self { engine, file, path } = self;
        file.sync_data()
            .and_then(|()| file.close())
            .and_then(|()| engine.shutdown(PATIENCE))
            .context("could not sync and close it")?;
        verify::open_again(&path)
    }
}
