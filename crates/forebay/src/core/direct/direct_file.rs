//! Handle for direct I/O.

use std::future::poll_fn;
use std::sync::Arc;

use forebay_block::limits::PAGE;
use forebay_cache::limits::MAX_OFFSET;

use crate::core::context::senders::Message;
use crate::core::direct::buffer::DirectBuffer;
use crate::core::direct::direct_inode::DirectInode;
use crate::core::direct::direct_message;
use crate::core::direct::handle::{Handle, Taken};
use crate::core::direct::operation::{Bytes, Operation, Verb};
use crate::core::direct::plug;
use crate::core::direct::shape::Span;
use crate::core::direct::transfer::{Aside, Asked, Copying, Transfer};
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::file::check_device_end;
use crate::core::limits::DIRECT_BYTES;
use crate::core::open::options::OpenOptions;
use crate::core::shared::Shared;
use crate::core::stats::Counters;
use crate::core::wait;
use crate::platform::clock;
use crate::platform::{AlignedMemory, Direct, Memory};

/// Handle of a file for direct I/O: reads and writes go from the caller's buffer straight to the
/// device, past the cache.
///
/// [`Engine::open_direct`](crate::Engine::open_direct) opens it. A read or write takes an owned
/// buffer and returns it with the result. The call itself submits the operation, from any thread;
/// waiting for it is optional. Overlapping operations take effect in the order of submission.
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
///
/// ```
/// use forebay::{Engine, OpenOptions};
///
/// # fn main() -> forebay::Result<()> {
/// # let directory = tempfile::tempdir_in(".").unwrap();
/// # let path = directory.path().join("table");
/// let engine = Engine::new()?;
/// let file = engine.open_direct(&path, OpenOptions::new().read(true).write(true).create(true))?;
/// file.set_len(1 << 20)?;
/// let (written, buffer) = file.write_at(vec![7; 4096], 8192);
/// written?;
/// let (read, buffer) = file.read_at(buffer, 8192);
/// assert_eq!((read?, buffer[0]), (4096, 7));
/// file.sync_data()?;
/// file.close()
/// # }
/// ```
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

    /// Reads from `offset` into the whole buffer. Blocks.
    ///
    /// Returns the number of bytes read, which is less than asked only at the end of the file, and
    /// the buffer. The bytes after those read are unspecified.
    ///
    /// # Errors
    /// As [`DirectFile::read_at_async`]; `WouldDeadlock` on a thread of the engine.
    pub fn read_at<B: DirectBuffer>(&self, buffer: B, offset: u64) -> (Result<usize>, B) {
        match wait::may_block() {
            Ok(()) => wait::drive(self.read_at_async(buffer, offset)),
            Err(error) => (Err(error), buffer),
        }
    }

    /// Submits a read as [`DirectFile::read_at`] and returns its future.
    ///
    /// # Errors
    /// The future resolves to `InvalidInput` for more than 1 GiB, or for an offset beyond the
    /// largest file. It resolves to `NotPermitted` on a handle for writing only, and to `Io` if the
    /// device could not be read.
    pub fn read_at_async<B: DirectBuffer>(&self, buffer: B, offset: u64) -> Transfer<B> {
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

    /// Writes the whole buffer at `offset`. Blocks.
    ///
    /// Returns the number of bytes written, and the buffer.
    ///
    /// # Errors
    /// As [`DirectFile::write_at_async`]; `WouldDeadlock` on a thread of the engine. After an error
    /// any part of the range may have been written.
    pub fn write_at<B: DirectBuffer>(&self, buffer: B, offset: u64) -> (Result<usize>, B) {
        match wait::may_block() {
            Ok(()) => wait::drive(self.write_at_async(buffer, offset)),
            Err(error) => (Err(error), buffer),
        }
    }

    /// Submits a write as [`DirectFile::write_at`] and returns its future. If the future is
    /// dropped, the next sync or close of this handle reports the error.
    ///
    /// # Errors
    /// The future resolves to one of these:
    ///
    /// - `InvalidInput` for more than 1 GiB, or for an offset beyond the largest file;
    /// - `NotPermitted` on a handle for reading;
    /// - `NoSpace` if the file system is full, or the block device ends before the write does;
    /// - `Io` with the reason of the system.
    pub fn write_at_async<B: DirectBuffer>(&self, buffer: B, offset: u64) -> Transfer<B> {
        match self.may_write().and_then(|()| self.span_of_write(offset, buffer.bytes().len())) {
            Ok(span) => {
                Counters::add(&self.shared.counters.accepted_bytes, span.length);
                self.transfer(Verb::Write(span), span, buffer)
            }
            Err(error) => Transfer::reported(Err(error), buffer),
        }
    }

    /// Makes every write submitted before the call durable (`fdatasync`). Blocks.
    ///
    /// The first sync of a file that this engine created also syncs its directory.
    ///
    /// # Errors
    /// `Poisoned` after a failed flush, until all handles are closed. Also, once, the error of a
    /// write or sync of this handle whose future was dropped.
    pub fn sync_data(&self) -> Result<()> {
        wait::block_on(self.sync_data_async())
    }

    /// Asynchronous form of [`DirectFile::sync_data`].
    ///
    /// # Errors
    /// As [`DirectFile::sync_data`].
    pub async fn sync_data_async(&self) -> Result<()> {
        self.sync(Verb::FlushData).await
    }

    /// Makes every write submitted before the call and all metadata durable (`fsync`). Blocks.
    ///
    /// # Errors
    /// As [`DirectFile::sync_data`].
    pub fn sync_all(&self) -> Result<()> {
        wait::block_on(self.sync_all_async())
    }

    /// Asynchronous form of [`DirectFile::sync_all`].
    ///
    /// # Errors
    /// As [`DirectFile::sync_data`].
    pub async fn sync_all_async(&self) -> Result<()> {
        self.sync(Verb::FlushAll).await
    }

    /// Truncates or extends the file, in order with the operations submitted before and after.
    /// Blocks until the file system has done it.
    ///
    /// # Errors
    /// `InvalidInput` for a length beyond the largest file; `NotPermitted` on a handle for reading;
    /// `Unsupported` on a block device; `Io` with the reason of the system.
    pub fn set_len(&self, length: u64) -> Result<()> {
        wait::block_on(self.set_len_async(length))
    }

    /// Asynchronous form of [`DirectFile::set_len`].
    ///
    /// # Errors
    /// As [`DirectFile::set_len`].
    pub async fn set_len_async(&self, length: u64) -> Result<()> {
        self.may_write()?;
        if self.inode.is_device() {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "cannot change the size of a block device",
            )
            .at_path(&self.inode.path));
        }
        self.check_end(Some(length), length)?;
        self.ask(Verb::SetLength(length)).await.0.map(|_| ())
    }

    /// Returns the size of the file in bytes, including every write that has ended.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.inode.length()
    }

    /// Returns whether the size of the file is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
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
        match self.inode.file.direct() {
            Direct::Yes => "direct".to_owned(),
            Direct::Refused(reason) => format!("buffered: {reason}"),
        }
    }

    /// Waits for every operation submitted before, closes the handle, and reports the last errors.
    /// Flushes nothing. Blocks for at most
    /// [`Options::close_timeout`](crate::Options::close_timeout).
    ///
    /// # Errors
    /// The error of a write or sync of this handle whose future was dropped; `TimedOut` if the
    /// device did not finish in time.
    pub fn close(self) -> Result<()> {
        let (timeout, path) = (self.shared.close_timeout(), self.inode.path.clone());
        let deadline = clock::instant().checked_add(timeout);
        wait::block_on_until(self.close_async(), deadline).unwrap_or_else(|| {
            Err(Error::late(&path).remedy(
                "operations in flight continue; Builder::on_error reports writes that fail",
            ))
        })
    }

    /// Asynchronous form of [`DirectFile::close`], without a timeout.
    ///
    /// # Errors
    /// As [`DirectFile::close`].
    pub async fn close_async(mut self) -> Result<()> {
        self.shared.check()?;
        let settled = Taken::of(&self.handle, self.ask(Verb::Settle).await.0);
        let unreported = Taken::from(&self.handle);
        if self.release() {
            poll_fn(|context| self.inode.poll_closed(&self.shared, context)).await;
        }
        settled.report()?;
        unreported.report()
    }

    async fn sync(&self, verb: Verb) -> Result<()> {
        self.shared.check()?;
        Counters::add(&self.shared.counters.syncs, 1);
        self.ask(verb).await.0?;
        self.handle.take().map_or(Ok(()), Err)
    }

    fn ask(&self, verb: Verb) -> Asked {
        self.submit(verb, Bytes::default())
    }

    fn submit(&self, verb: Verb, bytes: Bytes) -> Asked {
        let operation = Operation::new(&self.inode, &self.handle, verb, bytes);
        let asked = Asked::new(&self.shared, operation.ticket());
        plug::submit(&self.shared, operation);
        asked
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
        let is_last = self.shared.table().drop_direct_handle(self.inode.identity);
        let leave =
            direct_message::Message::Leave(Arc::clone(&self.inode), Arc::clone(&self.handle));
        self.shared.send(Message::Direct(leave));
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
