//! A file that is only memory, written by copies into a mapping: the least that a write can cost.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::error::{CellError, Context};
use super::lane::Serial;
use super::sequence::Operation;

/// A shared mapping of a memory file.
pub(crate) struct Memory {
    start: NonNull<u8>,
    bytes: usize,
    pub(crate) file: File,
}

impl Memory {
    /// Returns a mapping of a new memory file.
    pub(crate) fn new(bytes: u64) -> Result<Self, CellError> {
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
    fn transfer(&mut self, operation: Operation, buffer: &mut [u8]) -> Result<(), CellError> {
        let Operation { offset, bytes, .. } = operation;
        let from = &buffer[..bytes as usize];
        let end = usize::try_from(offset).ok().and_then(|offset| offset.checked_add(from.len()));
        assert!(end.is_some_and(|end| end <= self.bytes), "{} bytes at {offset}", from.len());
        // SAFETY: the offset was just held against the length of the mapping.
        let into = unsafe { self.start.add(offset as usize) };
        // SAFETY: `into` is valid for as many bytes, as was just checked, and nobody holds a
        // reference to the mapping.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), into.as_ptr(), from.len()) };
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
