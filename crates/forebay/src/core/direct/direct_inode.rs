//! State of a direct file that its handles and the context share.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use forebay_block::{Errno, Target};

use crate::core::direct::direct_change::Change;
use crate::core::error::{Error, ErrorKind};
use crate::core::share::subtract;
use crate::core::threads::Workers;
use crate::core::user_code;
use crate::platform::sync::{Mutex, MutexGuard};
use crate::platform::{Alignment, Identity, Kind};

/// A direct file. Its length is stored only here, for all handles and the context.
#[derive(Debug)]
pub(crate) struct DirectInode {
    pub(crate) target: Target,
    pub(crate) identity: Identity,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<crate::platform::OpenFile>,
    /// The thread for calls that may block on its file system.
    pub(crate) aside: Arc<Workers>,
    pub(crate) alignment: Alignment,
    /// Whether this engine created it, now or at an earlier open, so that its directory has to be
    /// synced with it.
    pub(crate) created: bool,
    /// Length in bytes, with every write that has ended. Only the context changes it.
    length: AtomicU64,
    /// Number of operations that have not ended, including those held by plugs.
    operations: AtomicU64,
    pub(crate) change: Change,
    closing: Mutex<Closing>,
}

#[derive(Debug, Default)]
struct Closing {
    is_closed: bool,
    wakers: Vec<Waker>,
}

/// Properties of a file when it is opened.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) target: Target,
    pub(crate) path: PathBuf,
    pub(crate) file: crate::platform::OpenFile,
    pub(crate) created: bool,
    pub(crate) length: u64,
    pub(crate) aside: Arc<Workers>,
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
            change: Change::default(),
            closing: Mutex::default(),
        }
    }

    /// Returns the block size in bytes. Parts of blocks are read, changed and written.
    pub(crate) fn block(&self) -> u64 {
        u64::from(self.alignment.offset.max(self.alignment.memory))
    }

    /// Returns whether it is a block device, which has a fixed length.
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
        subtract(&self.operations, 1, Ordering::Release, "an operation ends once");
    }

    /// Returns whether operations of the file have not ended, wherever they are.
    pub(crate) fn has_operations(&self) -> bool {
        self.operations.load(Ordering::Acquire) > 0
    }

    /// Notes that the file is closed, and wakes callers that wait for that.
    pub(crate) fn closed(&self) {
        let mut closing = self.closing();
        closing.is_closed = true;
        let wakers = std::mem::take(&mut closing.wakers);
        drop(closing);
        user_code::wake_all(wakers);
    }

    /// Resolves when the file is closed, or `is_over` returns true, which is called under the lock.
    pub(crate) fn poll_closing(
        &self,
        context: &Context<'_>,
        is_over: impl FnOnce() -> bool,
    ) -> Poll<()> {
        let waker = context.waker().clone();
        let mut closing = self.closing();
        if closing.is_closed || is_over() {
            return Poll::Ready(());
        }
        closing.wakers.push(waker);
        Poll::Pending
    }

    /// Wakes callers that wait for the file to be closed: it was opened again.
    pub(crate) fn wake_all(&self) {
        let wakers = std::mem::take(&mut self.closing().wakers);
        user_code::wake_all(wakers);
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
