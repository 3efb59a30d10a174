//! A job: one request as a thread makes it by a system call, with everything that must live until
//! the call has returned.
//!
//! Each operation is the system call that a ring would make. Its result is returned as it is: after
//! a short count or an interruption the request path asks again.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use forebay_block::{Bio, Class, Errno, Operation, Tag};
use rustix::fs::FallocateFlags;
use rustix::io::retry_on_intr;

use crate::arena::Arena;
use crate::direct::Mode;
use crate::file::{Kind, OpenFile};
use crate::lent::Lent;
use crate::vectors::Shape;

/// One request.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) tag: Tag,
    pub(crate) operation: Operation,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) class: Class,
    pub(crate) file: Arc<OpenFile>,
    /// Into the arena that the pool holds.
    pub(crate) shape: Shape,
}

/// Remains of a job.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) tag: Tag,
    pub(crate) result: Result<u64, Errno>,
    /// For the next use.
    pub(crate) shape: Shape,
}

impl Job {
    /// A request for a file, described in the shape of an earlier one.
    pub(crate) fn new(
        tag: Tag,
        request: &Bio,
        file: Arc<OpenFile>,
        mut shape: Shape,
        (arena, lent): (&Arena, &mut Lent),
    ) -> Self {
        let &Bio { operation, offset, length, class, .. } = request;
        shape.clear();
        if operation.moves_bytes() {
            shape.describe(arena, lent, request);
        }
        if operation == Operation::Read {
            shape.cut(file.readable(offset, length));
        }
        Self { tag, operation, offset, length, class, file, shape }
    }

    /// Does it. The file is let go of before anybody can hear of the end: who hears may close it.
    pub(crate) fn run(self) -> Ended {
        let result = self.serve().map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EIO)));
        self.end(result)
    }

    /// Ends it with a result that it has got in another way.
    pub(crate) fn end(self, result: Result<u64, Errno>) -> Ended {
        let Self { tag, shape, .. } = self;
        Ended { tag, result, shape }
    }

    fn serve(&self) -> io::Result<u64> {
        let Self { offset, length, .. } = *self;
        let file: &OpenFile = &self.file;
        match self.operation {
            Operation::Read => {
                return self.transfer(0).map_err(|error| {
                    let again = error.raw_os_error() == Some(libc::EIO) && file.ends_reads();
                    if again { io::Error::from_raw_os_error(libc::EAGAIN) } else { error }
                });
            }
            Operation::Write => return self.transfer(0),
            Operation::WriteFua => return self.transfer(libc::RWF_DSYNC),
            Operation::WriteBuffered => return self.write_buffered(),
            Operation::FlushData => retry_on_intr(|| rustix::fs::fdatasync(file))?,
            Operation::FlushAll => retry_on_intr(|| rustix::fs::fsync(file))?,
            Operation::FlushDirectory => file.sync_directory()?,
            Operation::Allocate => file.allocate(offset, length)?,
            Operation::Punch => file.punch(offset, length)?,
            Operation::WriteZeroes => {
                let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
                retry_on_intr(|| rustix::fs::fallocate(file, flags, offset, length))?;
            }
            Operation::Discard => file.discard(offset, length)?,
            Operation::SetLength => file.truncate(offset)?,
        }
        Ok(0)
    }

    /// Nothing else moves bytes of the file meanwhile.
    fn write_buffered(&self) -> io::Result<u64> {
        self.file.set_direct(Mode::Buffered)?;
        let written = self.transfer(0);
        // Left buffered, later requests would be slower, not wrong.
        self.file.set_direct(Mode::Direct).unwrap_or_else(|error| {
            tracing::error!(%error, "could not switch the file back to direct");
        });
        written
    }

    /// A read or write, of one piece or of several.
    fn transfer(&self, flags: libc::c_int) -> io::Result<u64> {
        let descriptor = self.file.as_fd().as_raw_fd();
        // A pipe has no offsets, and the ring does not mind.
        let offset = match self.file.kind() {
            Kind::Other => -1,
            Kind::Regular | Kind::Block => libc::off_t::try_from(self.offset)
                .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?,
        };
        let vectors: *const libc::iovec = self.shape.vectors().as_ptr().cast();
        let count = libc::c_int::try_from(self.shape.vectors().len()).expect("at most 1024");
        let moved = if self.operation == Operation::Read {
            // SAFETY: `count` vectors exist (an `IoVector` is an `iovec`), over frames of the
            // arena, which the thread holds, or lent memory, which is leaked rather than freed
            // before this has ended; their owner promised to leave them alone until then.
            unsafe { libc::preadv2(descriptor, vectors, count, offset, flags) }
        } else {
            // SAFETY: as above; and the source is not changed until this has ended.
            unsafe { libc::pwritev2(descriptor, vectors, count, offset, flags) }
        };
        u64::try_from(moved).map_err(|_| io::Error::last_os_error())
    }
}
