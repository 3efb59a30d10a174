//! The memory of a send: boxed, and untouched by this process until the completion.

use std::io::IoSlice;
use std::ptr::{self, NonNull};

use io_uring::types::Fd;
use io_uring::{opcode, squeue};

use crate::outgoing::Flight;

/// The pieces, and their description for the kernel.
struct Voyage {
    flight: Flight,
    vectors: Vec<libc::iovec>,
    header: libc::msghdr,
}

/// A send that the kernel has. A drop leaks it: only [`Departed::arrive`] is called after the
/// kernel's last access.
#[derive(Debug)]
pub(super) struct Departed(NonNull<Voyage>);

// SAFETY: this is the only owner of the box, and its content belongs to no thread.
unsafe impl Send for Departed {}

impl Departed {
    pub(super) fn new(flight: Flight) -> Self {
        // SAFETY: a header of zeroes is valid and empty.
        let header = unsafe { std::mem::zeroed() };
        let mut voyage = Box::new(Voyage { flight, vectors: Vec::new(), header });
        let vector = |slice: IoSlice<'_>| libc::iovec {
            iov_base: slice.as_ptr().cast_mut().cast(),
            iov_len: slice.len(),
        };
        voyage.vectors = voyage.flight.slices().map(vector).collect();
        voyage.header.msg_iov = voyage.vectors.as_mut_ptr();
        voyage.header.msg_iovlen = voyage.vectors.len();
        Self(NonNull::new(Box::into_raw(voyage)).expect("a box's address is never zero"))
    }

    /// Returns the request, without its word.
    pub(super) fn entry(&self, socket: Fd) -> squeue::Entry {
        // SAFETY: the box is alive, and only read while a request points to it.
        let voyage = unsafe { self.0.as_ref() };
        if let [one] = voyage.vectors[..] {
            // A single piece needs no header, which saves the kernel time.
            let length = u32::try_from(one.iov_len).unwrap_or(u32::MAX);
            return opcode::Send::new(socket, one.iov_base.cast(), length)
                .flags(libc::MSG_NOSIGNAL)
                .build();
        }
        let flags = libc::MSG_NOSIGNAL.cast_unsigned();
        opcode::SendMsg::new(socket, ptr::from_ref(&voyage.header)).flags(flags).build()
    }

    /// Returns the pieces after the completion.
    pub(super) fn arrive(self) -> Flight {
        // SAFETY: the address came from a box, and `self` is its only owner and is consumed.
        let voyage = unsafe { Box::from_raw(self.0.as_ptr()) };
        voyage.flight
    }
}
