//! Handle of a cached file: writes, syncs and closing.
//!
//! `append` has its appends, `reading` its reads, `finish` its writing out without a flush,
//! `attributes` its metadata, `space` allocations and holes, `copy` copies.

pub(crate) mod append;
pub(crate) mod attributes;
mod copy;
mod finish;
mod reading;
mod space;

use std::future::poll_fn;
use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_cache::limits::{MAX_OFFSET, PAGE};
use forebay_cache::{Admission, Caching, Failure, Liberties, TicketKind};

use crate::core::base::Base;
use crate::core::counters::Counters;
use crate::core::direct::plug::plugged_no_more;
use crate::core::discard::Hold;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::inode::Inode;
use crate::core::inode::after::After;
use crate::core::inode::lead::Leads;
use crate::core::inode::space::Promise;
use crate::core::layout::Layout;
use crate::core::leader::Syncing;
use crate::core::limits::{BYPASS_BYTES, BYPASS_BYTES_AT_ONCE};
use crate::core::open::Open;
use crate::core::room::make_room;
use crate::core::shared::Shared;
use crate::core::slices::Slices;
use crate::core::table::Last;
use crate::core::ticket::{Ticket, Undelivered};
use crate::core::volume::Pledge;
use crate::core::wait;
use crate::core::write::Place;
use crate::platform::clock;

/// Handle of an open file, cached in memory.
///
/// [`Engine::open`](crate::Engine::open) opens it. All handles of a file share one cache, also
/// those opened by hard links. All methods take `&self`, so threads can share a handle. Reads and
/// writes are atomic per page of 4 KiB.
///
/// A write returns once its data is in memory. Data is durable after a sync. [`File::close`] writes
/// the file out and reports the last errors. Dropping a handle only starts the writeback, and
/// errors go to [`Builder::on_error`](crate::Builder::on_error).
///
/// Dropping the future of a write or append leaves a prefix of its data accepted. Dropping the
/// future of a sync does not stop the sync.
///
/// ```
/// use forebay::{Engine, Open};
///
/// # fn main() -> forebay::Result<()> {
/// # let directory = tempfile::tempdir_in(".").unwrap();
/// # let path = directory.path().join("file");
/// let engine = Engine::new()?;
/// let file = engine.open(&path, Open::create())?;
/// file.write_at(b"hello world", 0)?;
/// let mut word = [0; 5];
/// assert_eq!(file.read_at(&mut word, 6)?, 5);
/// assert_eq!(&word, b"world");
/// file.sync_data()?;                                  // durable from here on
/// file.close()
/// # }
/// ```
pub struct File {
    pub(crate) shared: Arc<Shared>,
    pub(crate) inode: Arc<Inode>,
    pub(crate) open: Open,
    patience: Duration,
    /// Number of the last page error that this handle has reported.
    seen: AtomicU64,
    closed: bool,
}

/// Takes no lock, so it can be used anywhere.
impl std::fmt::Debug for File {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (path, is_writable) = (&self.inode.path, self.open.write);
        let mut shown = formatter.debug_struct("File");
        shown.field("path", path).field("is_writable", &is_writable).finish_non_exhaustive()
    }
}

impl File {
    pub(crate) fn new(
        shared: Arc<Shared>,
        inode: Arc<Inode>,
        open: Open,
        patience: Duration,
    ) -> Self {
        Self { shared, inode, open, patience, seen: AtomicU64::new(0), closed: false }
    }

    /// Writes all of `data` at `offset` into the cache. The data is durable after the next sync.
    /// Blocks while the dirty limit is reached.
    ///
    /// While the dirty limit is reached, a write of 1 MiB or more goes straight from `data` to the
    /// device. Its offset and memory must be aligned, and it must lie below the end of the file.
    ///
    /// # Errors
    /// - `InvalidInput` with `EFBIG` if the write ends beyond the largest file size, of the file
    ///   system or of this process (`RLIMIT_FSIZE`). Nothing is written then.
    /// - `NotPermitted` on a handle for reading or appending.
    /// - `NoSpace` if the file system is full, or the block device ends before the write does.
    /// - `Io` or `NoSpace`, with the reason of the device, if too many earlier pages could not be
    ///   written: 1/16 of `dirty_bytes` for this file, or 1/4 for its device. `Io` also if the
    ///   write would wait for the dirty limit while pages of the file cannot be written.
    /// - `Poisoned` after a panic has interrupted a change of the file's state, until all handles
    ///   of the file are closed.
    ///
    /// After an error a prefix may have been accepted.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let done = self.write_front(data, offset)?;
        if done > 0 && done == data.len() {
            return Ok(());
        }
        wait::block_on(self.write_at_async(&data[done..], offset + done as u64))
    }

    /// Writes the front of `data` as far as that needs no wait for the cache, and no future.
    /// Returns its length.
    pub(crate) fn write_front(&self, data: &[u8], offset: u64) -> Result<usize> {
        self.may_write_at()?;
        if data.len() >= BYPASS_BYTES {
            return self.write_past(data, offset);
        }
        let length = data.len() as u64;
        self.check_end(offset.checked_add(length), offset)?;
        if length == 0 {
            return Ok(0);
        }
        let pledge = if self.inode.may_rewrite(&self.shared) {
            None
        } else {
            let Some(pledge) = self.pledge(length) else { return Ok(0) };
            Some(pledge)
        };
        let slices = [IoSlice::new(data)];
        let front = (&Slices::new(&slices), offset, self.caching());
        let accepted = self.inode.write_now(&self.shared, front, pledge.is_some())?;
        drop(pledge);
        Counters::add(&self.shared.counters.accepted_bytes, accepted as u64);
        Ok(accepted)
    }

    /// Writes the front of a large aligned write from the caller's buffer straight to the device,
    /// if the dirty limit is reached. Returns its length.
    pub(crate) fn write_past(&self, data: &[u8], offset: u64) -> Result<usize> {
        if data.len() < BYPASS_BYTES || self.open.append {
            return Ok(0);
        }
        self.may_write()?;
        self.check_end(offset.checked_add(data.len() as u64), offset)?;
        let mut done = 0;
        while data.len() - done >= BYPASS_BYTES
            && self.inode.admission(&self.shared, data.len() - done) == Admission::Wait
        {
            wait::may_block()?;
            let left = data.len() - done;
            let part =
                &data[done..done + left.min(BYPASS_BYTES_AT_ONCE) / BYPASS_BYTES * BYPASS_BYTES];
            if !self.inode.bypass(&self.shared, part, offset + done as u64)? {
                break;
            }
            done += part.len();
        }
        Counters::add(&self.shared.counters.bypassed_bytes, done as u64);
        Counters::add(&self.shared.counters.accepted_bytes, done as u64);
        Ok(done)
    }

    /// Asynchronous form of [`File::write_at`]. The data is copied while the future is polled; a
    /// dropped future has accepted a prefix.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub async fn write_at_async(&self, data: &[u8], offset: u64) -> Result<()> {
        self.may_write_at()?;
        self.write_all(Slices::new(&[IoSlice::new(data)]), offset).await.1
    }

    pub(crate) async fn write_all_at(&self, data: Slices<'_>, offset: u64) -> Result<()> {
        self.may_write_at()?;
        self.write_all(data, offset).await.1
    }

    /// Returns whether pages that it writes and reads stay in memory.
    pub(crate) fn caching(&self) -> Caching {
        match self.open.uncached {
            Some(true) => Caching::Uncached,
            Some(false) => Caching::Cached,
            None => self.shared.caching(),
        }
    }

    /// Returns the number of accepted bytes, and the result.
    pub(crate) async fn write_all(&self, data: Slices<'_>, offset: u64) -> (usize, Result<()>) {
        self.write_placed(data, offset, Place::Offset).await
    }

    /// As [`File::write_all`]. A write to the end stops when other programs may move that.
    async fn write_placed(
        &self,
        mut data: Slices<'_>,
        offset: u64,
        place: Place,
    ) -> (usize, Result<()>) {
        let length = data.len() as u64;
        if let Err(error) = self.check_end(offset.checked_add(length), offset) {
            return (0, Err(error));
        }
        if length == 0 {
            return (0, Ok(()));
        }
        // By a pledge if there is plenty of space, otherwise by an allocation now.
        let promise = match self.pledge(length) {
            Some(_pledge) => Promise::Plenty { _pledge },
            None => match make_room(&self.shared, &self.inode, offset, length).await {
                Ok(promise) => promise,
                Err(error) => return (0, Err(error)),
            },
        };
        let (mut done, mut queued) = (0, None);
        let result = loop {
            if data.len() == 0 {
                break Ok(());
            }
            let rest = (&data, offset + done as u64, place, self.caching());
            let step = poll_fn(|context| {
                plugged_no_more(self.inode.poll_write(&self.shared, context, rest, &mut queued))
            });
            match step.await {
                Ok(0) => break Ok(()),
                Ok(accepted) => {
                    data.advance(accepted);
                    done += accepted;
                }
                Err(error) => break Err(error),
            }
        };
        drop(promise);
        Counters::add(&self.shared.counters.accepted_bytes, done as u64);
        (done, result)
    }

    pub(crate) fn pledge(&self, length: u64) -> Option<Pledge<'_>> {
        self.inode.pledge(&self.shared, length)
    }

    /// Returns the size of the file in bytes, including accepted data that is not written yet. Asks
    /// the file system each time if other programs may have the file open, or if it is open for
    /// reading only.
    ///
    /// # Errors
    /// `Open` with the reason of the file system.
    #[allow(clippy::len_without_is_empty, reason = "it is there")]
    pub fn len(&self) -> Result<u64> {
        self.inode.length(&self.shared)
    }

    /// Returns whether the size of the file is 0.
    ///
    /// # Errors
    /// As [`File::len`].
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Returns the path that the first handle of the file was opened with. The file may have been
    /// renamed or removed since.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.inode.path
    }

    /// Returns how the file is accessed: `direct`, or `buffered: ` and the reason why direct I/O is
    /// not possible. `; shared` follows if other programs may have the file open, with the reason
    /// if a lease does not count on its file system; `; alone as promised` follows if
    /// [`Open::exclusive`] takes the place of the lease.
    #[must_use]
    pub fn describe(&self) -> String {
        let way = match self.inode.file.direct() {
            crate::platform::Direct::Yes => "direct".to_owned(),
            crate::platform::Direct::Refused(reason) => format!("buffered: {reason}"),
        };
        match self.inode.lock().cache.liberties() {
            Liberties::Exclusive if self.inode.needs_lease || self.inode.is_private => way,
            Liberties::Exclusive => format!("{way}; alone as promised"),
            Liberties::Shared => match self.inode.file.lease_coverage().gap() {
                None => format!("{way}; shared"),
                Some(gap) => format!("{way}; shared: {gap}"),
            },
        }
    }

    /// Returns the number of the writeback context that the file belongs to now, from 0. The knob
    /// `affinity` ([`Engine::set`](crate::Engine::set)) decides it.
    #[must_use]
    pub fn context(&self) -> usize {
        self.inode.home.context()
    }

    /// Returns the extents of the file and the space reserved for it. Blocks: the file system
    /// writes out what the page cache of the kernel holds of the file.
    ///
    /// Data that the engine has not written yet is not included.
    ///
    /// # Errors
    /// `Unsupported` on a block device, or if the file system does not report extents;
    /// `WouldDeadlock` on a thread of the engine.
    pub fn layout(&self) -> Result<Layout> {
        self.shared.check()?;
        wait::may_block()?;
        Layout::of(&self.inode)
    }

    /// Truncates or extends the file. Blocks until the file system has done it.
    ///
    /// For a new file of known size, setting the length first is fastest: no write then moves the
    /// end of the file.
    ///
    /// # Errors
    /// `InvalidInput` with `EFBIG` for a length beyond the largest file size; `NotPermitted` on a
    /// handle for reading; `Unsupported` on a block device; `Io` with the reason of the system.
    pub fn set_len(&self, length: u64) -> Result<()> {
        wait::block_on(self.set_len_async(length))
    }

    /// Asynchronous form of [`File::set_len`]. Dropping the future does not stop it.
    ///
    /// # Errors
    /// As [`File::set_len`].
    pub async fn set_len_async(&self, length: u64) -> Result<()> {
        self.may_write()?;
        self.may_move_end("cannot change the size of a block device", "its size is fixed")?;
        self.check_end(Some(length), length)?;
        self.set_len_in_turn(length).await
    }

    pub(crate) fn set_len_unchecked(&self, length: u64) -> Result<()> {
        wait::block_on(self.set_len_in_turn(length))
    }

    /// Waits for appends: one that has looked up the end writes there before the length changes.
    async fn set_len_in_turn(&self, length: u64) -> Result<()> {
        let _turn = poll_fn(|context| self.poll_append(context)).await;
        self.ask(TicketKind::SetLength(length)).await
    }

    /// Tells a block device that a range is no longer needed (discard, or TRIM). Blocks until the
    /// device has done it.
    ///
    /// **Reads of a discarded range return unspecified data**, until it is written again. Only
    /// whole pages of 4 KiB are discarded; dirty pages among them are dropped. Reads and writes of
    /// the range that started before end first, and later ones wait. The discard is durable after
    /// the next sync.
    ///
    /// # Errors
    /// `Unsupported` on a regular file, or if the device cannot discard; `NotPermitted` on a handle
    /// for reading; `NoSpace` if the device ends before the range does; `Io` with the reason of the
    /// system. After an error nothing has changed.
    pub fn discard(&self, offset: u64, length: u64) -> Result<()> {
        wait::block_on(self.discard_async(offset, length))
    }

    /// Asynchronous form of [`File::discard`]. Dropping the future does not stop it.
    ///
    /// # Errors
    /// As [`File::discard`].
    pub async fn discard_async(&self, offset: u64, length: u64) -> Result<()> {
        self.may_write()?;
        let Some(size) = self.inode.fixed_size else {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "cannot discard a range of a regular file",
            )
            .at_path(&self.inode.path)
            .remedy("use File::punch_hole, or File::set_len to free space at the end"));
        };
        let end = offset.checked_add(length);
        check_device_end(&self.inode.path, size, end, offset)?;
        let pages = self.inode.lock().cache.whole_pages(&(offset..offset + length));
        if pages.is_empty() {
            return Ok(());
        }
        self.ask(TicketKind::Discard { first: pages.start, pages: pages.end - pages.start }).await
    }

    /// Makes all data accepted before the call durable (`fdatasync`). Blocks.
    ///
    /// It covers writes by all handles of the file. The first sync of a file that this engine
    /// created also syncs its directory. Concurrent syncs share flushes.
    ///
    /// # Errors
    /// - `Io`, or `NoSpace` if space or quota is missing, while a page cannot be written. The page
    ///   stays dirty, and the next sync tries again. An error that was overcome meanwhile is
    ///   reported once to each handle.
    /// - `Poisoned` after a failed flush, or after a panic has interrupted a change of the file's
    ///   state, until all handles of the file are closed.
    pub fn sync_data(&self) -> Result<()> {
        wait::block_on(self.sync_data_async())
    }

    /// Asynchronous form of [`File::sync_data`]. Dropping the future does not stop it.
    ///
    /// # Errors
    /// As [`File::sync_data`].
    pub async fn sync_data_async(&self) -> Result<()> {
        self.sync(TicketKind::FlushData).await
    }

    /// Makes all data accepted before the call and all metadata durable (`fsync`). Blocks.
    ///
    /// # Errors
    /// As [`File::sync_data`].
    pub fn sync_all(&self) -> Result<()> {
        wait::block_on(self.sync_all_async())
    }

    /// Asynchronous form of [`File::sync_all`]. Dropping the future does not stop it.
    ///
    /// # Errors
    /// As [`File::sync_data`].
    pub async fn sync_all_async(&self) -> Result<()> {
        self.sync(TicketKind::FlushAll).await
    }

    async fn sync(&self, request: TicketKind) -> Result<()> {
        self.shared.check()?;
        Counters::add(&self.shared.counters.syncs, 1);
        let result = Syncing::new(&self.inode, &self.shared, request).await;
        self.and_unreported(result)
    }

    /// Drops all data that was accepted but not written, and returns the number of bytes dropped,
    /// in whole pages. Blocks.
    ///
    /// This is the remedy if a device no longer accepts writes. Afterwards the file has the content
    /// and size that its file system has. Data that an earlier successful sync covered is not
    /// affected.
    ///
    /// Writes in flight are waited for, so this blocks on a device that hangs. Callers that wait
    /// for a sync of dropped data get `Io` with `ECANCELED`, and every other handle gets that error
    /// once. A file poisoned by a failed flush stays poisoned until all handles are closed.
    ///
    /// # Errors
    /// `NotPermitted` on a handle for reading; `Io` if the size of the file cannot be read.
    pub fn discard_dirty(&self) -> Result<u64> {
        wait::block_on(self.discard_dirty_async())
    }

    /// Asynchronous form of [`File::discard_dirty`]. If the future is dropped before it ends, no
    /// data is dropped.
    ///
    /// # Errors
    /// As [`File::discard_dirty`].
    pub async fn discard_dirty_async(&self) -> Result<u64> {
        self.may_write()?;
        // The end may move, so no append may be in progress.
        let turn = poll_fn(|context| self.poll_append(context)).await;
        let hold = Hold::new(&self.inode, &self.shared);
        let dropped =
            poll_fn(|context| plugged_no_more(self.inode.poll_discard(&self.shared, context)))
                .await;
        drop(hold);
        drop(turn);
        let pages = dropped?;
        // The caller asked for this, so the error is not reported again.
        let _ = self.and_unreported(Ok(()));
        Ok(pages * PAGE)
    }

    /// Writes the file out, closes the handle, and reports the last errors. Blocks for at most
    /// [`Builder::close_timeout`](crate::Builder::close_timeout).
    ///
    /// Written data is not flushed: call a sync before, if data must survive a power cut. Closing
    /// the last handle gives back reserved space. If nothing is left to write, the calling thread
    /// may close the descriptor itself; on a frozen file system the kernel can block it then, for
    /// as long as that lasts.
    ///
    /// # Errors
    /// As [`File::sync_data`]; `TimedOut` if the device did not finish in time. The writing then
    /// continues, and [`Builder::on_error`](crate::Builder::on_error) reports its errors.
    pub fn close(self) -> Result<()> {
        let (patience, path) = (self.patience, self.inode.path.clone());
        let deadline = clock::instant().checked_add(patience);
        wait::block_on_until(self.close_async(), deadline).unwrap_or_else(|| {
            Err(Error::late(&path)
                .remedy("the writing continues; Builder::on_error reports its errors"))
        })
    }

    /// Asynchronous form of [`File::close`], without a timeout.
    ///
    /// # Errors
    /// As [`File::close`].
    pub async fn close_async(mut self) -> Result<()> {
        self.shared.check()?;
        let (id, last) = self.release(Inode::ask_to_close);
        let ticket = match last {
            Last::Yes => Ticket::of_close(Arc::clone(&self.inode), id, Arc::clone(&self.shared)),
            Last::No => Ticket::new(Arc::clone(&self.inode), id),
        };
        let result = ticket.await;
        // Read before the file is closed. A caller that has not synced gets the error of a failed
        // flush here or never.
        let result =
            Undelivered::new(&self.shared, self.and_unreported(result.and(self.flushed())));
        if last == Last::Yes {
            let mut is_asked = false;
            poll_fn(|context| {
                if !std::mem::replace(&mut is_asked, true)
                    && (Leads::of(context.waker()) == Leads::Never
                        || !self.inode.close_here(&self.shared))
                {
                    self.shared.change(&self.inode, |file| {
                        file.look();
                    });
                }
                self.inode.poll_closed(&self.shared, context)
            })
            .await;
        }
        result.deliver()
    }

    /// Returns the error of a failed flush of the file.
    fn flushed(&self) -> Result<()> {
        let mut state = self.inode.lock();
        let poisoned = state.cache.poisoned();
        // The caller gets it.
        let _ = state.cache.take_unreported_flush();
        drop(state);
        poisoned.map_or(Ok(()), |errno| Err(self.inode.failure(Failure::Flush(errno))))
    }

    /// Requests the writing of everything and drops the handle. Wakers run once the table is
    /// unlocked: one may drop another handle.
    fn release<T>(
        &mut self,
        ask: impl Fn(&Arc<Inode>, &Base, TicketKind, &mut After) -> T,
    ) -> (T, Last) {
        self.closed = true;
        let mut after = After::default();
        let mut table = self.shared.table();
        let last = table.is_last(self.inode.identity);
        let request = if last == Last::Yes { TicketKind::Release } else { TicketKind::WriteOut };
        let asked = ask(&self.inode, &self.shared, request, &mut after);
        table.drop_handle(self.inode.identity);
        drop(table);
        self.shared.finish(&mut after);
        (asked, last)
    }

    pub(crate) fn ask(&self, request: TicketKind) -> Ticket {
        Ticket::new(Arc::clone(&self.inode), self.inode.ask(&self.shared, request))
    }

    /// Adds the error of an earlier page write, which is reported once to each handle, even if the
    /// page has been written since.
    pub(crate) fn and_unreported(&self, result: Result<()>) -> Result<()> {
        let mut seen = self.seen.load(Ordering::Relaxed);
        let unreported = self.inode.lock().cache.unreported_error(&mut seen);
        self.seen.store(seen, Ordering::Relaxed);
        match (result, unreported) {
            (Ok(()), Some((offset, errno))) => {
                Err(self.inode.failure(Failure::Write { offset, errno }))
            }
            (result, _) => result,
        }
    }

    pub(crate) fn may_write_at(&self) -> Result<()> {
        self.may_write()?;
        if self.open.append {
            let error = Error::new(
                ErrorKind::NotPermitted,
                "cannot write at an offset through a handle for appending",
            );
            return Err(error
                .at_path(&self.inode.path)
                .remedy("use append, or open the file with Open::write"));
        }
        Ok(())
    }

    fn may_write(&self) -> Result<()> {
        self.shared.check()?;
        if self.open.write {
            return Ok(());
        }
        Err(Error::for_reading(&self.inode.path))
    }

    /// Checks that the end can be moved: not on a block device.
    fn may_move_end(&self, what: &str, remedy: &str) -> Result<()> {
        match self.inode.fixed_size {
            None => Ok(()),
            Some(_) => Err(Error::new(ErrorKind::Unsupported, what)
                .at_path(&self.inode.path)
                .remedy(remedy.to_owned())),
        }
    }

    pub(crate) fn check_end(&self, end: Option<u64>, offset: u64) -> Result<()> {
        if let Some(size) = self.inode.fixed_size {
            return check_device_end(&self.inode.path, size, end, offset);
        }
        match end {
            Some(end) if end <= MAX_OFFSET && self.inode.can_reach(end) => Ok(()),
            end => Err(Error::too_long(&self.inode.path, offset, end)),
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if self.closed || !self.shared.is_parent() {
            return;
        }
        self.release(Inode::ask_unawaited_with);
    }
}

/// Checks that a range ends on the device.
pub(crate) fn check_device_end(
    path: &Path,
    size: u64,
    end: Option<u64>,
    offset: u64,
) -> Result<()> {
    if end.is_some_and(|end| end <= size) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::NoSpace,
        format!("the range ends beyond the end of the block device ({size} bytes)"),
    )
    .at_path(path)
    .at_offset(offset)
    .remedy("nothing was changed"))
}
