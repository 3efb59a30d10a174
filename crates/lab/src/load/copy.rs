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
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use forebay::Open;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::content::Content;
use super::driver::{Batch, Drive, Source};
use super::error::{CellError, Context};
use super::kernel::{Calls, KernelFiles};
use super::lane::{Buffers, Lane, Serial, SerialLane};
use super::library::{Blocking, build_engine, shut_down};
use super::sequence::{Kind, Operation};
use super::shuffle::Permutation;
use super::timed::{Spans, count};
use super::verify;
use crate::cell::{CellResult, Verify};
use crate::job::FinalSync;
use crate::through::{CopyCell, CopyWay};

/// Calls between two looks at the clock.
const CALLS_BETWEEN_LOOKS: usize = 64;

pub(crate) fn run(cell: &CopyCell) -> Result<CellResult, CellError> {
    let blocks = cell.file_bytes.checked_div(u64::from(cell.block_bytes)).unwrap_or(0);
    if blocks == 0 || !cell.file_bytes.is_multiple_of(u64::from(cell.block_bytes)) {
        return Err(CellError::invalid("a copy needs a file of whole blocks, one at least"));
    }
    let path = cell.directory.join("copy");
    match cell.way {
        CopyWay::Memcpy => {
            let memory = Memory::new(cell.file_bytes)?;
            let file = memory.file.try_clone().context("could not keep the memory file")?;
            measure(cell, memory, || Ok(file))
        }
        CopyWay::Pwrite => {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(true);
            let file = options.open(&path).context_at("could not open it", &path)?;
            let files = Calls::new(KernelFiles::one(file, path.clone()), None);
            measure(cell, files, || verify::open_again(&path))
        }
        CopyWay::Forebay => {
            let engine = Arc::new(build_engine(0, &cell.settings, None)?);
            let file = engine.open(&path, Open::create()).context("could not open it")?;
            let files = Blocking::one(file, Arc::clone(&engine));
            measure(cell, files, || {
                shut_down(engine)?;
                verify::open_again(&path)
            })
        }
    }
}

/// Measures writes, and compares the data if the cell is verified. `reopen` returns a file to read
/// it back, after the files were synced and closed.
fn measure<F: Serial>(
    cell: &CopyCell,
    files: F,
    reopen: impl FnOnce() -> Result<File, CellError>,
) -> Result<CellResult, CellError> {
    let blocks = Blocks::new(cell);
    let mut buffers = Buffers::new(1, blocks.bytes as usize);
    buffers.slot(0).fill(0xf0);
    let mut lane = SerialLane::of_slots(CALLS_BETWEEN_LOOKS, buffers, files);
    blocks.write_all(&mut lane, |_, _| {})?;
    let batch = Batch { least: 1, most: CALLS_BETWEEN_LOOKS, complete: 1 };
    let mut drive = Drive::new(blocks.clone(), CALLS_BETWEEN_LOOKS, batch);
    let time = Spans::without_ramp(Duration::from_secs_f64(cell.seconds));
    let counted = count(&mut drive, &mut lane, time)?;
    let each = counted.seconds_each();
    let metrics = [
        ("ns_per_io", each * 1e9),
        ("iops", 1.0 / each),
        ("write_bytes_per_s", f64::from(blocks.bytes) / each),
        ("elapsed_s", counted.elapsed.as_secs_f64()),
    ];
    let metrics = metrics.map(|(name, value)| (name.to_owned(), value)).into();
    let mut notes = Vec::new();
    let name = Path::new(cell.way.name());
    let content = Content::new(cell.seed, name);
    if cell.verify == Verify::After {
        blocks.write_all(&mut lane, |offset, buffer| content.fill(offset, buffer))?;
    }
    lane.sync(0, FinalSync::Data)?;
    Box::new(lane).close()?;
    let written = reopen()?;
    if cell.verify == Verify::After {
        let mut buffer = vec![0; blocks.bytes as usize];
        for offset in (0..cell.file_bytes).step_by(buffer.len()) {
            verify::compare(&written, name, content, offset, &mut buffer)?;
        }
        notes.push(verify::verified(cell.file_bytes));
    }
    Ok(CellResult { metrics, notes, detail: None })
}

/// Blocks of a file in a random order, again and again.
#[derive(Clone)]
struct Blocks {
    offsets: Vec<u64>,
    next: usize,
    bytes: u32,
}

impl Blocks {
    fn new(cell: &CopyCell) -> Self {
        let bytes = cell.block_bytes;
        let blocks = cell.file_bytes / u64::from(bytes);
        assert!(blocks > 0, "a file without a block");
        let order = Permutation::new(blocks, cell.seed);
        let offsets = (0..blocks).map(|index| order.at(index) * u64::from(bytes)).collect();
        Self { offsets, next: 0, bytes }
    }

    /// Writes every block once.
    fn write_all<F: Serial>(
        &self,
        lane: &mut SerialLane<F>,
        fill: impl Fn(u64, &mut [u8]),
    ) -> Result<(), CellError> {
        for &offset in &self.offsets {
            let write = Operation { kind: Kind::Write, file: 0, offset, bytes: self.bytes };
            lane.transfer(write, |buffer| fill(offset, buffer))?;
        }
        Ok(())
    }
}

impl Source for Blocks {
    #[inline]
    fn next(&mut self) -> Option<Operation> {
        let offset = self.offsets[self.next];
        self.next = if self.next + 1 == self.offsets.len() { 0 } else { self.next + 1 };
        Some(Operation { kind: Kind::Write, file: 0, offset, bytes: self.bytes })
    }
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

impl Serial for Memory {
    #[inline]
    fn transfer(&mut self, operation: Operation, from: &mut [u8]) -> Result<(), CellError> {
        let Operation { offset, .. } = operation;
        let end = usize::try_from(offset).ok().and_then(|offset| offset.checked_add(from.len()));
        assert!(end.is_some_and(|end| end <= self.bytes), "{} bytes at {offset}", from.len());
        // SAFETY: the offset was just held against the length of the mapping.
        let into = unsafe { self.start.add(offset as usize) };
        // SAFETY: `into` is valid for as many bytes, as was just checked, and nobody holds a
        // reference to the mapping.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), into.as_ptr(), from.len()) };
        Ok(())
    }

    fn close(self) -> Result<(), CellError> {
        Ok(())
    }
}

// SAFETY: the mapping is owned, and reached through `&mut self`.
unsafe impl Send for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping that was made in `new`, used by nobody from here on.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
