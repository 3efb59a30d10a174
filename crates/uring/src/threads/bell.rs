//! The bell of a thread pool: rings when as many requests have ended as the owner waits for.
//!
//! Why not the [`Waker`] for both: a doorbell that gathers a batch sleeps on when one more has
//! ended, and returns when somebody woke it; it must know which it was. Why a count: a bell for
//! each end of a batch of thirty-two would wake the owner thirty-two times.
//!
//! ```text
//! thread: push the end; missing - 1 -> 0? write the eventfd
//! owner:  missing = n; look again; sleep on the bell and the waker; missing = 0
//! ```
//!
//! The guarantee: an end that was pushed after the owner looked, having set `missing`, is counted.
//! One pushed before may be counted too, so that it rings early: a wake too many, never one too
//! few.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};

use crate::waker::Waker;

/// Why a sleep has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rung {
    /// Somebody called the waker.
    BySomebody,
    /// Enough has ended, the time is over, or nothing in particular: look.
    ByTheWay,
}

#[derive(Debug)]
pub(super) struct Bell {
    /// Ends until the bell rings; nothing or less: nobody waits.
    missing: AtomicI64,
    eventfd: OwnedFd,
}

impl Bell {
    pub(super) fn new() -> io::Result<Self> {
        let eventfd = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { missing: AtomicI64::new(0), eventfd })
    }

    /// Rings when `missing` more have ended; never for zero. The owner looks for ended requests
    /// after this.
    pub(super) fn expect(&self, missing: usize) {
        // An exchange, for its acquire half: pairs with the release of `count`, so what was counted
        // on the old number is seen by the look that follows.
        self.missing.swap(i64::try_from(missing).unwrap_or(i64::MAX), Ordering::AcqRel);
    }

    /// One has ended, and was pushed.
    pub(super) fn count(&self) {
        // Release: the push goes before. Wraps after 2^63 ends that nobody waited for.
        if self.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
            // Fails only when 2^64 - 1 are unread, and then it rings.
            let _ =
                rustix::io::retry_on_intr(|| rustix::io::write(&self.eventfd, &1u64.to_ne_bytes()));
        }
    }

    /// Sleeps until it rings, until the waker does, or until the deadline; a signal ends it too.
    pub(super) fn wait(&self, waker: &Waker, deadline: Option<Instant>) -> Rung {
        // SAFETY: the waker is borrowed, and keeps its descriptor open.
        let woken = unsafe { BorrowedFd::borrow_raw(waker.eventfd()) };
        let mut descriptors = [
            PollFd::from_borrowed_fd(woken, PollFlags::IN),
            PollFd::from_borrowed_fd(self.eventfd.as_fd(), PollFlags::IN),
        ];
        let left = deadline.map(|deadline| {
            let left = deadline.saturating_duration_since(Instant::now());
            Timespec::try_from(left).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 })
        });
        // The result is in the descriptors; after a failure (interrupted, or no memory) the caller
        // looks again.
        if rustix::event::poll(&mut descriptors, left.as_ref()).is_err() {
            return Rung::ByTheWay;
        }
        let [by_somebody, by_count] =
            descriptors.map(|descriptor| descriptor.revents().contains(PollFlags::IN));
        // Both are read by this thread alone, so a read of one that was seen to ring does not
        // block.
        if by_count {
            read(self.eventfd.as_fd());
        }
        if by_somebody {
            read(woken);
            return Rung::BySomebody;
        }
        Rung::ByTheWay
    }
}

/// Makes an eventfd silent.
fn read(eventfd: BorrowedFd<'_>) {
    // Fails only where it was silent.
    let _ = rustix::io::retry_on_intr(|| rustix::io::read(eventfd, &mut [0; 8]));
}
