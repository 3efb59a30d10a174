//! Receive buffers, and the ring of buffers from which the kernel takes one when bytes arrive.
//!
//! A buffer is either the kernel's or the server's. The server gets one with a completion and
//! returns it in the same pass, so the buffers never leave the thread.

use std::io;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Number of the ring of buffers, for the kernel.
pub(crate) const GROUP: u16 = 0;

/// Number of buffers, a power of two.
const COUNT: u16 = 256;

/// Bytes of a buffer. The server on epoll reads as many at once.
pub(crate) const EACH: usize = 16 << 10;

/// The entries of the ring come first in the mapping, on pages of their own.
const ENTRIES: usize = (COUNT as usize * size_of::<BufRingEntry>()).next_multiple_of(4096);

const LENGTH: usize = ENTRIES + COUNT as usize * EACH;

const _: () = assert!(COUNT.is_power_of_two() && COUNT <= 1 << 15, "a bound of the kernel");

#[derive(Debug)]
pub(crate) struct Buffers {
    memory: NonNull<u8>,
    tail: u16,
}

impl Buffers {
    /// Registers all buffers with a ring. They must outlive the ring's receives: if one may still
    /// be in flight, forget the value.
    pub(crate) fn register(uring: &IoUring) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses a free address.
        let memory =
            unsafe { mmap_anonymous(std::ptr::null_mut(), LENGTH, access, MapFlags::PRIVATE) }?;
        let memory = NonNull::new(memory.cast()).expect("a mapping is never at zero");
        let mut buffers = Self { memory, tail: 0 };
        (0..COUNT).for_each(|buffer| buffers.put(buffer));
        buffers.publish();
        let address = buffers.memory.as_ptr().expose_provenance() as u64;
        // SAFETY: the entries stay mapped until all receives have ended, as the caller ensures.
        unsafe { uring.submitter().register_buf_ring_with_flags(address, COUNT, GROUP, 0) }?;
        Ok(buffers)
    }

    /// Returns the received bytes at the start of a buffer that the kernel has filled.
    pub(crate) fn received(&self, buffer: u16, length: usize) -> &[u8] {
        assert!(length <= EACH, "{length} bytes in a buffer");
        // SAFETY: the bytes are in the mapping, which was zeroed at the start. The kernel uses the
        // buffer again only after `put` and `publish`, which need `self` exclusively.
        unsafe { slice::from_raw_parts(self.start(buffer), length) }
    }

    /// Returns a buffer to the ring. The kernel sees it after [`publish`](Self::publish).
    pub(crate) fn put(&mut self, buffer: u16) {
        let at = usize::from(self.tail & (COUNT - 1));
        let address = self.start(buffer).expose_provenance() as u64;
        // SAFETY: the mapping begins with `COUNT` entries.
        let entry = unsafe { self.entries().add(at) };
        // SAFETY: mapped, aligned, and valid even if zero. The kernel does not read entries behind
        // the tail. In the first entry it reads the tail, which these setters leave.
        let entry = unsafe { &mut *entry };
        entry.set_addr(address);
        entry.set_len(EACH as u32);
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
    }

    /// Gives the returned buffers to the kernel.
    pub(crate) fn publish(&mut self) {
        // SAFETY: this is the address of the first entry.
        let tail = unsafe { BufRingEntry::tail(self.entries()) };
        // SAFETY: mapped and aligned; both sides use it as an atomic.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        // Release: pairs with the kernel's acquire load, which then sees the entries.
        tail.store(self.tail, Ordering::Release);
    }

    fn start(&self, buffer: u16) -> *mut u8 {
        assert!(buffer < COUNT, "buffer {buffer} of {COUNT}");
        self.memory.as_ptr().wrapping_add(ENTRIES + usize::from(buffer) * EACH)
    }

    fn entries(&self) -> *mut BufRingEntry {
        self.memory.as_ptr().cast()
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and no receive is in flight.
        let unmapped = unsafe { munmap(self.memory.as_ptr().cast(), LENGTH) };
        debug_assert!(unmapped.is_ok());
    }
}
