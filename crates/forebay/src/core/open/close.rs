//! The descriptor of an open file: replaced once the file is opened for writing, and closed on a
//! thread outside the contexts, because the file system may block.

use std::future::poll_fn;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};

use forebay_cache::file::Entry;

use crate::core::context::senders::Message;
use crate::core::error::{Error, Result};
use crate::core::inode::change::After;
use crate::core::inode::{Heard, Inode};
use crate::core::limits::RENEW_LOOKS;
use crate::core::shared::Shared;
use crate::core::wait;
use crate::platform::{Access, clock};

impl Inode {
    /// Closes the file after its context has detached it, and wakes the callers that wait for that.
    /// May block.
    pub(crate) fn finish_closing(&self, shared: &Shared, generation: Option<u16>) {
        // A mark that stays is removed when the file is next opened.
        let _ = self.catch(|| self.unmark());
        self.file.release_lease();
        if !self.is_private
            && let Err(error) = self.file.ofd_unlock()
        {
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

    /// Closes the file on the calling thread, if nothing of it is left to do and no context has it.
    /// Returns false if the context has to close it. May block.
    pub(crate) fn close_here(self: &Arc<Self>, shared: &Arc<Shared>) -> bool {
        let mut table = shared.table();
        if shared.is_left() || shared.is_orphaned() {
            return false;
        }
        let look = || self.lock().begin_closing_here(|| table.begin_closing(self));
        let Some(Some((entry, generation))) = self.catch(look) else { return false };
        if entry == Entry::New {
            table.unsynced.remember(self.identity);
        }
        drop(table);
        self.detached(shared, &mut After::default());
        let (shared, closing) = (Arc::clone(shared), Arc::clone(self));
        self.volume.aside.run_here(move || closing.finish_closing(&shared, generation));
        true
    }

    /// Returns the error of a failed flush that no caller has got, once.
    pub(crate) fn take_unreported(&self) -> Option<Error> {
        let unreported = self.catch(|| self.lock().cache.take_unreported_flush()).flatten();
        unreported.map(|failure| self.failure(failure))
    }

    /// Drops all pages of a file that is being closed and that no context has any longer. Reports a
    /// failed flush that no caller has got.
    pub(crate) fn detached(self: &Arc<Self>, shared: &Shared, after: &mut After) {
        // No handle is left to report it.
        if let Some(error) = self.take_unreported() {
            shared.report(&error);
        }
        let dropped = self.catch(|| {
            self.change(shared, after, |file| file.close(shared));
            shared.pool.evictor().forget(self.target);
        });
        if dropped.is_none() {
            after.forget_frames();
        }
        if !self.is_interrupted() {
            return shared.finish(after);
        }
        // No context gets the alarm any longer.
        let heard = self.give_up(shared, after);
        self.lock().leave_arena(shared);
        shared.finish(after);
        if heard == Some(Heard::No) {
            shared.report(&self.interrupted());
        }
    }

    /// Resolves when the file is closed, or was opened again.
    pub(crate) fn poll_closed(
        self: &Arc<Self>,
        shared: &Shared,
        context: &Context<'_>,
    ) -> Poll<()> {
        let waker = context.waker().clone();
        let is_held = shared.table().is_held(self);
        let state = self.lock();
        if state.is_closed() || state.is_orphaned() || is_held {
            return Poll::Ready(());
        }
        shared.wait_for_pages(self, state, waker);
        Poll::Pending
    }
}

/// Closes the descriptor of a file that no request uses any longer, even if the file is still
/// referenced. May block: the kernel deletes an unlinked file, and writes back a block device.
pub(crate) fn close(path: &Path, file: &crate::platform::OpenFile) {
    if let Err(error) = file.close() {
        tracing::debug!(path = %path.display(), %error, "could not close the file yet");
    }
}

impl Inode {
    /// Returns whether writes can be accepted. The descriptor must allow them, and in an engine
    /// with a keeper the arena must have a record of the file, unless it is temporary.
    pub(crate) fn is_writable(&self, shared: &Shared) -> bool {
        self.file.access() == Access::ReadWrite
            && (self.is_private || !shared.pool.is_survived() || self.lock().generation().is_some())
    }

    /// Has the context register the descriptor once nothing is in flight, and waits for it.
    ///
    /// # Errors
    /// `Shutdown` if the engine stops before.
    pub(crate) fn renew(self: &Arc<Self>, shared: &Shared) -> Result<()> {
        self.lock().is_renewing = true;
        shared.send(Message::Renew(Arc::clone(self)));
        let renewed = || {
            poll_fn(|context| {
                let waker = context.waker().clone();
                let state = self.lock();
                if !state.is_renewing || state.is_orphaned() {
                    return Poll::Ready(Ok(()));
                }
                shared.wait_for_pages(self, state, waker);
                Poll::Pending
            })
        };
        // Requests at a hung device do not end, and a shutdown does not wake this thread.
        while wait::block_on_until(renewed(), Some(clock::instant() + RENEW_LOOKS)).is_none() {
            shared.check()?;
        }
        shared.check()
    }
}

impl Inode {
    /// Has the context of the file look at it after a panic under its lock. Called once, when the
    /// file is opened.
    pub(crate) fn arm(self: &Arc<Self>, shared: &Arc<Shared>) {
        let (inode, shared) = (Arc::downgrade(self), Arc::downgrade(shared));
        self.set_alarm(move || {
            if let (Some(inode), Some(shared)) = (inode.upgrade(), shared.upgrade()) {
                shared.send(Message::Inode(inode));
            }
        });
    }
}
