//! What a send's request points to: boxed, and known to the kernel alone until its completion is
//! here.

use std::io::IoSlice;
use std::ptr::{self, NonNull};

use io_uring::types::Fd;
use io_uring::{opcode, squeue};

use super::Flight;

/// The pieces, and the kernel's description of them.
struct Voyage {
    flight: Flight,
    vectors: Vec<libc::iovec>,
    header: libc::msghdr,
}

/// A send that is with the kernel. Not freed when dropped: only [`Departed::arrive`] knows that the
/// kernel is done.
#[derive(Debug)]
pub(super) struct Departed(NonNull<Voyage>);

// SAFETY: the box's only owner; what is in it belongs to no thread.
unsafe impl Send for Departed {}

impl Departed {
    pub(super) fn new(flight: Flight) -> Self {
        // SAFETY: a header of zeroes is one that says nothing.
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

    /// The request, without its word.
    pub(super) fn entry(&self, socket: Fd) -> squeue::Entry {
        // SAFETY: the box is alive, and is only read while a request points to it.
        let voyage = unsafe { self.0.as_ref() };
        if let [one] = voyage.vectors[..] {
            // One piece needs no header, and less of the kernel's time.
            let length = u32::try_from(one.iov_len).unwrap_or(u32::MAX);
            return opcode::Send::new(socket, one.iov_base.cast(), length)
                .flags(libc::MSG_NOSIGNAL)
                .build();
        }
        let flags = libc::MSG_NOSIGNAL.cast_unsigned();
        opcode::SendMsg::new(socket, ptr::from_ref(&voyage.header)).flags(flags).build()
    }

    /// Takes the pieces back, when the completion is here.
    pub(super) fn arrive(self) -> Flight {
        // SAFETY: the address came from a box, and `self` is its only owner and is consumed.
        let voyage = unsafe { Box::from_raw(self.0.as_ptr()) };
        voyage.flight
    }
}
