//! The one costly call: `io_uring_enter`, with the flags this crate means, and a count of how often
//! it was made.
//!
//! Why not the wrappers of the crate below: they leave the ring's own work undone unless something
//! is waited for, cannot say that a wait is idleness, and forget a registered descriptor with the
//! next borrow. Every call here works off what has completed.
//!
//! The price of a registered descriptor: it counts for the thread that registered it alone, and
//! that thread keeps the ring until it unregisters or ends. So who registers must unregister, on
//! the same thread.

use std::os::fd::{AsRawFd, RawFd};
use std::ptr;
use std::time::Duration;

const ENTER_GETEVENTS: u32 = 1;
const ENTER_EXT_ARG: u32 = 1 << 3;
const ENTER_REGISTERED_RING: u32 = 1 << 4;
const ENTER_NO_IOWAIT: u32 = 1 << 7;

const REGISTER_RING_DESCRIPTORS: u32 = 20;
const UNREGISTER_RING_DESCRIPTORS: u32 = 21;

/// Stands for no limit beside a minimal time: the kernel takes a minimal time without a limit for
/// the limit itself.
const NO_LIMIT: Duration = Duration::from_secs(24 * 60 * 60);

/// Arguments of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Enter {
    /// Requests to take from the submission queue.
    pub to_submit: u32,
    /// Completions to wait for; with none there is no wait.
    pub want: u32,
    /// How long all of them are waited for; after that one is enough. Zero: as long as `limit`.
    /// Only where the kernel has it (6.12).
    pub within: Duration,
    /// How long to wait; `None`: without limit.
    pub limit: Option<Duration>,
    /// Accounting of the wait.
    pub booked: Booked,
}

/// Accounting of a wait in the kernel's figures of load and pressure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Booked {
    /// Waiting for I/O.
    WaitingForIo,
    /// Idleness. Only where the kernel has it (6.15).
    Idle,
}

/// Number of calls of `io_uring_enter`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Enters {
    /// All calls.
    pub all: u64,
    /// Calls that were allowed to wait.
    pub waits: u64,
}

/// Handle that enters a ring.
#[derive(Debug)]
pub(crate) struct Door {
    ring: RawFd,
    /// The index the kernel knows the ring by, for the thread that registered it.
    registered: Option<u32>,
    enters: Enters,
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

/// The argument that registers a ring's descriptor.
#[repr(C)]
struct RingDescriptor {
    index: u32,
    reserved: u32,
    descriptor: u64,
}

impl Door {
    /// The door of a ring, which lives as long as it is used.
    pub(crate) fn of(uring: &impl AsRawFd) -> Self {
        Self { ring: uring.as_raw_fd(), registered: None, enters: Enters::default() }
    }

    /// Returns the number of calls.
    #[must_use]
    pub(crate) fn enters(&self) -> Enters {
        self.enters
    }

    /// Registers the ring's descriptor for the calling thread. Returns whether the kernel did (5.18,
    /// and up to 16 rings for each thread).
    pub(crate) fn register(&mut self) -> bool {
        let mut argument = RingDescriptor {
            index: u32::MAX,
            reserved: 0,
            descriptor: u64::try_from(self.ring).expect("an open descriptor"),
        };
        let result = self.register_call(REGISTER_RING_DESCRIPTORS, &mut argument);
        // The kernel says how many it registered, and where.
        self.registered = (result == 1).then_some(argument.index);
        self.registered.is_some()
    }

    /// Unregisters the descriptor, on the thread that registered it.
    pub(crate) fn unregister(&mut self) {
        if let Some(index) = self.registered.take() {
            let mut argument = RingDescriptor { index, reserved: 0, descriptor: 0 };
            let result = self.register_call(UNREGISTER_RING_DESCRIPTORS, &mut argument);
            debug_assert_eq!(result, 1, "what was registered is unregistered");
        }
    }

    /// Goes back to the descriptor, on a thread that did not register it.
    pub(crate) fn forget(&mut self) {
        self.registered = None;
    }

    fn register_call(&self, operation: u32, argument: &mut RingDescriptor) -> libc::c_long {
        // SAFETY: both operations read and write one such argument during the call.
        unsafe {
            libc::syscall(
                libc::SYS_io_uring_register,
                self.ring,
                operation,
                ptr::from_mut(argument),
                1u32,
            )
        }
    }

    /// Enters once. Returns the number of requests that the kernel took.
    ///
    /// # Errors
    /// The error number.
    pub(crate) fn enter(&mut self, call: Enter) -> Result<usize, i32> {
        self.enters.all += 1;
        self.enters.waits += u64::from(call.want > 0);
        let minimal = !call.within.is_zero();
        let timespec = call.limit.or(minimal.then_some(NO_LIMIT)).map(|limit| libc::timespec {
            tv_sec: libc::time_t::try_from(limit.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: libc::c_long::from(limit.subsec_nanos().cast_signed()),
        });
        let timespec = timespec.as_ref().map_or(ptr::null(), ptr::from_ref);
        let argument = GetEvents {
            timespec: timespec.expose_provenance() as u64,
            min_wait_microseconds: u32::try_from(call.within.as_micros()).unwrap_or(u32::MAX),
            ..GetEvents::default()
        };
        let mut flags = ENTER_GETEVENTS | ENTER_EXT_ARG;
        if call.booked == Booked::Idle {
            flags |= ENTER_NO_IOWAIT;
        }
        let ring = match self.registered {
            Some(index) => {
                flags |= ENTER_REGISTERED_RING;
                index.cast_signed()
            }
            None => self.ring,
        };
        // SAFETY: the flags say that the argument is a `GetEvents`, which it is, with a time limit
        // that lives until the call returns or none. The submitter guarantees the memory that the
        // submitted requests point to.
        let result = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                ring,
                call.to_submit,
                call.want,
                flags,
                &raw const argument,
                size_of::<GetEvents>(),
            )
        };
        usize::try_from(result)
            .map_err(|_| std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }
}
