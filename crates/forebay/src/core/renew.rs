//! Opens a file for writing that was open only for reading. Its descriptor has been replaced, and
//! the context registers the new one.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use crate::core::error::Result;
use crate::core::inode::Inode;
use crate::core::limits::RENEW_LOOKS;
use crate::core::message::Message;
use crate::core::shared::Shared;
use crate::core::wait;
use crate::platform::Access;
use crate::platform::clock;

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
