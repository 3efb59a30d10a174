//! The one costly call: `io_uring_enter`, with the flags this crate means.
//!
//! Why not the wrappers of the crate below: they leave the ring's own work undone unless something is waited for,
//! and cannot say that a wait is idleness. Every call here works off what has completed.

use std::ptr;
use std::time::Duration;

use io_uring::IoUring;

const ENTER_GETEVENTS: u32 = 1;
const ENTER_EXT_ARG: u32 = 1 << 3;
const ENTER_NO_IOWAIT: u32 = 1 << 7;

/// What one call does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Enter {
    /// Requests to take from the submission queue.
    pub(crate) to_submit: u32,
    /// Completions to wait for; with none there is no wait.
    pub(crate) want: u32,
    /// How long to wait; `None`: without limit.
    pub(crate) limit: Option<Duration>,
    /// What the wait counts as.
    pub(crate) booked: Booked,
}

/// What a wait counts as in the machine's figures of load and pressure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Booked {
    /// Waiting for I/O.
    WaitingForIo,
    /// Idleness. Only where the kernel has it (6.15).
    Idle,
}

/// The argument of a call that waits with a time limit.
#[repr(C)]
#[derive(Default)]
struct GetEvents {
    sigmask: u64,
    sigmask_size: u32,
    min_wait_microseconds: u32,
    timespec: u64,
}

/// Enters once; gives how many requests were taken, or the error number.
pub(crate) fn once(uring: &IoUring, call: Enter) -> Result<usize, i32> {
    let timespec = call.limit.map(|limit| libc::timespec {
        tv_sec: libc::time_t::try_from(limit.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(limit.subsec_nanos().cast_signed()),
    });
    let timespec = timespec.as_ref().map_or(ptr::null(), ptr::from_ref);
    let argument = GetEvents { timespec: timespec.expose_provenance() as u64, ..GetEvents::default() };
    let mut flags = ENTER_GETEVENTS | ENTER_EXT_ARG;
    if call.booked == Booked::Idle {
        flags |= ENTER_NO_IOWAIT;
    }
    // SAFETY: the flags say that the argument is a `GetEvents`, which it is, with a time limit that lives until the
    // call returns or none.
    let result = unsafe { uring.submitter().enter(call.to_submit, call.want, flags, Some(&argument)) };
    result.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))
}
