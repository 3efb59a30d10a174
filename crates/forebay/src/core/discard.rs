//! Drops the dirty pages of a file: the way out if its device refuses all writes.
//!
//! The file is held first, so that reads and writes under way end and no new ones begin.

use std::sync::Arc;
use std::task::{Context, Poll};

use crate::core::error::{Error, ErrorKind, Result};
use crate::core::inode::Inode;
use crate::core::shared::Shared;

impl Inode {
    /// Drops the dirty pages once nothing is under way. Returns their number. The caller holds the
    /// file.
    pub(crate) fn poll_discard(
        self: &Arc<Self>,
        shared: &Shared,
        context: &Context<'_>,
    ) -> Poll<Result<u64>> {
        loop {
            shared.check()?;
            let waker = context.waker().clone();
            let mut state = self.lock();
            if state.is_orphaned() {
                let ended = Error::new(
                    ErrorKind::Shutdown,
                    "the engine stopped before the operation ended",
                );
                return Poll::Ready(Err(ended.at_path(&self.path)));
            }
            self.check_whole(&state)?;
            if !state.cache.can_discard() {
                state.wait_for_pages(waker);
                return Poll::Pending;
            }
            drop(state);
            // Nothing of ours changes it while the file is held.
            let disk_size = self.file.length().map_err(|error| {
                Error::new(ErrorKind::Io, "could not examine the file")
                    .at_path(&self.path)
                    .because(error)
            })?;
            let dropped = shared.change(self, |file| {
                // A reader or a writer that had begun before is not held up.
                self.check_whole(file)?;
                let can_discard = file.cache.can_discard();
                Ok(can_discard
                    .then(|| file.apply(|cache, settled| cache.discard_dirty(disk_size, settled))))
            })?;
            if let Some(pages) = dropped {
                return Poll::Ready(Ok(pages));
            }
        }
    }
}

/// Holds a file, so that reads and writes under way end and no new ones begin, until it is dropped.
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
            // Callers that were held up go on, and so does the context.
            file.wake();
            file.look();
        });
    }
}
