//! The ring of buffers that the kernel takes from when bytes have come (Linux 5.19).
//!
//! One writer, us, and one reader, the kernel: entries are written behind the tail, and the tail is
//! moved once for all of them. The tail lies in the first entry, in a field the kernel does not
//! read there.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;
use rustix::mm::{Advice, ProtFlags};

use super::pool::{Pool, Received};
use crate::mapping::Mapping;

/// The number the kernel knows the ring of buffers by.
pub(super) const GROUP: u16 = 0;

/// The ring of buffers.
#[derive(Debug)]
pub(super) struct Provided {
    entries: Mapping,
    pool: Arc<Pool>,
    tail: u16,
    /// Buffers the kernel has.
    there: u32,
    back: Vec<u16>,
}

impl Provided {
    /// Registers a ring with all buffers of a pool in it.
    pub(super) fn register(uring: &IoUring, pool: Arc<Pool>) -> io::Result<Self> {
        let bytes = usize::from(pool.count()) * size_of::<BufRingEntry>();
        let entries = Mapping::anonymous(bytes, ProtFlags::READ | ProtFlags::WRITE)?;
        entries.advise(Advice::LinuxDontFork)?;
        let mut provided =
            Self { entries, tail: 0, there: 0, back: (0..pool.count()).collect(), pool };
        provided.put();
        let address = provided.entries.start().expose_provenance() as u64;
        // SAFETY: the entries stay mapped until all that receives has ended, or for ever: see
        // `leak`.
        unsafe {
            uring.submitter().register_buf_ring_with_flags(address, provided.pool.count(), GROUP, 0)
        }?;
        Ok(provided)
    }

    /// Gives the kernel the buffers that came back; tells how many it has.
    pub(super) fn recycle(&mut self) -> u32 {
        self.pool.take_back(&mut self.back);
        if !self.back.is_empty() {
            self.put();
        }
        self.there
    }

    /// Takes the buffer that the kernel has filled.
    pub(super) fn take(&mut self, buffer: u16, length: usize) -> Received {
        self.there = self.there.checked_sub(1).expect("the kernel had the buffer");
        // SAFETY: the kernel is done with the buffer, and it is given back to it by its number
        // alone.
        unsafe { self.pool.hand_out(buffer, length) }
    }

    /// Keeps the memory for ever, because the kernel may still write to it.
    pub(super) fn leak(self) {
        std::mem::forget(self);
    }

    fn put(&mut self) {
        let entries: *mut BufRingEntry = self.entries.start().cast();
        for buffer in self.back.drain(..) {
            let at = usize::from(self.tail & (self.pool.count() - 1));
            let address = self.pool.start(buffer).as_ptr().expose_provenance() as u64;
            // SAFETY: the place is inside the mapping, which is made of so many entries.
            let entry = unsafe { entries.add(at) };
            // SAFETY: mapped, aligned, and zeroes are an entry. The kernel does not read entries
            // behind the tail; in the first entry it reads the tail, which nothing here writes.
            let entry = unsafe { &mut *entry };
            entry.set_addr(address);
            entry.set_len(self.pool.each());
            entry.set_bid(buffer);
            self.tail = self.tail.wrapping_add(1);
            self.there += 1;
        }
        // SAFETY: the address of the first entry.
        let tail = unsafe { BufRingEntry::tail(entries) };
        // SAFETY: mapped and aligned; from here on both sides use it as an atomic.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        // Release: pairs with the kernel's acquire load, so that it sees the entries before the
        // tail.
        tail.store(self.tail, Ordering::Release);
    }
}
