//! The one call: what is staged goes to the kernel, and something is waited for.

use std::mem;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::Duration;

use forebay_block::Errno;
use io_uring::opcode;
use io_uring::types::Fd;

use super::{Kind, NOBODY, SocketRing};
use crate::enter::{Booked, Enter};

/// How often a submission that the kernel has no memory for is tried again, a millisecond apart.
const TRIES: u32 = 1000;

/// What the kernel reads from the waker's eventfd goes here and is never looked at.
static UNREAD: AtomicU64 = AtomicU64::new(0);

impl SocketRing {
    /// Moves what is staged to the submission queue, as far as it goes; tells how much is in it.
    fn fill(&mut self) -> u32 {
        let mut queue = self.setup.uring.submission();
        while !queue.is_full()
            && let Some(entry) = self.staged.pop_front()
        {
            // SAFETY: what the entry points to stays until its completion is here: a send's pieces
            // and a connect's address are boxed in their connection's entry, which stays while one
            // is under way (and is leaked if need be), the descriptors beside them; buffers are the
            // kernel's own choice. The waker's read points to a static.
            unsafe { queue.push(&entry) }.expect("it is not full");
        }
        u32::try_from(queue.len()).expect("the queue's size is 32 bits")
    }

    /// From the first call on the ring belongs to the thread that makes it.
    fn enable_here(&mut self) -> Result<(), Errno> {
        let here = thread::current().id();
        match self.thread {
            Some(thread) => {
                assert_eq!(thread, here, "sockets belong to the thread that polled first");
            }
            None => {
                let enabled = self.setup.uring.submitter().register_enable_rings();
                enabled.map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EIO)))?;
                self.thread = Some(here);
                self.door.register();
            }
        }
        Ok(())
    }

    pub(in crate::net) fn enter(&mut self, limit: Option<Duration>) -> Result<(), Errno> {
        self.enable_here()?;
        let here = !self.closed.is_empty()
            || !self.forgotten.is_empty()
            || !self.completions.is_empty()
            || !self.setup.uring.completion().is_empty();
        if here || limit == Some(Duration::ZERO) {
            let to_submit = self.fill();
            let queue = self.setup.uring.submission();
            let quiet = to_submit == 0 && !queue.taskrun() && !queue.cq_overflow();
            drop(queue);
            // Below 5.19 the queue does not tell of work put off; rings of such kernels are not
            // used here.
            return if quiet { Ok(()) } else { self.submit(0, None) };
        }
        if !self.waker.fall_asleep() {
            // Somebody rang since the last look: the caller looks again.
            self.waker.awake();
            return self.submit(0, None);
        }
        if !mem::replace(&mut self.wake_armed, true) {
            let length = u32::try_from(size_of::<u64>()).expect("eight");
            let read =
                opcode::Read::new(Fd(self.waker.eventfd()), UNREAD.as_ptr().cast(), length).build();
            self.staged.push_back(read.user_data(Kind::Wake.word(NOBODY)));
        }
        let entered = self.submit(1, limit);
        self.waker.awake();
        entered
    }

    /// Submits what is staged, and waits for so many completions; in one call unless there is more
    /// than the queue holds, or the kernel was busy.
    pub(super) fn submit(&mut self, want: u32, limit: Option<Duration>) -> Result<(), Errno> {
        self.enable_here()?;
        // Sockets are waited for without end: that is idleness, not I/O.
        let booked = if self.setup.has.no_iowait { Booked::Idle } else { Booked::WaitingForIo };
        let mut tries = 0;
        while tries < TRIES {
            let to_submit = self.fill();
            let all = self.staged.is_empty();
            let want = if all { want } else { 0 };
            match self.door.enter(Enter { to_submit, want, within: Duration::ZERO, limit, booked })
            {
                Ok(submitted) if submitted == to_submit as usize => {
                    if all {
                        return Ok(());
                    }
                }
                // One was bad (its completion says so), or the kernel ran out of memory on the way:
                // the rest again.
                Ok(_) => tries += 1,
                // Time ran out, or a signal came. The kernel says so only where it had nothing to
                // submit.
                Err(libc::ETIME | libc::EINTR) => return Ok(()),
                // The kernel keeps completions that found no place: make some.
                Err(libc::EBUSY) => {
                    tries += 1;
                    self.collect();
                }
                Err(libc::EAGAIN) => {
                    tries += 1;
                    self.collect();
                    thread::sleep(Duration::from_millis(1));
                }
                Err(code) => return Err(Errno(code)),
            }
        }
        Err(Errno(libc::EAGAIN))
    }

    /// Takes all that has completed off the kernel's queue.
    pub(super) fn collect(&mut self) {
        self.completions.extend(self.setup.uring.completion());
    }
}
