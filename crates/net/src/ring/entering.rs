//! The one call: it submits the staged requests, and may wait.

use std::mem;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::Duration;

use forebay_block::Errno;
use forebay_uring::enter::Enter;
use io_uring::opcode;
use io_uring::types::Fd;

use super::{Kind, NOBODY, SocketRing};

/// Attempts to submit while the kernel has no memory, a millisecond apart.
const TRIES: u32 = 1000;

/// Where the kernel puts the value of the waker's eventfd. Nothing reads it.
static UNREAD: AtomicU64 = AtomicU64::new(0);

impl SocketRing {
    /// Moves staged requests to the submission queue until it is full. Returns its length.
    fn fill(&mut self) -> u32 {
        let mut queue = self.setup.uring.submission();
        while !queue.is_full()
            && let Some(entry) = self.staged.pop_front()
        {
            // SAFETY: everything that the entry points to stays until its completion. The pieces of
            // a send are boxed in the entry of their connection, with the descriptor; both stay
            // while the send is in flight, and are leaked if it does not end. The kernel chooses
            // buffers itself. The waker's read points to a static.
            unsafe { queue.push(&entry) }.expect("it is not full");
        }
        u32::try_from(queue.len()).expect("the queue's size is 32 bits")
    }

    /// Binds the ring to the calling thread, with the first call.
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
                self.setup.door.register();
            }
        }
        Ok(())
    }

    /// Submits the staged requests, and waits up to `limit` for an arrival or a wake. May return
    /// early.
    pub(crate) fn enter(&mut self, limit: Option<Duration>) -> Result<(), Errno> {
        self.enable_here()?;
        let here = !self.closed.is_empty()
            || !self.completions.is_empty()
            || !self.setup.uring.completion().is_empty();
        if here || limit == Some(Duration::ZERO) {
            let to_submit = self.fill();
            let queue = self.setup.uring.submission();
            let quiet = to_submit == 0 && !queue.taskrun() && !queue.cq_overflow();
            drop(queue);
            return if quiet { Ok(()) } else { self.submit(0, None) };
        }
        if !self.waker.fall_asleep() {
            // A wake since the last look: the caller looks again.
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

    /// Submits the staged requests, and waits for `want` completions. One call is enough, unless
    /// there are more requests than the queue holds or the kernel was busy.
    pub(super) fn submit(&mut self, want: u32, limit: Option<Duration>) -> Result<(), Errno> {
        self.enable_here()?;
        // Waiting for sockets is idleness, not I/O.
        let booked = self.setup.idle_wait();
        let mut tries = 0;
        while tries < TRIES {
            let to_submit = self.fill();
            let all = self.staged.is_empty();
            let want = if all { want } else { 0 };
            let call = Enter { to_submit, want, within: Duration::ZERO, limit, booked };
            match self.setup.door.enter(call) {
                Ok(submitted) if submitted == to_submit as usize => {
                    if all {
                        return Ok(());
                    }
                }
                // One request was invalid, which its completion reports, or the kernel ran out of
                // memory: submit the rest again.
                Ok(_) => tries += 1,
                // The time limit or a signal. The kernel reports these only if it had nothing to
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

    /// Moves all completions out of the kernel's queue.
    pub(super) fn collect(&mut self) {
        self.completions.extend(self.setup.uring.completion());
    }
}
