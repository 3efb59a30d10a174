//! FUSE over io_uring (Linux 6.14): requests of the kernel in memory that it shares with a thread.
//!
//! The kernel has a queue for each processor that the machine may have, and an entry of a queue
//! takes one request at a time. Here each entry has a ring of its own and belongs to one thread:
//!
//! ```text
//! register --> wait --a request is in the memory--> the thread serves it
//!                ^                                           |
//!                \--commit: its reply is in the memory-------/
//! ```
//!
//! One system call sends a reply and waits for the next request. The kernel takes the entry that
//! became free last, so that few threads stay warm, and others serve if one waits for a disk.
//!
//! The kernel uses the memory only while the thread is in that call: a ring of this kind works
//! nothing off at other times.

use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::enter::{Booked, Door, Enter};
use crate::mapping::Mapping;

const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;

/// Bytes of the header of a request and of its fields each, and of what both sides say about it.
const PART_BYTES: usize = 128;
const ABOUT_BYTES: usize = 32;

/// Offsets of the number of a request and of the length of its data, after the fields.
const COMMIT_AT: usize = 2 * PART_BYTES + 8;
const LENGTH_AT: usize = 2 * PART_BYTES + 16;

/// Bytes of memory before the data.
const BEFORE_DATA: usize = 4096;

/// Offset of the count of vectors in a request to a ring, which the library does not set.
const SQE_LENGTH_AT: usize = 24;

/// A queue that no machine has.
const NO_QUEUE: u16 = u16::MAX;

/// Where the memory of an entry is.
type Vectors = [libc::iovec; 2];

/// An entry of a queue, for the thread that made it.
pub struct Entry {
    // Closed before the memory is unmapped.
    uring: IoUring<squeue::Entry128, cqueue::Entry>,
    door: Door,
    /// The connection and the queue, once it is registered.
    place: Option<(Arc<OwnedFd>, u16)>,
    vectors: Box<Vectors>,
    state: State,
    memory: ManuallyDrop<Mapping>,
    data_bytes: usize,
    booked: Booked,
}

/// Where the entry is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// With this thread, and nothing is to be sent.
    Ours,
    /// With this thread. A request to the ring, with the reply, is sent by the next wait.
    ToSend,
    /// With the kernel.
    Kernels,
}

/// The parts of a request. Its reply takes their place.
#[derive(Debug)]
pub struct Parts<'a> {
    /// The header.
    pub header: &'a mut [u8],
    /// The fields of the kind of the request, and room after them.
    pub fields: &'a mut [u8],
    /// Memory for data. The request has the first bytes.
    pub data: &'a mut [u8],
    /// Number of those.
    pub length: usize,
}

impl Entry {
    /// Makes an entry with memory for this much data.
    ///
    /// # Errors
    /// If the kernel refuses a ring of this kind, or memory.
    pub fn new(data_bytes: usize) -> io::Result<Self> {
        let mut builder = IoUring::builder();
        builder.dontfork().setup_single_issuer().setup_defer_taskrun();
        let uring: IoUring<squeue::Entry128, cqueue::Entry> = builder.build(1)?;
        let memory = Mapping::private(BEFORE_DATA + data_bytes)?;
        let start = memory.start();
        let vector = |at: usize, bytes| libc::iovec {
            iov_base: start.wrapping_add(at).cast(),
            iov_len: bytes,
        };
        let vectors = [vector(0, 2 * PART_BYTES + ABOUT_BYTES), vector(BEFORE_DATA, data_bytes)];
        let mut door = Door::of(&uring);
        // Without it each call looks the descriptor up.
        door.register();
        let booked = match uring.params().is_feature_no_iowait() {
            true => Booked::Idle,
            false => Booked::WaitingForIo,
        };
        Ok(Self {
            uring,
            door,
            place: None,
            vectors: Box::new(vectors),
            state: State::Ours,
            memory: ManuallyDrop::new(memory),
            data_bytes,
            booked,
        })
    }

    /// Finds out whether this process may send requests to a ring of this kind. A filter of system
    /// calls or a security module may refuse them, although it permits the ring.
    ///
    /// # Errors
    /// That of the filter or of the module.
    pub fn check(&mut self) -> io::Result<()> {
        let Ok(device) = openat(CWD, c"/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        else {
            // The program that mounts may open it for this process.
            return Ok(());
        };
        self.place = Some((Arc::new(device), NO_QUEUE));
        self.push(REGISTER, 0)?;
        self.enter(0)?;
        let refused = self.completed();
        self.place = None;
        match refused {
            Some(Err(error)) if error.raw_os_error() == Some(libc::EACCES) => Err(error),
            // The kernel takes no request to a device without a connection.
            _ => Ok(()),
        }
    }

    /// Gives the entry to the kernel, for a queue of a connection. The kernel sends requests once
    /// each queue has an entry.
    ///
    /// # Errors
    /// If the kernel does not take it. It uses no rings for this connection then.
    pub fn register(&mut self, device: &Arc<OwnedFd>, queue: u16) -> io::Result<()> {
        self.place = Some((Arc::clone(device), queue));
        self.push(REGISTER, 0)?;
        self.enter(0)?;
        // An entry that is refused has a completion at once.
        self.completed().unwrap_or(Ok(()))
    }

    /// Has the kernel use no rings for a connection, although both sides have agreed on them: it
    /// does so after an entry that it refuses.
    pub fn decline(mut self, device: &Arc<OwnedFd>) {
        let refused = self.register(device, NO_QUEUE);
        debug_assert!(refused.is_err(), "no machine has this queue");
    }

    /// Sends the reply that was committed, and waits for the next request.
    ///
    /// # Errors
    /// Those of the kernel: the connection has ended, or the entry is lost.
    pub fn wait(&mut self) -> io::Result<()> {
        loop {
            self.enter(1)?;
            if let Some(completed) = self.completed() {
                return completed;
            }
        }
    }

    /// Returns the request that the kernel has put into the memory.
    pub fn parts(&mut self) -> Parts<'_> {
        let data_bytes = self.data_bytes;
        let (before, data) = self.bytes().split_at_mut(BEFORE_DATA);
        let length = u32::from_ne_bytes(before[LENGTH_AT..][..4].try_into().expect("4 bytes"));
        let (header, rest) = before.split_at_mut(PART_BYTES);
        let fields = &mut rest[..PART_BYTES];
        Parts { header, fields, data, length: data_bytes.min(length as usize) }
    }

    /// Commits the reply to the request: its header, and this much data.
    ///
    /// # Errors
    /// If the ring has no room, which does not happen: it has one request at a time.
    pub fn commit(&mut self, length: u32) -> io::Result<()> {
        let bytes = self.bytes();
        bytes[LENGTH_AT..][..4].copy_from_slice(&length.to_ne_bytes());
        let number = u64::from_ne_bytes(bytes[COMMIT_AT..][..8].try_into().expect("8 bytes"));
        self.push(COMMIT_AND_FETCH, number)
    }

    /// The memory, which is this thread's.
    fn bytes(&mut self) -> &mut [u8] {
        assert!(self.state == State::Ours, "the kernel does not have the entry");
        let (start, length) = (self.memory.start(), BEFORE_DATA + self.data_bytes);
        // SAFETY: the memory is mapped with this length and was zeroed; the kernel has no request
        // to this ring that uses it, and the entry is borrowed for as long as the slice.
        unsafe { std::slice::from_raw_parts_mut(start, length) }
    }

    /// Prepares a request to the ring. The next call of [`Entry::enter`] sends it.
    fn push(&mut self, command: u32, commit: u64) -> io::Result<()> {
        assert!(self.state == State::Ours, "one request at a time");
        let (device, queue) = self.place.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let mut about = [0; 80];
        about[8..16].copy_from_slice(&commit.to_ne_bytes());
        about[16..18].copy_from_slice(&queue.to_ne_bytes());
        let device = types::Fd(device.as_raw_fd());
        let vectors = std::ptr::from_ref(&*self.vectors).expose_provenance() as u64;
        let request = opcode::UringCmd80::new(device, command).cmd(about).addr(Some(vectors));
        let mut request = request.build();
        let at = std::ptr::from_mut(&mut request).cast::<u8>().wrapping_add(SQE_LENGTH_AT);
        let count = self.vectors.len() as u32;
        // SAFETY: the entry is the request as the kernel lays it out, of 128 bytes, and has a
        // number of 32 bits at this offset.
        unsafe { at.cast::<u32>().write(count) };
        // SAFETY: the request points to the vectors and, through them, to the memory. Both live
        // until the kernel has given the entry back, or for ever.
        unsafe { self.uring.submission().push(&request) }.map_err(io::Error::other)?;
        self.state = State::ToSend;
        Ok(())
    }

    /// Sends what is prepared, and waits for this many completions.
    fn enter(&mut self, want: u32) -> io::Result<()> {
        let (limit, within, booked) = (None, std::time::Duration::ZERO, self.booked);
        loop {
            let to_submit = u32::from(self.state == State::ToSend);
            if to_submit > 0 {
                // From here on the kernel may have it, also after an error.
                self.state = State::Kernels;
            }
            match self.door.enter(Enter { to_submit, want, within, limit, booked }) {
                Ok(_) => return Ok(()),
                Err(libc::EINTR) => {}
                Err(error) => return Err(io::Error::from_raw_os_error(error)),
            }
        }
    }

    /// Takes the entry back, if the kernel has given it: with a request, or an error.
    fn completed(&mut self) -> Option<io::Result<()>> {
        let result = self.uring.completion().next()?.result();
        self.state = State::Ours;
        Some(if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) })
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, state, .. } = self;
        formatter.debug_struct("Entry").field("place", place).field("state", state).finish()
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.door.unregister();
        // The kernel ends what is left in a closed ring some time later. The memory stays then.
        if self.state != State::Kernels {
            // SAFETY: it is dropped here alone.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_belongs_to_a_connection() {
        let Ok(mut entry) = Entry::new(8192) else {
            eprintln!("skipped: no ring of this kind");
            return;
        };
        entry.commit(0).unwrap_err();
        entry.check().unwrap();
        entry.commit(0).unwrap_err();
        let Ok(device) = openat(CWD, c"/dev/fuse", OFlags::RDWR, Mode::empty()) else {
            eprintln!("skipped: no /dev/fuse");
            return;
        };
        let device = Arc::new(device);
        entry.register(&device, 0).unwrap_err();
        let parts = entry.parts();
        assert_eq!((parts.header.len(), parts.fields.len()), (PART_BYTES, PART_BYTES));
        assert_eq!((parts.data.len(), parts.length), (8192, 0));
        parts.data.fill(1);
        entry.decline(&device);
    }
}
