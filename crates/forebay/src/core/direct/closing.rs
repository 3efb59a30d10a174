//! Closing of a direct file, on a thread outside the contexts, because the file system may block.

use std::sync::Arc;
use std::task::{Context, Poll};

use crate::core::direct::direct_inode::DirectInode;
use crate::core::open::close::close;
use crate::core::shared::Shared;

impl DirectInode {
    /// Closes the file after its context has detached it, and wakes the callers that wait for that.
    /// May block.
    pub(crate) fn finish_closing(&self, shared: &Shared) {
        if let Err(error) = self.file.ofd_unlock() {
            tracing::debug!(path = %self.path.display(), %error, "could not unlock");
        }
        close(&self.path, &self.file);
        shared.end_closing(self.identity, self.target);
        self.closed();
    }

    /// Resolves when the file is closed, or was opened again, or the contexts have stopped.
    pub(crate) fn poll_closed(
        self: &Arc<Self>,
        shared: &Shared,
        context: &Context<'_>,
    ) -> Poll<()> {
        let is_held = shared.table().is_held_direct(self);
        self.poll_closing(context, || is_held || shared.is_orphaned())
    }
}
