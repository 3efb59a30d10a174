//! The buffers that are received into: a fixed number of one size, made at the start.
//!
//! Who gets received bytes holds the buffer they came in, and dropping that gives it back, from any
//! thread. The lock for this is held to push one number and to take all of them, once for each
//! pass.

use std::fmt;
use std::io;
use std::ops::Deref;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::mm::{Advice, ProtFlags};

use crate::mapping::Mapping;
use crate::waker::Waker;

/// The buffers. A number is either with the one that receives, or out: in one [`Received`].
#[derive(Debug)]
pub(super) struct Pool {
    memory: Mapping,
    count: u16,
    each: u32,
    out: AtomicU32,
    back: Mutex<Vec<u16>>,
    /// Whether somebody sleeps who needs a buffer, and what wakes it.
    awaited: AtomicBool,
    waker: OnceLock<Waker>,
}

impl Pool {
    pub(super) fn new(count: u16, each: u32) -> io::Result<Arc<Self>> {
        let memory = Mapping::anonymous(
            usize::from(count) * each as usize,
            ProtFlags::READ | ProtFlags::WRITE,
        )?;
        memory.advise(Advice::LinuxDontFork)?;
        memory.advise(Advice::LinuxDontDump)?;
        Ok(Arc::new(Self {
            memory,
            count,
            each,
            out: AtomicU32::new(0),
            back: Mutex::default(),
            awaited: AtomicBool::new(false),
            waker: OnceLock::new(),
        }))
    }

    pub(super) fn count(&self) -> u16 {
        self.count
    }

    pub(super) fn each(&self) -> u32 {
        self.each
    }

    /// Where a buffer begins; it is `each` bytes long.
    pub(super) fn start(&self, buffer: u16) -> NonNull<u8> {
        assert!(buffer < self.count, "buffer {buffer} of {}", self.count);
        let start = self.memory.start().wrapping_add(usize::from(buffer) * self.each as usize);
        NonNull::new(start).expect("inside a mapping")
    }

    /// Buffers that are out.
    pub(super) fn out(&self) -> u32 {
        self.out.load(Ordering::Relaxed)
    }

    /// Hands a buffer out, with so many bytes in it.
    ///
    /// # Safety
    /// Until it comes back nobody else uses the buffer.
    pub(super) unsafe fn hand_out(self: &Arc<Self>, buffer: u16, length: usize) -> Received {
        assert!(
            buffer < self.count && length <= self.each as usize,
            "{length} bytes in buffer {buffer}"
        );
        self.out.fetch_add(1, Ordering::Relaxed);
        Received { pool: Arc::clone(self), buffer, length }
    }

    /// What is woken when a buffer comes back that is awaited. Said once.
    pub(super) fn set_waker(&self, waker: Waker) {
        self.waker.set(waker).expect("said once");
    }

    /// Wakes when the next buffer comes back. Who says so looks for those that have come back after
    /// this, and then sleeps.
    pub(super) fn await_one(&self) {
        // The lock that is taken to look, and to give back, orders this before what is given back
        // after the look.
        self.awaited.store(true, Ordering::Relaxed);
    }

    /// Takes the numbers that came back.
    pub(super) fn take_back(&self, into: &mut Vec<u16>) {
        into.append(&mut self.returned());
    }

    fn returned(&self) -> MutexGuard<'_, Vec<u16>> {
        // Nothing between lock and unlock panics.
        self.back.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Received bytes in their receive buffer.
///
/// Drop it as soon as the bytes are processed: nothing is received while all buffers are in use. In
/// a forked child it cannot be read.
pub struct Received {
    pool: Arc<Pool>,
    buffer: u16,
    length: usize,
}

impl Deref for Received {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes lie in the pool's mapping, which is held and was zeroed at the start;
        // nobody else uses the buffer, as was promised when it was handed out.
        unsafe { slice::from_raw_parts(self.pool.start(self.buffer).as_ptr(), self.length) }
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        self.pool.out.fetch_sub(1, Ordering::Relaxed);
        self.pool.returned().push(self.buffer);
        // A load first: what nobody awaits costs no exchange.
        if self.pool.awaited.load(Ordering::Relaxed)
            && self.pool.awaited.swap(false, Ordering::Relaxed)
            && let Some(waker) = self.pool.waker.get()
        {
            waker.wake();
        }
    }
}

impl fmt::Debug for Received {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Received").field("length", &self.length).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_outlives_its_pool_and_comes_back_once() {
        let pool = Pool::new(4, 64).unwrap();
        // SAFETY: nobody else uses the buffer.
        unsafe { pool.start(3).as_ptr().write_bytes(7, 64) };
        // SAFETY: as above.
        let received = unsafe { pool.hand_out(3, 10) };
        assert_eq!((pool.out(), &received[..]), (1, &[7; 10][..]));
        let other = std::thread::spawn(move || drop(received));
        other.join().unwrap();
        let mut back = Vec::new();
        pool.take_back(&mut back);
        assert_eq!((pool.out(), back), (0, vec![3]));
        // SAFETY: as above.
        let received = unsafe { pool.hand_out(3, 10) };
        drop(pool);
        assert_eq!(received[9], 7);
    }
}
