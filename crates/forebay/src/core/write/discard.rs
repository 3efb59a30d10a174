//! Drops the dirty pages of a file: the remedy if its device refuses all writes.
//!
//! The file is held first: reads and writes in progress end, and no new ones begin.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use forebay_cache::limits::PAGE;

use crate::core::direct::plug::plugged_no_more;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::file::File;
use crate::core::inode::Inode;
use crate::core::logged::route::PastLog;
use crate::core::shared::Shared;
use crate::core::wait;

/// Drops the dirty pages once no operation is in progress. Returns their number. The caller
/// holds the file.
fn poll_discard(inode: &Arc<Inode>, shared: &Shared, context: &Context<'_>) -> Poll<Result<u64>> {
    loop {
        shared.check()?;
        let waker = context.waker().clone();
        let state = inode.lock();
        if state.service.is_orphaned() {
            let ended =
                Error::new(ErrorKind::Shutdown, "the engine stopped before the operation ended");
            return Poll::Ready(Err(ended.at_path(&inode.path)));
        }
        inode.check_whole(&state)?;
        if !state.cache.can_discard() {
            shared.wait_for_pages(inode, state, waker);
            return Poll::Pending;
        }
        drop(state);
        // This engine does not change the size while the file is held.
        let disk_size = inode.file.length().map_err(|error| {
            Error::new(ErrorKind::Io, "could not examine the file")
                .at_path(&inode.path)
                .because(error)
        })?;
        let dropped = shared.change(inode, |file| {
            inode.check_whole(file)?;
            // An operation that began before the hold may still be running.
            let can_discard = file.cache.can_discard();
            Result::Ok(
                can_discard
                    .then(|| file.apply(|cache, settled| cache.discard_dirty(disk_size, settled))),
            )
        })?;
        if let Some(pages) = dropped {
            return Poll::Ready(Ok(pages));
        }
    }
}

/// Hold of a file until dropped: operations in progress end, and no new ones begin.
#[derive(Debug)]
pub(crate) struct FileHold<'a> {
    inode: &'a Arc<Inode>,
    shared: &'a Shared,
}

impl<'a> FileHold<'a> {
    pub(crate) fn new(inode: &'a Arc<Inode>, shared: &'a Shared) -> Self {
        inode.lock().cache.begin_discard();
        Self { inode, shared }
    }
}

impl Drop for FileHold<'_> {
    fn drop(&mut self) {
        if !self.inode.is_here() {
            return;
        }
        self.shared.change(self.inode, |file| {
            if !file.failures.is_interrupted() {
                file.cache.end_discard();
            }
            // Waiting callers and the context continue.
            file.wake();
            if file.cache.is_dirty() || file.cache.kept_pages() > 0 || file.cache.has_tickets() {
                file.look();
            }
        });
    }
}

impl File {
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
    pub fn abandon_unwritten(&self) -> Result<u64> {
        wait::block_on(self.abandon_unwritten_async())
    }

    /// Asynchronous form of [`File::abandon_unwritten`]. If the future is dropped before it ends,
    /// no data is dropped.
    pub(crate) async fn abandon_unwritten_async(&self) -> Result<u64> {
        self.may_write()?;
        // The end may move, so no append may be in progress.
        let turn = poll_fn(|context| self.poll_append(context)).await;
        // Bytes that a sync has acknowledged are in place after this, and not dropped.
        let _past = PastLog::begin(&self.shared, &self.inode).await?;
        let hold = FileHold::new(&self.inode, &self.shared);
        let dropped =
            poll_fn(|context| plugged_no_more(poll_discard(&self.inode, &self.shared, context)))
                .await;
        drop(hold);
        drop(turn);
        let pages = dropped?;
        // The caller asked for this, so the error is not reported again.
        let _ = self.and_unreported(Ok(()));
        Ok(pages * PAGE)
    }
}
