//! An aligned allocation: memory the kernel can read and write directly, on the heap.
//!
//! Why not `Vec<u8>`: its memory is aligned to a byte, and direct I/O needs a sector, or a page.
//! Zeroed when made, so that every byte was written; callers that need many keep them, or use a
//! pool of [`Buffers`].
//!
//! [`Buffers`]: crate::buffers::Buffers

use std::alloc::{self, Layout};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;

use forebay_block::limits::PAGE;

/// Heap memory that is aligned to a page.
pub struct AlignedMemory {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: an allocation with one owner, of bytes; like a boxed slice it belongs to no thread.
unsafe impl Send for AlignedMemory {}
// SAFETY: `&AlignedMemory` only reads.
unsafe impl Sync for AlignedMemory {}

impl AlignedMemory {
    /// Allocates `length` zero bytes.
    ///
    /// # Panics
    /// If the length cannot be addressed. If there is no memory, the program aborts, as with `Vec`.
    #[must_use]
    pub fn new(length: usize) -> Self {
        if length == 0 {
            // Aligned all the same, and never touched.
            let start =
                NonNull::new(std::ptr::without_provenance_mut(PAGE)).expect("a page is not zero");
            return Self { start, length };
        }
        let layout = layout(length);
        // SAFETY: the layout has a size, as just looked at.
        let start = unsafe { alloc::alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| alloc::handle_alloc_error(layout));
        Self { start, length }
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.length
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Deref for AlignedMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the allocation is `length` initialised bytes, and `&self` keeps writers away.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl DerefMut for AlignedMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and `&mut self` keeps everybody else away.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl Drop for AlignedMemory {
    fn drop(&mut self) {
        if self.length > 0 {
            // SAFETY: allocated in `new` with this layout, and freed once.
            unsafe { alloc::dealloc(self.start.as_ptr(), layout(self.length)) };
        }
    }
}

impl fmt::Debug for AlignedMemory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("AlignedMemory")
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

fn layout(length: usize) -> Layout {
    Layout::from_size_align(length, PAGE).expect("a length that can be addressed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_zero_aligned_and_kept() {
        for length in [0, 1, 4096, 100_000] {
            let mut memory = AlignedMemory::new(length);
            assert!(memory.start().as_ptr().addr().is_multiple_of(PAGE));
            assert!(memory.len() == length && memory.iter().all(|byte| *byte == 0));
            memory.fill(7);
            assert!(memory.iter().all(|byte| *byte == 7));
        }
    }
}
