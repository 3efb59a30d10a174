//! Closing of a file, on a thread outside the contexts, because the file system may block.

use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::core::inode::Inode;
use crate::core::shared::Shared;

impl Inode {
    /// Closes the file after its context has detached it, and wakes the callers that wait for that.
    /// May block.
    pub(crate) fn finish_closing(&self, shared: &Shared, generation: Option<u16>) {
        // A mark that stays is removed when the file is next opened.
        let _ = self.catch(|| self.unmark());
        self.file.release_lease();
        if let Err(error) = self.file.ofd_unlock() {
            tracing::debug!(path = %self.path.display(), %error, "could not unlock");
        }
        if let (Some(keeper), Some(generation)) = (&shared.keeper, generation) {
            // The keeper closes its descriptor first. The last close may block, and must not block
            // the keeper. A caller that waits for the closing then finds it closed there, too.
            keeper.remove(self.target.0, generation);
        }
        close(&self.path, &self.file);
        shared.end_closing(self.identity, self.target);
        // After a panic the callers have to be woken all the same.
        self.catch(|| self.closed()).unwrap_or_else(|| self.closed());
    }

    /// Resolves when the file is closed, or was opened again.
    pub(crate) fn poll_closed(
        self: &Arc<Self>,
        shared: &Shared,
        context: &Context<'_>,
    ) -> Poll<()> {
        let waker = context.waker().clone();
        let is_held = shared.table().is_held(self);
        let mut state = self.lock();
        if state.is_closed() || state.is_orphaned() || is_held {
            return Poll::Ready(());
        }
        state.wait_for_pages(waker);
        Poll::Pending
    }
}

/// Closes the descriptor of a file that no request uses any longer, even if the file is still
/// referenced. May block: the kernel deletes an unlinked file, and writes back a block device.
pub(crate) fn close(path: &Path, file: &crate::platform::File) {
    if let Err(error) = file.close() {
        tracing::debug!(path = %path.display(), %error, "could not close the file yet");
    }
}
