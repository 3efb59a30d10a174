//! Receive buffers: a fixed number of one size, made at the start.
//!
//! Received bytes stay in their buffer. Dropping them returns the buffer, on any thread. The lock
//! for this is held to push one number, and once per pass to take all of them.

use std::fmt;
use std::io;
use std::ops::Deref;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use forebay_uring::Waker;
use forebay_uring::mapping::Mapping;

/// The buffers. Each is either free for receiving or in one [`Received`].
#[derive(Debug)]
pub(crate) struct Pool {
    memory: Mapping,
    pub(crate) count: u16,
    /// Bytes of a buffer.
    pub(crate) each: u32,
    out: AtomicU32,
    back: Mutex<Vec<u16>>,
    /// Whether the polling thread sleeps and needs a buffer.
    awaited: AtomicBool,
    waker: OnceLock<Waker>,
}

impl Pool {
    pub(crate) fn new(count: u16, each: u32) -> io::Result<Arc<Self>> {
        let memory = Mapping::private(usize::from(count) * each as usize)?;
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

    /// Address of a buffer of `each` bytes.
    pub(crate) fn start(&self, buffer: u16) -> NonNull<u8> {
        assert!(buffer < self.count, "buffer {buffer} of {}", self.count);
        let start = self.memory.start().wrapping_add(usize::from(buffer) * self.each as usize);
        NonNull::new(start).expect("inside a mapping")
    }

    /// Number of buffers that hold received bytes.
    pub(crate) fn out(&self) -> u32 {
        self.out.load(Ordering::Relaxed)
    }

    /// Returns the received bytes at the start of a buffer.
    ///
    /// # Safety
    /// Nothing else uses the buffer until it is returned.
    pub(crate) unsafe fn hand_out(self: &Arc<Self>, buffer: u16, length: usize) -> Received {
        assert!(
            buffer < self.count && length <= self.each as usize,
            "{length} bytes in buffer {buffer}"
        );
        self.out.fetch_add(1, Ordering::Relaxed);
        Received { pool: Arc::clone(self), buffer, length }
    }

    /// Sets the waker for an awaited buffer, once.
    pub(crate) fn set_waker(&self, waker: Waker) {
        self.waker.set(waker).expect("set once");
    }

    /// Asks for a wake when the next buffer is returned. After this call the polling thread looks
    /// for returned buffers once more, and then sleeps.
    pub(crate) fn await_one(&self) {
        // The lock is taken to look and to return a buffer. It orders this store before a return
        // that comes after the look.
        self.awaited.store(true, Ordering::Relaxed);
    }

    /// Appends the numbers of the returned buffers.
    pub(crate) fn take_back(&self, into: &mut Vec<u16>) {
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
        // SAFETY: the bytes are in the pool's mapping, which `self` holds and which was zeroed at
        // the start. Nothing else uses the buffer, as the caller of `hand_out` promised.
        unsafe { slice::from_raw_parts(self.pool.start(self.buffer).as_ptr(), self.length) }
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        self.pool.out.fetch_sub(1, Ordering::Relaxed);
        self.pool.returned().push(self.buffer);
        // A load first, so that a buffer that is not awaited costs no exchange.
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
        // SAFETY: nothing else uses the buffer.
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
