//! The end of an open file: closed beside the contexts, because the file system may block there.

use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::core::inode::Inode;
use crate::core::shared::Shared;

impl Inode {
    /// Closes the file, which the context has detached, and ends every wait for that. May block.
    pub(crate) fn finish_closing(&self, shared: &Shared, generation: Option<u16>) {
        // A mark that stays is removed when the file is next opened.
        let _ = self.catch(|| self.unmark());
        self.file.release_lease();
        if let Err(error) = self.file.ofd_unlock() {
            tracing::debug!(path = %self.path.display(), %error, "could not unlock");
        }
        if let (Some(keeper), Some(generation)) = (&shared.keeper, generation) {
            // Before it is closed here: the last close may block, and must not block the keeper.
            // A caller that waits for the closing finds that the keeper has let go of it, too.
            keeper.remove(self.target.0, generation);
        }
        close(&self.path, &self.file);
        shared.end_closing(self.identity, self.target);
        self.closed();
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

/// Closes the descriptor of a file that no request names any longer, even if the file is still
/// referred to. May block: it deletes a file without a name, and writes a block device out.
pub(crate) fn close(path: &Path, file: &crate::platform::File) {
    if let Err(error) = file.close() {
        tracing::debug!(path = %path.display(), %error, "the file is open a moment longer");
    }
}
