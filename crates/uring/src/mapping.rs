//! A stretch of mapped memory with one owner: unmapped when the owner is dropped, unless it is
//! kept.
//!
//! Why not `Vec`: this memory is shared with the kernel (and, through a descriptor, perhaps with
//! another process), so it must have an address that no allocator hands out again while a request
//! may still touch it. Nothing here makes references to the memory; the layers above decide about
//! reads and writes.

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::fork::Home;

/// Mapped memory, page-aligned.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    home: Home,
}

// SAFETY: a mapping is an address and a length; it has no thread of its own, and accesses through
// the address are `unsafe` (or atomic) at their place.
unsafe impl Send for Mapping {}
// SAFETY: as above; `&Mapping` gives out the address alone.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` of `file`, shared, for reading and writing.
    pub(crate) fn shared(file: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        // SAFETY: the kernel chooses the address, so no mapping that exists is touched.
        let start = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                0,
            )
        }?;
        Ok(Self::own(start.cast(), bytes))
    }

    /// Maps the first `bytes` of `file` for reading and writing; writes stay private. Only written
    /// pages take memory.
    pub(crate) fn copy_of(file: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses the address, so no mapping that exists is touched.
        let start =
            unsafe { rustix::mm::mmap(ptr::null_mut(), bytes, protection, flags, file, 0) }?;
        Ok(Self::own(start.cast(), bytes))
    }

    /// Maps private memory for reading and writing that reads as zeroes. Forked children do not
    /// inherit it, and core dumps leave it out.
    ///
    /// # Errors
    /// The error of the kernel if it grants no memory.
    pub(crate) fn private(bytes: usize) -> io::Result<Self> {
        let mapping = Self::anonymous(bytes, ProtFlags::READ | ProtFlags::WRITE)?;
        mapping.hide()?;
        Ok(mapping)
    }

    /// Maps private memory that reads as zeroes; writable as told.
    pub(crate) fn anonymous(bytes: usize, protection: ProtFlags) -> io::Result<Self> {
        // SAFETY: the kernel chooses the address, so no mapping that exists is touched.
        let start = unsafe {
            rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, protection, MapFlags::PRIVATE)
        }?;
        Ok(Self::own(start.cast(), bytes))
    }

    fn own(start: *mut u8, bytes: usize) -> Self {
        let start =
            NonNull::new(start).expect("the kernel maps nothing at address zero unless asked to");
        Self { start, bytes, home: Home::here() }
    }

    /// Returns the address of the first byte.
    #[must_use]
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Hides the mapping from forked children and from core dumps.
    pub(crate) fn hide(&self) -> io::Result<()> {
        self.advise(Advice::LinuxDontFork)?;
        self.advise(Advice::LinuxDontDump)
    }

    /// Advises the kernel about the whole mapping.
    pub(crate) fn advise(&self, advice: Advice) -> io::Result<()> {
        self.advise_part(0..self.bytes, advice)
    }

    /// Advises the kernel about whole pages of the mapping, from one offset to another.
    pub(crate) fn advise_part(&self, part: Range<usize>, advice: Advice) -> io::Result<()> {
        assert!(part.start <= part.end && part.end <= self.bytes, "a part of the mapping");
        // SAFETY: the part is within the mapping.
        let start = unsafe { self.start.as_ptr().add(part.start) };
        // SAFETY: the range is ours, and every advice used in this crate leaves what this process
        // sees in it as it is.
        unsafe { rustix::mm::madvise(start.cast(), part.len(), advice) }?;
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if !self.home.is_here() {
            // A forked child did not inherit it, and may have something else at the address by now.
            return;
        }
        // SAFETY: the range is ours, whole, and this is its last owner; the code that gave an
        // address out has promised that its use has ended.
        if let Err(error) = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) } {
            tracing::error!(%error, bytes = self.bytes, "could not unmap");
        }
    }
}
