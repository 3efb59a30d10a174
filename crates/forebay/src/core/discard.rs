//! Drops the dirty pages of a file: the remedy if its device refuses all writes.
//!
//! The file is held first: reads and writes in progress end, and no new ones begin.

use std::sync::Arc;
use std::task::{Context, Poll};

use crate::core::error::{Error, ErrorKind, Result};
use crate::core::inode::Inode;
use crate::core::shared::Shared;

impl Inode {
    /// Drops the dirty pages once no operation is in progress. Returns their number. The caller
    /// holds the file.
    pub(crate) fn poll_discard(
        self: &Arc<Self>,
        shared: &Shared,
        context: &Context<'_>,
    ) -> Poll<Result<u64>> {
        loop {
            shared.check()?;
            let waker = context.waker().clone();
            let state = self.lock();
            if state.is_orphaned() {
                let ended = Error::new(
                    ErrorKind::Shutdown,
                    "the engine stopped before the operation ended",
                );
                return Poll::Ready(Err(ended.at_path(&self.path)));
            }
            self.check_whole(&state)?;
            if !state.cache.can_discard() {
                shared.wait_for_pages(self, state, waker);
                return Poll::Pending;
            }
            drop(state);
            // This engine does not change the size while the file is held.
            let disk_size = self.file.length().map_err(|error| {
                Error::new(ErrorKind::Io, "could not examine the file")
                    .at_path(&self.path)
                    .because(error)
            })?;
            let dropped =
                shared.change(self, |file| {
                    self.check_whole(file)?;
                    // An operation that began before the hold may still be running.
                    let can_discard = file.cache.can_discard();
                    Result::Ok(can_discard.then(|| {
                        file.apply(|cache, settled| cache.discard_dirty(disk_size, settled))
                    }))
                })?;
            if let Some(pages) = dropped {
                return Poll::Ready(Ok(pages));
            }
        }
    }
}

/// Hold of a file until dropped: operations in progress end, and no new ones begin.
#[derive(Debug)]
pub(crate) struct Hold<'a> {
    inode: &'a Arc<Inode>,
    shared: &'a Shared,
}

impl<'a> Hold<'a> {
    pub(crate) fn new(inode: &'a Arc<Inode>, shared: &'a Shared) -> Self {
        inode.lock().cache.begin_discard();
        Self { inode, shared }
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.shared.change(self.inode, |file| {
            if !file.is_interrupted() {
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
