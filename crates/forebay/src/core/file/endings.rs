//! Syncs of a file, its writing out without a flush, and the end of its use: with its handle or
//! without.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_cache::{Failure, TicketKind};

use crate::core::answer::Undelivered;
use crate::core::base::Base;
use crate::core::error::{Error, Result};
use crate::core::file::File;
use crate::core::inode::Inode;
use crate::core::inode::change::After;
use crate::core::logged::route;
use crate::core::open::close::{close_here, poll_closed};
use crate::core::stats::Counters;
use crate::core::sync::SyncCall;
use crate::core::sync::lead::Leads;
use crate::core::sync::tickets::{Ticket, ask_to_close, ask_unawaited};
use crate::core::table::Last;
use crate::core::wait;
use crate::platform::clock;

impl File {
    /// Writes all data accepted before the call to the file system, without a flush. Blocks until
    /// it is written.
    ///
    /// Afterwards the data survives the death of this process, and other programs see it. It does
    /// not survive a power cut: that takes a sync. A sync that follows soon has less to write.
    /// Dropping the handle after it has nothing left to write: so a handle that is shared, and
    /// cannot be closed, loses no error.
    ///
    /// # Errors
    /// `Io`, or `NoSpace` if space or quota is missing, while a page cannot be written. The page
    /// stays dirty. An error that was overcome meanwhile is reported once to each handle.
    /// `Poisoned` after a panic has interrupted a change of the file's state.
    pub fn write_out(&self) -> Result<()> {
        wait::block_on(self.write_out_async())
    }

    /// Asynchronous form of [`File::write_out`]. The writing starts with the first poll, and
    /// dropping the future does not stop it.
    pub(crate) async fn write_out_async(&self) -> Result<()> {
        self.shared.check()?;
        let result = self.ask(TicketKind::WriteOut).await;
        self.and_unreported(result)
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
    pub(crate) async fn sync_data_async(&self) -> Result<()> {
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
    pub(crate) async fn sync_all_async(&self) -> Result<()> {
        self.sync(TicketKind::FlushAll).await
    }

    async fn sync(&self, request: TicketKind) -> Result<()> {
        self.shared.check()?;
        Counters::add(&self.shared.counters.syncs, 1);
        let result = match &self.shared.log {
            None => SyncCall::new(&self.inode, &self.shared, request).await,
            Some(log) => route::sync(&self.shared, log, &self.inode, request).await,
        };
        self.and_unreported(result)
    }

    /// Writes the file out, closes the handle, and reports the last errors. Blocks for at most
    /// [`Options::close_timeout`](crate::Options::close_timeout).
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
        let (timeout, path) = (self.shared.close_timeout(), self.inode.path.clone());
        let deadline = clock::instant().checked_add(timeout);
        wait::block_on_until(self.close_async(), deadline).unwrap_or_else(|| {
            Err(Error::late(&path)
                .remedy("the writing continues; Builder::on_error reports its errors"))
        })
    }

    /// Asynchronous form of [`File::close`], without a timeout.
    pub(crate) async fn close_async(mut self) -> Result<()> {
        self.shared.check()?;
        let (id, last) = self.release(ask_to_close);
        let ticket = match last {
            Last::Yes => Ticket::of_close(Arc::clone(&self.inode), id, Arc::clone(&self.shared)),
            Last::No => Ticket::new(Arc::clone(&self.inode), id),
        };
        let result = ticket.await.and(self.bring_into_place(last).await);
        // Read before the file is closed. A caller that has not synced gets the error of a failed
        // flush here or never.
        let result = Undelivered::new(
            Arc::clone(&self.shared),
            self.and_unreported(result.and(self.flushed())),
        );
        // A file with records that could not be brought into place stays open.
        if last == Last::Yes && !self.inode.lock().logging.is_live() {
            let mut is_asked = false;
            poll_fn(|context| {
                if !std::mem::replace(&mut is_asked, true)
                    && (Leads::of(context.waker()) == Leads::Never
                        || !close_here(&self.inode, &self.shared))
                {
                    self.shared.change(&self.inode, |file| {
                        file.look();
                    });
                }
                poll_closed(&self.inode, &self.shared, context)
            })
            .await;
        }
        result.deliver()
    }

    /// Brings the file into place before its last handle is closed, if the intent log has records
    /// of it.
    async fn bring_into_place(&self, last: Last) -> Result<()> {
        match &self.shared.log {
            Some(log) if last == Last::Yes && self.inode.lock().logging.is_live() => {
                route::Emptied::ask(&self.shared, log, &self.inode).await
            }
            _ => Ok(()),
        }
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
        assert!(!self.closed, "the file would be closed under another handle");
        self.closed = true;
        let mut after = After::default();
        let mut table = self.shared.table();
        let last = table.is_last(self.inode.identity);
        let request = if last == Last::Yes { TicketKind::Release } else { TicketKind::WriteOut };
        let asked = ask(&self.inode, &self.shared, request, &mut after);
        table.drop_handle(self.inode.identity);
        drop(table);
        self.shared.finish(&mut after);
        if let Some(log) = self.shared.log.as_ref().filter(|_| last == Last::Yes) {
            log.empty_soon(&self.inode);
        }
        (asked, last)
    }

    pub(crate) fn ask(&self, request: TicketKind) -> Ticket {
        Ticket::ask(&self.inode, &self.shared, request)
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
}

impl Drop for File {
    fn drop(&mut self) {
        if self.closed || !self.shared.is_parent() {
            return;
        }
        self.release(ask_unawaited);
    }
}
