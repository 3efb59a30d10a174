//! Several writes at once, for a caller that waits for all of them.
//!
//! One after the other, each scattered write costs a latency of the device. A ring of the caller's
//! thread submits them together and waits once. Nothing is in flight between two uses.

use std::fmt;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd};
use std::thread::{self, ThreadId};
use std::time::Duration;

use forebay_block::Errno;
use io_uring::types::Fd;
use io_uring::{IoUring, opcode};

use crate::alive::Alive;
use crate::fork::Home;
use crate::job::Job;
use crate::setup::Level;

/// Ring for the writes of one thread.
pub(crate) struct Burst {
    /// Dropped by hand, because a forked child must not.
    uring: ManuallyDrop<IoUring>,
    home: Home,
    thread: ThreadId,
}

impl Burst {
    /// Creates a ring of this thread for up to `entries` writes at once. It holds the end of a pipe
    /// until the last of them has ended. `None` if the kernel does not grant it.
    pub(crate) fn new(entries: u32, alive: Option<&Alive>) -> Option<Self> {
        let build = |level: Level| {
            let mut builder = IoUring::builder();
            builder.dontfork().setup_clamp();
            if level == Level::Deferred {
                builder.setup_single_issuer().setup_defer_taskrun();
            }
            builder.build(entries)
        };
        let uring = build(Level::Deferred).or_else(|_| build(Level::Plain)).ok()?;
        let thread = thread::current().id();
        let burst = Self { uring: ManuallyDrop::new(uring), home: Home::here(), thread };
        if let Some(alive) = alive {
            burst.uring.submitter().register_files(&[alive.as_fd().as_raw_fd()]).ok()?;
        }
        Some(burst)
    }

    /// Returns whether the ring belongs to the calling thread.
    pub(crate) fn is_of_this_thread(&self) -> bool {
        self.thread == thread::current().id()
    }

    /// Makes writes at once and puts the end of each to `ends`, in their order. `None` is put for
    /// a write that the kernel did not take; the ring is of no use after that.
    pub(crate) fn write<'a>(
        &mut self,
        jobs: impl ExactSizeIterator<Item = &'a Job>,
        ends: &mut Vec<Option<Result<u64, Errno>>>,
    ) {
        let count = jobs.len();
        ends.clear();
        ends.resize(count, None);
        for (number, job) in (0..).zip(jobs) {
            let (file, vectors) = (Fd(job.file.as_fd().as_raw_fd()), job.shape.vectors());
            let pieces = u32::try_from(vectors.len()).expect("at most 1024");
            let write = opcode::Writev::new(file, vectors.as_ptr().cast(), pieces);
            let entry = write.offset(job.offset).build().user_data(number);
            // SAFETY: the vectors and the file stay with the job, and the frames with their arena,
            // until this function has seen the end of the write; it does not return before.
            let pushed = unsafe { self.uring.submission().push(&entry) };
            pushed.expect("as many entries as the device takes requests");
        }
        let mut ended = 0;
        while ended < count {
            let entered = self.uring.submit_and_wait(count - ended);
            let mut came = 0;
            for completion in self.uring.completion() {
                let result = u32::try_from(completion.result()).map(u64::from);
                let result = result.map_err(|_| Errno(-completion.result()));
                ends[completion.user_data() as usize] = Some(result);
                came += 1;
            }
            ended += came;
            let Err(error) = entered else { continue };
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                // No memory for more at the moment, or an error that is not known.
                code => {
                    let is_lasting = !matches!(code, Some(libc::EAGAIN | libc::EBUSY));
                    if is_lasting && ended + self.uring.submission().len() == count {
                        return;
                    }
                    if came == 0 {
                        thread::sleep(Duration::from_millis(1));
                    }
                }
            }
        }
    }
}

impl fmt::Debug for Burst {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Burst").field("thread", &self.thread).finish_non_exhaustive()
    }
}

impl Drop for Burst {
    fn drop(&mut self) {
        if self.home.is_here() {
            // SAFETY: nothing uses the ring after its drop.
            unsafe { ManuallyDrop::drop(&mut self.uring) };
        }
    }
}
