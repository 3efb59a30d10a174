//! Closing of a file, through the cache or past it, and the replacement of its descriptor.
//!
//! ```text
//! last handle dropped --> the context detaches it ----------> a thread closes it --> opens of it
//!                    `--> or the caller, if it waits anyway -^                       continue
//! ```
//!
//! A file is closed on a thread outside the contexts, because the file system may block.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::core::context::senders::Message;
use crate::core::error::{Error, Result};
use crate::core::inode::Inode;
use crate::core::inode::change::After;
use crate::core::inode::settle::{Heard, drop_pages, give_up};
use crate::core::limits::RENEW_LOOKS;
use crate::core::open::common::Common;
use crate::core::shared::Shared;
use crate::core::space::unmark;
use crate::core::table::AnyInode;
use crate::core::wait;
use crate::platform::{Access, clock};

impl Common {
    /// Unlocks the file for other engines.
    pub(crate) fn unlock(&self) {
        if let Err(error) = self.file.ofd_unlock() {
            tracing::debug!(path = %self.path.display(), %error, "could not unlock");
        }
    }

    /// Closes the descriptor and wakes the callers that wait for that. The file may still be
    /// referenced, but no request uses it. May block: the kernel deletes an unlinked file, and
    /// writes back a block device.
    pub(crate) fn close(&self, shared: &Shared) {
        if let Err(error) = self.file.close() {
            tracing::debug!(path = %self.path.display(), %error, "could not close the file yet");
        }
        shared.end_closing(self.identity, self.target);
        self.note_closed();
    }

    /// Resolves when the file is closed, or was opened again, or the contexts have stopped.
    pub(crate) fn poll_close(&self, shared: &Shared, context: &Context<'_>) -> Poll<()> {
        // Registered first: the file may be opened again at any time, and wakes those that wait.
        self.await_close(context.waker().clone());
        let is_over = self.is_closed() || shared.is_orphaned() || shared.table().is_held(self);
        if is_over { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// Closes the file after its context has detached it. May block.
pub(crate) fn finish_closing(inode: &Inode, shared: &Shared, generation: Option<u16>) {
    // A mark that stays is removed when the file is next opened.
    let _ = inode.catch(|| unmark(inode));
    inode.file.release_lease();
    if !inode.is_private {
        inode.unlock();
    }
    if let (Some(keeper), Some(generation)) = (&shared.keeper, generation) {
        // The keeper closes its descriptor first. The last close may block, and must not block
        // the keeper. A caller that waits for the closing then finds it closed there, too.
        keeper.remove(inode.target.0, generation);
    }
    inode.close(shared);
    // After a panic the callers have to be woken all the same.
    inode.catch(|| inode.closed()).unwrap_or_else(|| inode.closed());
}

/// Closes the file on the calling thread, if nothing of it is left to do and no context has it.
/// Returns false if the context has to close it. May block.
pub(crate) fn close_here(inode: &Arc<Inode>, shared: &Arc<Shared>) -> bool {
    let mut table = shared.table();
    if shared.is_left() || shared.is_orphaned() {
        return false;
    }
    let look = || inode.lock().begin_closing_here(|| table.begin_closing(inode));
    let Some(Some((entry, generation))) = inode.catch(look) else { return false };
    table.keep_entry(inode.identity, entry);
    drop(table);
    detached(inode, shared, &mut After::default());
    let (shared, closing) = (Arc::clone(shared), Arc::clone(inode));
    inode.aside.run_here(move || finish_closing(&closing, &shared, generation));
    true
}

/// Returns the error of a failed flush that no caller has got, once.
pub(crate) fn take_unreported(inode: &Inode) -> Option<Error> {
    let unreported = inode.catch(|| inode.lock().cache.take_unreported_flush()).flatten();
    unreported.map(|failure| inode.failure(failure))
}

/// Drops all pages of a file that is being closed and that no context has any longer. Reports a
/// failed flush that no caller has got.
pub(crate) fn detached(inode: &Arc<Inode>, shared: &Shared, after: &mut After) {
    // No handle is left to report it.
    if let Some(error) = take_unreported(inode) {
        shared.report(&error);
    }
    let dropped = inode.catch(|| {
        inode.change(shared, after, drop_pages);
        shared.pool.evictor().forget(inode.target);
    });
    if dropped.is_none() {
        after.forget_frames();
    }
    if !inode.is_interrupted() {
        debug_assert!(!inode.lock().cache.in_flight(), "the device would use frames that are free");
        return shared.finish(after);
    }
    // No context gets the alarm any longer.
    let heard = give_up(inode, shared, after);
    inode.lock().account.leave_arena();
    shared.finish(after);
    if heard == Some(Heard::No) {
        shared.report(&inode.interrupted());
    }
}

/// As [`Common::poll_close`]. The context ends the hold of completed writes for it.
pub(crate) fn poll_closed(inode: &Arc<Inode>, shared: &Shared, context: &Context<'_>) -> Poll<()> {
    let polled = inode.poll_close(shared, context);
    if polled.is_pending() && inode.lock().service.is_held() {
        shared.send(Message::Inode(Arc::clone(inode)));
    }
    polled
}

/// Returns whether writes can be accepted. The descriptor must allow them, and in an engine
/// with a keeper the arena must have a record of the file, unless it is temporary.
pub(crate) fn is_writable(inode: &Inode, shared: &Shared) -> bool {
    inode.file.access() == Access::ReadWrite
        && (inode.is_private
            || !shared.pool.is_survived()
            || inode.lock().account.generation().is_some())
}

/// Has the context register the descriptor once nothing is in flight, and waits for it.
///
/// # Errors
/// `Shutdown` if the engine stops before.
pub(crate) fn renew(inode: &Arc<Inode>, shared: &Shared) -> Result<()> {
    assert_eq!(inode.file.access(), Access::ReadWrite, "writes would go to the old descriptor");
    inode.lock().service.begin_renewing();
    shared.send(Message::Renew(AnyInode::Cached(Arc::clone(inode))));
    let renewed = || {
        poll_fn(|context| {
            let waker = context.waker().clone();
            let state = inode.lock();
            if !state.service.is_renewing() || state.service.is_orphaned() {
                return Poll::Ready(Ok(()));
            }
            shared.wait_for_pages(inode, state, waker);
            Poll::Pending
        })
    };
    // Requests at a hung device do not end, and a shutdown does not wake this thread.
    while wait::block_on_until(renewed(), Some(clock::instant() + RENEW_LOOKS)).is_none() {
        shared.check()?;
    }
    shared.check()
}

/// Has the context of the file look at it after a panic under its lock. Called once, when the
/// file is opened.
pub(crate) fn arm(inode: &Arc<Inode>, shared: &Arc<Shared>) {
    let (weak, shared) = (Arc::downgrade(inode), Arc::downgrade(shared));
    inode.set_alarm(move || {
        if let (Some(inode), Some(shared)) = (weak.upgrade(), shared.upgrade()) {
            shared.send(Message::Inode(inode));
        }
    });
}
