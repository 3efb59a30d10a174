//! What the handles of a direct file share, and what each of them has to tell.

use crate::platform::sync::{Mutex, MutexGuard};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use crate::platform::{Alignment, Identity, Kind};
use forebay_block::{Errno, Target};

use crate::core::aside::Aside;
use crate::core::context::Message;
use crate::core::direct::flow;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::inode::close;
use crate::core::shared::Shared;
use crate::core::user_code;

/// One file open direct: the one place where its end is known, for all handles and the context.
#[derive(Debug)]
pub(crate) struct DirectInode {
    pub(crate) target: Target,
    pub(crate) identity: Identity,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<crate::platform::File>,
    /// The thread for calls that may block on its file system.
    pub(crate) aside: Arc<Aside>,
    pub(crate) alignment: Alignment,
    /// This engine made it, now or at an earlier open, and its directory is to be made durable with
    /// it.
    pub(crate) created: bool,
    /// Bytes, with every write that has ended. The context's to change.
    length: AtomicU64,
    /// Operations made and not ended, those still held in a plug among them.
    operations: AtomicU64,
    closing: Mutex<Closing>,
}

#[derive(Debug, Default)]
struct Closing {
    is_closed: bool,
    wakers: Vec<Waker>,
}

/// What is known of a file when it is opened.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) target: Target,
    pub(crate) path: PathBuf,
    pub(crate) file: crate::platform::File,
    pub(crate) created: bool,
    pub(crate) length: u64,
    pub(crate) aside: Arc<Aside>,
}

impl DirectInode {
    pub(crate) fn new(opened: Opened) -> Self {
        let Opened { target, path, file, created, length, aside } = opened;
        let (identity, alignment) = (file.identity(), file.alignment());
        Self {
            target,
            identity,
            path,
            file: Arc::new(file),
            aside,
            alignment,
            created,
            length: AtomicU64::new(length),
            operations: AtomicU64::new(0),
            closing: Mutex::default(),
        }
    }

    /// Bytes in a block: what is not whole ones is read, changed and written.
    pub(crate) fn block(&self) -> u64 {
        u64::from(self.alignment.offset.max(self.alignment.memory))
    }

    /// Whether it is a block device, which keeps its length.
    pub(crate) fn is_device(&self) -> bool {
        self.file.kind() == Kind::Block
    }

    pub(crate) fn length(&self) -> u64 {
        self.length.load(Ordering::Acquire)
    }

    pub(crate) fn set_length(&self, length: u64) {
        self.length.store(length, Ordering::Release);
    }

    pub(crate) fn add_operation(&self) {
        self.operations.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn remove_operation(&self) {
        self.operations.fetch_sub(1, Ordering::Release);
    }

    /// Whether operations are on their way, wherever.
    pub(crate) fn has_operations(&self) -> bool {
        self.operations.load(Ordering::Acquire) > 0
    }

    /// Closes the file, which the context has detached, and wakes the callers that wait for that.
    /// May block.
    pub(crate) fn finish_closing(&self, shared: &Shared) {
        if let Err(error) = self.file.ofd_unlock() {
            tracing::debug!(path = %self.path.display(), %error, "could not unlock");
        }
        close(&self.path, &self.file);
        shared.end_closing(self.identity, self.target);
        let mut closing = self.closing();
        closing.is_closed = true;
        let wakers = std::mem::take(&mut closing.wakers);
        drop(closing);
        user_code::wake_all(wakers);
    }

    /// Somebody has opened it again while it was being closed: nobody waits for its end any more.
    pub(crate) fn wake_all(&self) {
        let wakers = std::mem::take(&mut self.closing().wakers);
        user_code::wake_all(wakers);
    }

    /// Resolves when it is closed, or somebody has opened it again, or there is no
    /// context.
    pub(crate) fn poll_closed(
        self: &Arc<Self>,
        shared: &Shared,
        context: &Context<'_>,
    ) -> Poll<()> {
        let waker = context.waker().clone();
        let is_held = shared.table().is_held_direct(self);
        let mut closing = self.closing();
        if closing.is_closed || is_held || shared.is_orphaned() {
            return Poll::Ready(());
        }
        closing.wakers.push(waker);
        Poll::Pending
    }

    fn closing(&self) -> MutexGuard<'_, Closing> {
        self.closing.lock()
    }

    pub(crate) fn failed(&self, what: &str, offset: u64, errno: Errno) -> Error {
        let cause = std::io::Error::from_raw_os_error(errno.0);
        Error::new(ErrorKind::at_device(&cause), what)
            .at_path(&self.path)
            .at_offset(offset)
            .because(cause)
    }
}

/// What a handle has to tell: the first error of a write whose future was dropped.
#[derive(Debug)]
pub(crate) struct Handle {
    shared: Weak<Shared>,
    untold: Mutex<Untold>,
}

#[derive(Debug, Default)]
struct Untold {
    /// One while somebody may ask; after that all there are, until the engine's callback is told.
    errors: Vec<Error>,
    /// Nobody will ask: the engine's callback is told.
    is_dropped: bool,
}

impl Handle {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::downgrade(shared), untold: Mutex::default() }
    }

    /// Keeps an error until the next sync; where there will be none, the context is asked to tell
    /// it.
    pub(crate) fn keep(self: &Arc<Self>, error: Error) {
        let mut untold = self.untold();
        if untold.is_dropped || untold.errors.is_empty() {
            untold.errors.push(error);
        }
        let is_dropped = untold.is_dropped;
        drop(untold);
        if is_dropped && let Some(shared) = self.shared.upgrade() {
            shared.send(Message::Direct(flow::Message::Lost(Arc::clone(self))));
            // Otherwise there was a context after it had been sent, which takes it in, if only at
            // its end.
            if shared.is_orphaned() {
                self.leave();
            }
        }
    }

    /// The error nobody was told of yet.
    pub(crate) fn take(&self) -> Option<Error> {
        self.untold().errors.pop()
    }

    /// The handle goes, or has gone: what nobody was told of is told to the engine's callback,
    /// here.
    pub(crate) fn leave(&self) {
        let mut untold = self.untold();
        untold.is_dropped = true;
        let errors = std::mem::take(&mut untold.errors);
        drop(untold);
        for error in errors {
            match self.shared.upgrade() {
                Some(shared) => shared.report(&error),
                None => tracing::error!(%error, "an error after the end of the engine"),
            }
        }
    }

    fn untold(&self) -> MutexGuard<'_, Untold> {
        self.untold.lock()
    }
}

/// The last resort, where neither a sync nor the context came for it.
impl Drop for Handle {
    fn drop(&mut self) {
        // In a forked child it is the parent's to tell.
        if self.shared.upgrade().is_none_or(|shared| shared.is_parent()) {
            self.leave();
        }
    }
}

/// An error taken from its handle by somebody who may not come to tell it: then it goes back.
#[derive(Debug)]
pub(crate) struct Taken {
    handle: Arc<Handle>,
    error: Option<Error>,
}

impl Taken {
    pub(crate) fn from(handle: &Arc<Handle>) -> Self {
        Self { handle: Arc::clone(handle), error: handle.take() }
    }

    /// It is told now.
    pub(crate) fn tell(mut self) -> Result<()> {
        self.error.take().map_or(Ok(()), Err)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(error) = self.error.take() {
            self.handle.keep(error);
        }
    }
}
