//! Bytes that a cursor has read ahead of a sequential reader, for files that the engine has open
//! for reading only, without a lease.
//!
//! Other programs may write such a file, so the engine keeps none of its pages, and each read asks
//! the device. `std::io::copy` reads 8 KiB at a time: without a buffer that is a device
//! read each. So a cursor keeps the rest of a larger read, with bounds:
//!
//! - only for a reader that goes on where its last read ended; any other read drops the bytes,
//! - only while no handle of the engine can write the file, and
//! - for a tenth of a second. A follower of a growing file that waits longer sees it as it is then.
//!
//! The window doubles, as that of readahead does.

use std::ops::Range;
use std::time::Instant;

use forebay_cache::Liberties;

use crate::core::file::File;
use crate::core::limits::{CURSOR_AHEAD, CURSOR_AHEAD_FRESH};
use crate::platform::{Access, Kind, clock};

/// Bytes read ahead by one cursor.
#[derive(Default)]
pub(super) struct Ahead {
    memory: Vec<u8>,
    /// Bytes in the memory that the reader does not have yet.
    left: Range<usize>,
    /// When they were asked for.
    since: Option<Instant>,
    /// Offset where the last read ended; `None` before the first.
    next: Option<u64>,
    /// Bytes of the last window.
    window: usize,
}

impl Ahead {
    /// Copies bytes that were read ahead to a reader at `position`. Returns their number, which
    /// is 0 for a reader elsewhere.
    pub(super) fn take(&mut self, file: &File, position: u64, into: &mut [u8]) -> usize {
        let is_fresh =
            |since| clock::instant().saturating_duration_since(since) < CURSOR_AHEAD_FRESH;
        if self.left.is_empty() {
            return 0;
        }
        if self.next != Some(position) || !serves(file) || !self.since.is_some_and(is_fresh) {
            self.left = 0..0;
            return 0;
        }
        self.give(position, into)
    }

    fn give(&mut self, position: u64, into: &mut [u8]) -> usize {
        let length = self.left.len().min(into.len());
        into[..length].copy_from_slice(&self.memory[self.left.start..][..length]);
        self.left.start += length;
        self.next = Some(position + length as u64);
        length
    }

    /// Returns whether a read of `wanted` bytes at `position` is to read ahead, into
    /// [`Ahead::memory`].
    pub(super) fn begin(&mut self, file: &File, position: u64, wanted: usize) -> bool {
        self.left = 0..0;
        let is_small = wanted <= CURSOR_AHEAD.end() / 2;
        if self.next != Some(position) || !is_small || !serves(file) {
            (self.memory, self.window) = (Vec::new(), 0);
            return false;
        }
        let least = (2 * wanted).max(*CURSOR_AHEAD.start());
        self.window = (2 * self.window).max(least).min(*CURSOR_AHEAD.end());
        self.memory.resize(self.window, 0);
        self.since = Some(clock::instant());
        true
    }

    /// Returns the memory for a read that has begun.
    pub(super) fn memory(&mut self) -> &mut [u8] {
        &mut self.memory
    }

    /// Ends a read that has begun, of `read` bytes from `position` on. Copies the first ones to the
    /// reader, and returns their number.
    pub(super) fn end(&mut self, read: usize, position: u64, into: &mut [u8]) -> usize {
        self.left = 0..read;
        self.give(position, into)
    }

    /// Notes that the reader has read up to `end` into its own memory.
    pub(super) fn note(&mut self, end: u64) {
        self.next = Some(end);
    }
}

/// Returns whether reads of a file ask the device each time, and nothing in this engine writes it.
pub(super) fn serves(file: &File) -> bool {
    let inode = &file.inode;
    inode.file.kind() == Kind::Regular
        && inode.file.access() == Access::Read
        && inode.lock().cache.liberties() == Liberties::Shared
}
