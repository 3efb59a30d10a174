//! Polling: whether completions of a file's reads and writes can be polled for.
//!
//! A device with queues for polling sends no interrupts for requests in them. On other devices old
//! kernels ignore the wish, and newer ones fail each request. So the device's setting is read
//! first, and then one polled read shows what the kernel and the file system do.

use std::io;
use std::mem;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use io_uring::opcode;
use io_uring::types::Fd;

use crate::aligned::AlignedMemory;
use crate::direct::Direct;
use crate::file::{Kind, OpenFile};
use crate::probe;
use crate::ring::polled::Polled;

/// How long the device may take for the first polled read.
const PATIENCE: Duration = Duration::from_secs(5);

/// Attempts of the first polled read. It is refused while another handle writes the end of the
/// file, because the descriptor is buffered then.
const TRIES: u32 = 4;

/// Bytes of a request that each device takes.
const FEW_BYTES: u64 = 4096;

impl OpenFile {
    /// Makes rings poll for completions of this file's reads and writes, from the next request on.
    /// Reads the first block of the file, and blocks meanwhile.
    ///
    /// # Errors
    /// The reason why that is not possible: the file is not direct, its device has no queue for
    /// polling, or the kernel refuses.
    pub fn poll(&self) -> Result<(), String> {
        if self.is_polled() {
            return Ok(());
        }
        if let Direct::Refused(reason) = self.direct() {
            return Err(format!("it is not open for direct I/O: {reason}"));
        }
        let status = rustix::fs::fstat(self).map_err(|error| error.to_string())?;
        let number = if self.kind() == Kind::Block { status.st_rdev } else { status.st_dev };
        let device = probe::device(number).ok_or("it is on no block device of its own")?;
        if device.polls() != Some(true) {
            let queue = device.queue.as_deref().unwrap_or(device.name.as_ref());
            let setting = queue.join("queue/io_poll");
            return Err(format!(
                "its device has no queue for polling: {} is not 1",
                setting.display()
            ));
        }
        let mut tried = self.read_polled();
        for _ in 1..TRIES {
            if !matches!(&tried, Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP)) {
                break;
            }
            thread::sleep(Duration::from_millis(1));
            tried = self.read_polled();
        }
        tried.map_err(|error| format!("the kernel refuses a polled read of it: {error}"))?;
        self.polled.store(device.most_bytes().unwrap_or(0).max(FEW_BYTES), Ordering::Relaxed);
        Ok(())
    }

    /// Returns whether completions of its reads and writes are polled for.
    #[must_use]
    pub fn is_polled(&self) -> bool {
        self.most_polled() > 0
    }

    /// Returns the most bytes of a request that is polled for.
    pub(crate) fn most_polled(&self) -> u64 {
        self.polled.load(Ordering::Relaxed)
    }

    /// Ends polling, from the next request on.
    pub(crate) fn stop_polling(&self, reason: &str) {
        if self.polled.swap(0, Ordering::Relaxed) > 0 {
            tracing::warn!(reason, "completions of a direct file are no longer polled for");
        }
    }

    fn read_polled(&self) -> io::Result<()> {
        let mut ring = Polled::new().map_err(io::Error::other)?;
        let memory = AlignedMemory::new(self.alignment().offset as usize);
        let (file, length) = (Fd(self.as_fd().as_raw_fd()), self.alignment().offset);
        let read = opcode::Read::new(file, memory.start().as_ptr(), length).build();
        // SAFETY: the descriptor is open until the kernel has the request. The memory is leaked
        // unless the request has ended.
        unsafe { ring.push(&read) };
        let memory = mem::ManuallyDrop::new(memory);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let polled = ring.poll();
            if let Some(entry) = ring.next() {
                drop(mem::ManuallyDrop::into_inner(memory));
                return match entry.result() {
                    0.. => Ok(()),
                    code => Err(io::Error::from_raw_os_error(-code)),
                };
            }
            polled.map_err(|errno| io::Error::from_raw_os_error(errno.0))?;
            if Instant::now() > deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            thread::yield_now();
        }
    }
}
