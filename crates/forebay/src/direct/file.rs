//! A handle of a file past the cache, and its verbs.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_block::limits::PAGE;
use forebay_cache::limits::MAX_OFFSET;
use forebay_uring::{AlignedMemory, Direct, Memory};

use crate::context::Message;
use crate::counters::Counters;
use crate::direct::buffer::DirectBuffer;
use crate::direct::flow;
use crate::direct::inode::{DirectInode, Handle, Taken};
use crate::direct::operation::{Bytes, Operation, Verb};
use crate::direct::plug;
use crate::direct::shape::Span;
use crate::direct::transfer::{Aside, Asked, Copying, Transfer};
use crate::error::{Error, ErrorKind, Result};
use crate::file::check_device_end;
use crate::limits::DIRECT_BYTES;
use crate::open::Open;
use crate::shared::Shared;
use crate::wait;

/// A file open past the cache: reads and writes go from the caller's own buffer straight to the
/// device.
///
/// A read or write takes its buffer and gives it back with the result; it is submitted by the call,
/// from any thread, and whether anybody waits for it changes nothing. What overlaps takes effect in
/// the order it was submitted. Any offset, length and address will do, and sizes stay exact; what
/// is not aligned to the file's blocks costs a copy, or a read of the block before it is written
/// (`bounced` in [`Stats`](crate::Stats)).
///
/// A write that has ended is at the device, not durable: that takes a sync, which covers every
/// write submitted before it by whatever handle. While the end of the file moves, one request does
/// so at a time: [`DirectFile::set_len`] beforehand is the fast path.
///
/// One file is open either direct or cached in an engine; the other is refused with `Busy`.
#[derive(Debug)]
pub struct DirectFile {
    shared: Arc<Shared>,
    inode: Arc<DirectInode>,
    handle: Arc<Handle>,
    open: Open,
    patience: Duration,
    closed: bool,
}

impl DirectFile {
    pub(crate) fn new(
        shared: Arc<Shared>,
        inode: Arc<DirectInode>,
        open: Open,
        patience: Duration,
    ) -> Self {
        let handle = Arc::new(Handle::new(&shared));
        Self { shared, inode, handle, open, patience, closed: false }
    }

    /// Reads from `offset` on, as many bytes as the buffer has; fewer only at the end of the file.
    /// Blocks.
    ///
    /// The buffer comes back with the result, and what was not read is as it was or unspecified.
    pub fn read_at<B: DirectBuffer>(&self, buffer: B, offset: u64) -> (Result<usize>, B) {
        match wait::may_block() {
            Ok(()) => wait::drive(self.read_at_async(buffer, offset)),
            Err(error) => (Err(error), buffer),
        }
    }

    /// As [`DirectFile::read_at`], submitted by the call; the future tells how it ended.
    ///
    /// # Errors
    /// The future's: `InvalidInput` for more than 1 GiB or an offset no file has; `Io` when the
    /// device could not be read.
    pub fn read_at_async<B: DirectBuffer>(&self, buffer: B, offset: u64) -> Transfer<B> {
        let mut length = buffer.bytes().len();
        if self.inode.is_device() {
            // Where a device ends inside of a block, the kernel refuses to read even what is
            // before.
            length = length
                .min(usize::try_from(self.len().saturating_sub(offset)).unwrap_or(usize::MAX));
        }
        match self.shared.check().and_then(|()| self.span(offset, length)) {
            Ok(span) => self.transfer(Verb::Read(span), span, buffer),
            Err(error) => Transfer::told(Err(error), buffer),
        }
    }

    /// Writes all of the buffer at `offset`. Blocks.
    ///
    /// The buffer comes back with the result. After an error any part may have been written.
    pub fn write_at<B: DirectBuffer>(&self, buffer: B, offset: u64) -> (Result<usize>, B) {
        match wait::may_block() {
            Ok(()) => wait::drive(self.write_at_async(buffer, offset)),
            Err(error) => (Err(error), buffer),
        }
    }

    /// As [`DirectFile::write_at`], submitted by the call; the future tells how it ended. Where
    /// that is dropped, an error is told by the next sync, or close, of this handle.
    ///
    /// # Errors
    /// The future's: `InvalidInput` for more than 1 GiB or an offset no file has; `NotPermitted` on
    /// a handle for reading; `NoSpace` and `Io` with the system's reason; `NoSpace`, too, where a
    /// block device ends before the write does.
    pub fn write_at_async<B: DirectBuffer>(&self, buffer: B, offset: u64) -> Transfer<B> {
        match self.may_write().and_then(|()| self.span_of_write(offset, buffer.bytes().len())) {
            Ok(span) => {
                Counters::add(&self.shared.counters.accepted_bytes, span.length);
                self.transfer(Verb::Write(span), span, buffer)
            }
            Err(error) => Transfer::told(Err(error), buffer),
        }
    }

    /// Makes every write that was submitted before the call durable: ended, and the file flushed
    /// (`fdatasync`); the first time also the directory entry of a file we made. Blocks.
    ///
    /// # Errors
    /// `Poisoned` from a failed flush until all handles are closed; and, once, the error of a write
    /// of this handle whose future was dropped.
    pub fn sync_data(&self) -> Result<()> {
        wait::block_on(self.sync_data_async())
    }

    /// As [`DirectFile::sync_data`].
    ///
    /// # Errors
    /// As [`DirectFile::sync_data`].
    pub async fn sync_data_async(&self) -> Result<()> {
        self.sync(Verb::FlushData).await
    }

    /// As [`DirectFile::sync_data`], with all metadata (`fsync`).
    ///
    /// # Errors
    /// As [`DirectFile::sync_data`].
    pub fn sync_all(&self) -> Result<()> {
        wait::block_on(self.sync_all_async())
    }

    /// As [`DirectFile::sync_all`].
    ///
    /// # Errors
    /// As [`DirectFile::sync_data`].
    pub async fn sync_all_async(&self) -> Result<()> {
        self.sync(Verb::FlushAll).await
    }

    /// Cuts or grows the file, in order with the reads and writes around it. Blocks until the file
    /// system has done it.
    ///
    /// # Errors
    /// `InvalidInput` for a length no file can have; `NotPermitted` on a handle for reading;
    /// `Unsupported` on a block device; `Io` with the system's reason.
    pub fn set_len(&self, length: u64) -> Result<()> {
        wait::block_on(self.set_len_async(length))
    }

    /// As [`DirectFile::set_len`].
    ///
    /// # Errors
    /// As [`DirectFile::set_len`].
    pub async fn set_len_async(&self, length: u64) -> Result<()> {
        self.may_write()?;
        if self.inode.is_device() {
            return Err(Error::new(ErrorKind::Unsupported, "a block device has one size")
                .at_path(&self.inode.path));
        }
        self.check_end(Some(length), length)?;
        self.ask(Verb::SetLength(length)).await.0.map(|_| ())
    }

    /// Bytes in the file, with every write that has ended.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.inode.length()
    }

    /// Whether the file has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes in a block: a read or write whose offset, length and address are multiples of it needs
    /// no copy.
    #[must_use]
    pub fn alignment(&self) -> usize {
        self.inode.block() as usize
    }

    /// How the file is reached: `direct`, or `buffered` and why.
    #[must_use]
    pub fn describe(&self) -> String {
        match self.inode.file.direct() {
            Direct::Yes => "direct".to_owned(),
            Direct::Refused(reason) => format!("buffered: {reason}"),
        }
    }

    /// Waits for every write that was submitted before, and lets go of the file. The last chance to
    /// hear an error. Flushes nothing. Blocks, as long as the engine's `close_timeout`.
    ///
    /// # Errors
    /// Once, the error of a write of this handle whose future was dropped; `TimedOut` when the
    /// device did not finish.
    pub fn close(self) -> Result<()> {
        let (patience, path) = (self.patience, self.inode.path.clone());
        let deadline = Instant::now().checked_add(patience);
        wait::block_on_until(self.close_async(), deadline).unwrap_or_else(|| {
            Err(Error::late(&path)
                .remedy("what is in flight goes on; Builder::on_error is told of writes that fail"))
        })
    }

    /// As [`DirectFile::close`], without a timeout of its own.
    ///
    /// # Errors
    /// As [`DirectFile::close`].
    pub async fn close_async(mut self) -> Result<()> {
        self.shared.check()?;
        let settled = self.ask(Verb::Settle).await.0;
        let untold = Taken::from(&self.handle);
        if self.let_go() {
            poll_fn(|context| self.inode.poll_closed(&self.shared, context)).await;
        }
        settled?;
        untold.tell()
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
            return Transfer::told(Ok(0), buffer);
        }
        let memory = buffer.into_memory();
        let first_whole = span.first_whole().map(|at| at as usize);
        let is_aligned = first_whole
            .is_none_or(|at| memory.is_aligned_from(at, self.inode.alignment.memory as usize));
        if is_aligned {
            let bytes = Bytes { memory: Some(memory), ..Bytes::default() };
            return Transfer::asked(self.submit(verb, bytes), None);
        }
        // A copy whose whole blocks lie at whole pages. Made here, so that the context never stands
        // still for it.
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
                format!("{length} bytes in one direct operation"),
            )
            .at_path(&self.inode.path)
            .at_offset(offset)
            .remedy(format!("at most {DIRECT_BYTES}: split it")));
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
        Err(Error::new(ErrorKind::InvalidInput, "no file reaches that far")
            .at_path(&self.inode.path)
            .at_offset(offset))
    }

    fn may_write(&self) -> Result<()> {
        self.shared.check()?;
        if self.open.write {
            return Ok(());
        }
        Err(Error::for_reading(&self.inode.path))
    }

    /// Gives up the handle; whether it was the last.
    fn let_go(&mut self) -> bool {
        self.closed = true;
        let is_last = self.shared.table().drop_direct_handle(self.inode.identity);
        let leave = flow::Message::Leave(Arc::clone(&self.inode), Arc::clone(&self.handle));
        self.shared.send(Message::Direct(leave));
        // Nobody takes the message in, or whoever ended did so before it was sent.
        if self.shared.is_orphaned() {
            self.handle.leave();
        }
        is_last
    }
}

impl Drop for DirectFile {
    fn drop(&mut self) {
        if !self.closed && self.shared.is_parent() {
            self.let_go();
        }
    }
}
