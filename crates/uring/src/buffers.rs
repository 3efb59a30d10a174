//! A pool of buffers: one aligned mapping of a fixed size, of which pieces are taken and come back
//! when dropped.
//!
//! Why not the heap: memory at the device must not be copied when the process forks (a fork moves
//! the parent's next write to a new page, while the device uses the old one), must not be in a core
//! dump, and is to be bounded. A piece is a run of pages; the free runs are kept by place and grow
//! together again.
//!
//! The guarantee: a piece is one owner's alone until it is dropped, and the mapping outlives its
//! last piece. The price: a piece is whole pages, and a pool in many small pieces may refuse a
//! large one. A piece holds what its last owner left in it.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_block::limits::PAGE;

use crate::fork::Home;
use crate::mapping::Mapping;

/// Pool of buffers of a fixed total size.
#[derive(Debug)]
pub struct Buffers {
    memory: Mapping,
    pages: usize,
    home: Home,
    /// Free runs: first page, pages.
    free: Mutex<BTreeMap<usize, usize>>,
}

impl Buffers {
    /// Creates a pool of `bytes` bytes, rounded up to whole pages.
    ///
    /// # Errors
    /// The error of the kernel if it grants no memory; `InvalidInput` for 0 bytes.
    pub fn new(bytes: usize) -> io::Result<Arc<Self>> {
        let pages = bytes / PAGE;
        if pages == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a pool of less than a page"));
        }
        let memory = Mapping::private(pages * PAGE)?;
        let free = Mutex::new(BTreeMap::from([(0, pages)]));
        Ok(Arc::new(Self { memory, pages, home: Home::here(), free }))
    }

    /// Takes a piece of `bytes` bytes, or returns `None` if there is no contiguous room.
    #[must_use]
    pub fn take(self: &Arc<Self>, bytes: usize) -> Option<Piece> {
        let pages = bytes.div_ceil(PAGE);
        let first = if pages == 0 { 0 } else { self.take_run(pages)? };
        Some(Piece { buffers: Arc::clone(self), first, pages, length: bytes })
    }

    /// Returns the total size in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (self.pages * PAGE) as u64
    }

    fn take_run(&self, pages: usize) -> Option<usize> {
        let mut free = self.free();
        let (first, run) =
            free.iter().find(|(_, run)| **run >= pages).map(|(first, run)| (*first, *run))?;
        free.remove(&first);
        if run > pages {
            free.insert(first + pages, run - pages);
        }
        Some(first)
    }

    fn give_run(&self, mut first: usize, mut pages: usize) {
        let mut free = self.free();
        if let Some(behind) = free.remove(&(first + pages)) {
            pages += behind;
        }
        if let Some((&before, &run)) = free.range(..first).next_back()
            && before + run == first
        {
            (first, pages) = (before, run + pages);
        }
        free.insert(first, pages);
    }

    fn free(&self) -> MutexGuard<'_, BTreeMap<usize, usize>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Piece of a pool, aligned to a page. Dropping it returns it to the pool.
pub struct Piece {
    buffers: Arc<Buffers>,
    first: usize,
    pages: usize,
    length: usize,
}

impl Piece {
    /// Returns the number of bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.length
    }

    /// Returns the most bytes that it can have: its whole pages.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.pages * PAGE
    }

    /// Sets the number of bytes. Bytes that this adds hold what they held before.
    ///
    /// # Panics
    /// Beyond [`Piece::capacity`].
    pub fn set_length(&mut self, length: usize) {
        let most = self.capacity();
        assert!(length <= most, "a length of {length} bytes in a piece of {most}");
        self.length = length;
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        // SAFETY: the piece's pages are within the mapping.
        let start = unsafe { self.buffers.memory.start().add(self.first * PAGE) };
        NonNull::new(start).expect("a mapping is not at address zero")
    }

    /// The mapping is not there in a forked child: better a message than a signal.
    fn assert_here(&self) {
        assert!(self.buffers.home.is_here(), "a buffer of the parent's, used in a forked child");
    }
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.assert_here();
        // SAFETY: the run is mapped for reading and writing, zeroes at first, and belongs to this
        // piece alone until its drop; `&self` keeps writers away.
        unsafe { slice::from_raw_parts(self.start().as_ptr(), self.length) }
    }
}

impl DerefMut for Piece {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.assert_here();
        // SAFETY: as for `deref`, and `&mut self` keeps everybody else away.
        unsafe { slice::from_raw_parts_mut(self.start().as_ptr(), self.length) }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        // A forked child has a copy of the lock, perhaps as somebody else held it, and no use for
        // what it guards.
        if self.pages > 0 && self.buffers.home.is_here() {
            self.buffers.give_run(self.first, self.pages);
        }
    }
}

impl fmt::Debug for Piece {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Piece")
            .field("first", &self.first)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_apart_and_come_back() {
        let buffers = Buffers::new(16 * PAGE).unwrap();
        let mut pieces: Vec<Piece> = (0..16).map(|_| buffers.take(PAGE - 1).unwrap()).collect();
        assert!(buffers.take(1).is_none());
        for (index, piece) in pieces.iter_mut().enumerate() {
            piece.fill(u8::try_from(index).unwrap());
        }
        for (index, piece) in pieces.iter().enumerate() {
            assert!(
                piece.len() == PAGE - 1 && piece.iter().all(|byte| usize::from(*byte) == index)
            );
        }
        pieces.retain(|piece| piece[0] % 2 == 1);
        assert!(buffers.take(PAGE + 1).is_none(), "free pages, and no two together");
        pieces.clear();
        assert_eq!(*buffers.free(), BTreeMap::from([(0, 16)]), "one run again");
        assert_eq!(buffers.take(16 * PAGE).unwrap().length(), 16 * PAGE);
        assert_eq!(buffers.take(0).unwrap().length(), 0);
    }

    #[test]
    fn a_piece_shrinks_and_grows_within_its_pages() {
        let buffers = Buffers::new(4 * PAGE).unwrap();
        let mut piece = buffers.take(PAGE + 1).unwrap();
        piece.fill(5);
        piece.set_length(1);
        assert_eq!((piece.len(), piece.capacity()), (1, 2 * PAGE));
        piece.set_length(2 * PAGE);
        assert_eq!((piece.len(), piece[PAGE]), (2 * PAGE, 5));
        piece.set_length(0);
        drop(piece);
        assert_eq!(*buffers.free(), BTreeMap::from([(0, 4)]), "all of its pages came back");
    }

    #[test]
    fn the_mapping_outlives_the_pool() {
        let mut piece = Buffers::new(4 * PAGE).unwrap().take(2 * PAGE).unwrap();
        piece.fill(3);
        assert!(piece.iter().all(|byte| *byte == 3));
    }

    #[test]
    fn no_bytes_are_refused() {
        assert_eq!(Buffers::new(100).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
