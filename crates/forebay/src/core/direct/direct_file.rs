//! Handle for direct I/O.

use std::future::poll_fn;
use std::sync::Arc;

use forebay_block::limits::PAGE;
use forebay_cache::limits::MAX_OFFSET;

use crate::core::answer::Undelivered;
use crate::core::context::senders::Message;
use crate::core::direct::buffer::DirectBuffer;
use crate::core::direct::direct_inode::{DirectInode, Handle};
use crate::core::direct::operation::{Bytes, Operation, Verb};
use crate::core::direct::shape::Span;
use crate::core::direct::transfer::{Aside, Asked, Copying, Submitted, Transfer};
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::file::check_device_end;
use crate::core::limits::DIRECT_BYTES;
use crate::core::open::open_options::OpenOptions;
use crate::core::shared::Shared;
use crate::core::stats::Counters;
use crate::core::table::Last;
use crate::platform::{AlignedMemory, Memory};

/// Handle of a file for direct I/O: reads and writes go from the caller's buffer straight to the
/// device, past the cache.
///
/// [`Engine::open_direct`](crate::Engine::open_direct) opens it. A read, write, sync, `set_len` or
/// `close` submits an operation and returns at once: `wait()` blocks until it has ended, `.await`
/// waits in a task. A read or write takes an owned buffer and gives it back with its result.
///
/// ```
/// use forebay::{Engine, OpenOptions};
///
/// # fn main() -> forebay::Result<()> {
/// # let directory = tempfile::tempdir_in(".").unwrap();
/// # let path = directory.path().join("table");
/// let engine = Engine::new()?;
/// let file = engine.open_direct(&path, OpenOptions::new().read(true).write(true).create(true))?;
/// file.set_len(1 << 20).wait()?;
/// let (written, buffer) = file.write_at(vec![7; 4096], 8192).wait();
/// written?;
/// let (read, buffer) = file.read_at(buffer, 8192).wait();
/// assert_eq!((read?, buffer[0]), (4096, 7));
/// file.sync_data().wait()?;
/// file.close().wait()
/// # }
/// ```
///
/// Overlapping operations take effect in the order of submission.
///
/// Any offset, length and address is valid, and sizes are exact. An operation that is not aligned
/// to [`DirectFile::alignment`] costs a copy, or a read of the block that it changes in part
/// (`bounced` in [`Stats`](crate::Stats)).
///
/// A write that has ended is at the device, but not durable. A sync makes every write durable that
/// was submitted before it, by any handle. Writes that move the end of the file run one at a time;
/// for full speed call [`DirectFile::set_len`] first.
///
/// In one engine a file is open either direct or cached; opening it in the other mode fails with
/// `Busy`.
///
/// Dropping the handle lets its operations end; [`Builder::on_error`](crate::Builder::on_error)
/// reports writes that fail after that.
#[derive(Debug)]
pub struct DirectFile {
    shared: Arc<Shared>,
    pub(crate) inode: Arc<DirectInode>,
    handle: Arc<Handle>,
    open: OpenOptions,
    closed: bool,
}

impl DirectFile {
    pub(crate) fn new(shared: Arc<Shared>, inode: Arc<DirectInode>, open: OpenOptions) -> Self {
        let handle = Arc::new(Handle::new(&shared));
        Self { shared, inode, handle, open, closed: false }
    }

    /// Submits a read from `offset` into the whole buffer.
    ///
    /// It ends with the number of bytes read, which is less than asked only at the end of the file,
    /// and the buffer. The bytes after those read are unspecified.
    ///
    /// # Errors
    /// It ends with `InvalidInput` for more than 1 GiB, or for an offset beyond the largest file;
    /// with `NotPermitted` on a handle for writing only; and with `Io` if the device could not be
    /// read.
    pub fn read_at<B: DirectBuffer>(&self, buffer: B, offset: u64) -> Transfer<B> {
        let mut length = buffer.bytes().len();
        if self.inode.is_device() {
            // The kernel refuses a read across the end of a device, even of the part before it.
            length = length
                .min(usize::try_from(self.len().saturating_sub(offset)).unwrap_or(usize::MAX));
        }
        match self.may_read().and_then(|()| self.span(offset, length)) {
            Ok(span) => self.transfer(Verb::Read(span), span, buffer),
            Err(error) => Transfer::reported(Err(error), buffer),
        }
    }

    /// Submits a write of the whole buffer at `offset`.
    ///
    /// It ends with the number of bytes written, and the buffer. If it is dropped before, the next
    /// sync or close of this handle reports its error.
    ///
    /// # Errors
    /// It ends with one of these; any part of the range may have been written then:
    ///
    /// - `InvalidInput` for more than 1 GiB, or for an offset beyond the largest file;
    /// - `NotPermitted` on a handle for reading;
    /// - `NoSpace` if the file system is full, or the block device ends before the write does;
    /// - `Io` with the reason of the system.
    pub fn write_at<B: DirectBuffer>(&self, buffer: B, offset: u64) -> Transfer<B> {
        match self.may_write().and_then(|()| self.span_of_write(offset, buffer.bytes().len())) {
            Ok(span) => {
                Counters::add(&self.shared.counters.accepted_bytes, span.length);
                self.transfer(Verb::Write(span), span, buffer)
            }
            Err(error) => Transfer::reported(Err(error), buffer),
        }
    }

    /// Submits a sync that makes every write submitted before it durable (`fdatasync`).
    ///
    /// The first sync of a file that this engine created also syncs its directory.
    ///
    /// # Errors
    /// It ends with `Poisoned` after a failed flush, until all handles are closed. Also, once, with
    /// the error of a write or sync of this handle that was dropped.
    pub fn sync_data(&self) -> Submitted {
        self.sync(Verb::FlushData)
    }

    /// Submits a sync that makes every write submitted before it and all metadata durable
    /// (`fsync`).
    ///
    /// # Errors
    /// As [`DirectFile::sync_data`].
    pub fn sync_all(&self) -> Submitted {
        self.sync(Verb::FlushAll)
    }

    /// Submits a change of the length, in order with the operations submitted before and after.
    ///
    /// # Errors
    /// It ends with `InvalidInput` for a length beyond the largest file; with `NotPermitted` on a
    /// handle for reading; with `Unsupported` on a block device; and with `Io` with the reason of
    /// the system.
    pub fn set_len(&self, length: u64) -> Submitted {
        match self.may_set_len(length) {
            Ok(()) => {
                let asked = self.ask(Verb::SetLength(length));
                Submitted::new(async { asked.await.0.map(drop) })
            }
            Err(error) => Submitted::failed(error),
        }
    }

    fn may_set_len(&self, length: u64) -> Result<()> {
        self.may_write()?;
        if self.inode.is_device() {
            let what = "cannot change the size of a block device";
            return Err(Error::new(ErrorKind::Unsupported, what).at_path(&self.inode.path));
        }
        self.check_end(Some(length), length)
    }

    /// Returns the size of the file in bytes, including every write that has ended.
    #[allow(clippy::len_without_is_empty, reason = "as `std::fs::Metadata`")]
    #[must_use]
    pub fn len(&self) -> u64 {
        self.inode.length()
    }

    /// Returns the alignment in bytes for I/O without a copy: of the offset, length and memory
    /// address of a read or write.
    #[must_use]
    pub fn alignment(&self) -> usize {
        self.inode.block() as usize
    }

    /// Returns how the file is accessed: `direct`, or `buffered: ` and the reason why direct I/O is
    /// not possible.
    #[must_use]
    pub fn describe(&self) -> String {
        self.inode.describe()
    }

    /// Submits the close of the handle. It ends once every operation submitted before has ended,
    /// with the last errors. Flushes nothing. A [`wait`](Submitted::wait) takes at most
    /// [`Options::close_timeout`](crate::Options::close_timeout).
    ///
    /// # Errors
    /// It ends with the error of a write or sync of this handle that was dropped. The wait returns
    /// `TimedOut` if the device did not finish in time.
    pub fn close(mut self) -> Submitted {
        if let Err(error) = self.shared.check() {
            return Submitted::failed(error);
        }
        let (shared, path) = (Arc::clone(&self.shared), self.inode.path.clone());
        let asked = self.ask(Verb::Settle);
        let closed = async move {
            let settled = asked.await.0.map(|_| ());
            let settled = Undelivered::new(Arc::clone(&self.handle), settled);
            let unreported = Undelivered::new(Arc::clone(&self.handle), self.handle.take());
            if self.release() {
                poll_fn(|context| self.inode.poll_close(&self.shared, context)).await;
            }
            settled.deliver()?;
            unreported.deliver()
        };
        Submitted::closing(closed, shared, path)
    }

    fn sync(&self, verb: Verb) -> Submitted {
        if let Err(error) = self.shared.check() {
            return Submitted::failed(error);
        }
        Counters::add(&self.shared.counters.syncs, 1);
        let (asked, handle) = (self.ask(verb), Arc::clone(&self.handle));
        Submitted::new(async move {
            asked.await.0?;
            handle.take()
        })
    }

    fn ask(&self, verb: Verb) -> Asked {
        self.submit(verb, Bytes::default())
    }

    fn submit(&self, verb: Verb, bytes: Bytes) -> Asked {
        Asked::submit(&self.shared, Operation::new(&self.inode, &self.handle, verb, bytes))
    }

    fn transfer<B: DirectBuffer>(&self, verb: Verb, span: Span, buffer: B) -> Transfer<B> {
        if span.length == 0 {
            return Transfer::reported(Ok(0), buffer);
        }
        let memory = buffer.into_memory();
        let first_whole = span.first_whole().map(|at| at as usize);
        let is_aligned = first_whole
            .is_none_or(|at| memory.is_aligned_from(at, self.inode.alignment.memory as usize));
        if is_aligned {
            let bytes = Bytes { memory: Some(memory), ..Bytes::default() };
            return Transfer::asked(self.submit(verb, bytes), None);
        }
        // A copy whose whole blocks start at page boundaries. The caller's thread makes it, so that
        // the context is not delayed.
        let skew = first_whole.map_or(0, |at| at.next_multiple_of(PAGE) - at);
        let mut copy = AlignedMemory::new(skew + memory.length());
        let manner = match verb {
            Verb::Read(_) => Copying::After(skew),
            _ => {
                copy[skew..].copy_from_slice(memory.bytes());
                Copying::Nothing
            }
        };
        let bytes = Bytes { memory: Some(Memory::Aligned(copy)), skew, is_copy: true };
        Transfer::asked(
            self.submit(verb, bytes),
            Some(Aside { buffer: B::from_memory(memory), manner }),
        )
    }

    fn span(&self, offset: u64, length: usize) -> Result<Span> {
        let length = length as u64;
        if length > DIRECT_BYTES {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!("an operation of {length} bytes is too large"),
            )
            .at_path(&self.inode.path)
            .at_offset(offset)
            .remedy(format!("split it into operations of at most {DIRECT_BYTES} bytes")));
        }
        self.check_end(offset.checked_add(length), offset)?;
        Ok(Span { offset, length, block: self.inode.block() })
    }

    fn span_of_write(&self, offset: u64, length: usize) -> Result<Span> {
        if self.inode.is_device() {
            check_device_end(
                &self.inode.path,
                self.len(),
                offset.checked_add(length as u64),
                offset,
            )?;
        }
        self.span(offset, length)
    }

    fn check_end(&self, end: Option<u64>, offset: u64) -> Result<()> {
        if end.is_some_and(|end| end <= MAX_OFFSET) {
            return Ok(());
        }
        Err(Error::too_long(&self.inode.path, offset, end))
    }

    fn may_read(&self) -> Result<()> {
        self.shared.check()?;
        if self.open.read {
            return Ok(());
        }
        Err(Error::for_writing(&self.inode.path))
    }

    fn may_write(&self) -> Result<()> {
        self.shared.check()?;
        if self.open.write {
            return Ok(());
        }
        Err(Error::for_reading(&self.inode.path))
    }

    /// Gives up the handle. Returns whether it was the last.
    fn release(&mut self) -> bool {
        self.closed = true;
        let is_last = self.shared.table().drop_handle(self.inode.identity) == Last::Yes;
        self.shared.send(Message::Leave(Arc::clone(&self.inode), Arc::clone(&self.handle)));
        // The contexts may have stopped, and then nothing takes the message.
        if self.shared.is_orphaned() {
            self.handle.leave();
        }
        is_last
    }
}

impl Drop for DirectFile {
    fn drop(&mut self) {
        if !self.closed && self.shared.is_parent() {
            self.release();
        }
    }
}
