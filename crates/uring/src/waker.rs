//! Waker: any thread can wake the thread that waits in the ring.
//!
//! It does not write to the eventfd every time, because a system call per push would cost what
//! batching saves. A state of three values says whether the thread of the ring can be asleep; only
//! then is the eventfd written.
//!
//! ```text
//!            wake                      wake (writes the eventfd)
//!   Awake ---------> Rung <------------------------------ Asleep
//!     ^                | doorbell: does not wait             ^ |
//!     |----------------+                                     | | return
//!     |------------------------- doorbell: waits ------------+ v
//!     +--------------------------------------------------------+
//! ```
//!
//! The guarantee: items pushed before `wake` are seen by the ring's thread when it looks after its
//! next doorbell that may wait, for every change of the state is one read-modify-write. The rule
//! for the ring's owner: look at the queues after every doorbell, never only before. A late write
//! may wake it once for nothing.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::event::EventfdFlags;

const AWAKE: u8 = 0;
const RUNG: u8 = 1;
const ASLEEP: u8 = 2;

/// Handle that wakes the thread waiting in a ring. Cheap to clone and to call.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Bell>);

#[derive(Debug)]
struct Bell {
    state: AtomicU8,
    eventfd: OwnedFd,
}

impl Waker {
    /// Creates a waker.
    ///
    /// # Errors
    /// The error of the kernel if it grants no descriptor.
    pub fn new() -> io::Result<Self> {
        let eventfd = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Self(Arc::new(Bell { state: AtomicU8::new(AWAKE), eventfd })))
    }

    /// Makes the doorbell that waits now, or the next one that would wait, return.
    pub fn wake(&self) {
        // Release: earlier pushes are seen after. Acquire: pairs with `fall_asleep`.
        if self.0.state.swap(RUNG, Ordering::AcqRel) == ASLEEP {
            // Fails only when 2^64 - 1 wakes are unread, and then the bell is ringing.
            let _ = rustix::io::retry_on_intr(|| {
                rustix::io::write(&self.0.eventfd, &1u64.to_ne_bytes())
            });
        }
    }

    /// Returns the descriptor that the ring reads, and [`Waker::wake`] writes.
    #[must_use]
    pub fn eventfd(&self) -> RawFd {
        self.0.eventfd.as_raw_fd()
    }

    /// Returns whether the ring's thread may wait: nothing woke it since it last looked.
    #[must_use]
    pub fn fall_asleep(&self) -> bool {
        self.0.state.compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether somebody rang since the ring's thread fell asleep.
    pub(crate) fn is_rung(&self) -> bool {
        self.0.state.load(Ordering::Relaxed) == RUNG
    }

    /// Notes that the ring's thread is awake. It must look at its queues after this.
    pub fn awake(&self) {
        self.0.state.swap(AWAKE, Ordering::AcqRel);
    }
}
