//! The ring of buffers from which the kernel takes one when bytes arrive (Linux 5.19).
//!
//! This module is the only writer, and the kernel the only reader. Entries are written behind the
//! tail, and the tail is moved once for all of them. The tail is in the first entry, in a field
//! that the kernel does not read there.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::pool::{Pool, Received};
use forebay_uring::mapping::Mapping;
use io_uring::IoUring;
use io_uring::types::BufRingEntry;

/// Number of the ring of buffers, for the kernel.
pub(crate) const GROUP: u16 = 0;

/// The ring of buffers.
#[derive(Debug)]
pub(crate) struct Provided {
    entries: Mapping,
    pool: Arc<Pool>,
    tail: u16,
    /// Buffers that the kernel has.
    there: u32,
    back: Vec<u16>,
}

impl Provided {
    /// Registers a ring that contains all buffers of a pool.
    pub(crate) fn register(uring: &IoUring, pool: Arc<Pool>) -> io::Result<Self> {
        let bytes = usize::from(pool.count) * size_of::<BufRingEntry>();
        let entries = Mapping::private(bytes)?;
        let mut provided =
            Self { entries, tail: 0, there: 0, back: (0..pool.count).collect(), pool };
        provided.put();
        let address = provided.entries.start().expose_provenance() as u64;
        // SAFETY: the entries stay mapped until all receives have ended, or for ever: see `leak`.
        unsafe {
            uring.submitter().register_buf_ring_with_flags(address, provided.pool.count, GROUP, 0)
        }?;
        Ok(provided)
    }

    /// Gives the returned buffers to the kernel. Returns the number of buffers that it has.
    pub(crate) fn recycle(&mut self) -> u32 {
        self.pool.take_back(&mut self.back);
        if !self.back.is_empty() {
            self.put();
        }
        self.there
    }

    /// Takes a buffer that the kernel has filled.
    pub(crate) fn take(&mut self, buffer: u16, length: usize) -> Received {
        self.there = self.there.checked_sub(1).expect("the kernel had the buffer");
        // SAFETY: the kernel no longer uses the buffer. It gets the buffer again only when the
        // pool has its number back.
        unsafe { self.pool.hand_out(buffer, length) }
    }

    /// Keeps the memory for ever, because the kernel may still write to it.
    pub(crate) fn leak(self) {
        std::mem::forget(self);
    }

    fn put(&mut self) {
        let entries: *mut BufRingEntry = self.entries.start().cast();
        for buffer in self.back.drain(..) {
            let at = usize::from(self.tail & (self.pool.count - 1));
            let address = self.pool.start(buffer).as_ptr().expose_provenance() as u64;
            // SAFETY: the place is inside the mapping, which has `count` entries.
            let entry = unsafe { entries.add(at) };
            // SAFETY: mapped, aligned, and valid even if zero. The kernel does not read entries
            // behind the tail. In the first entry it reads the tail, which these setters leave.
            let entry = unsafe { &mut *entry };
            entry.set_addr(address);
            entry.set_len(self.pool.each);
            entry.set_bid(buffer);
            self.tail = self.tail.wrapping_add(1);
            self.there += 1;
        }
        // SAFETY: `entries` is the address of the first entry.
        let tail = unsafe { BufRingEntry::tail(entries) };
        // SAFETY: mapped and aligned; both sides use it as an atomic.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        // Release: pairs with the kernel's acquire load, which then sees the entries.
        tail.store(self.tail, Ordering::Release);
    }
}
