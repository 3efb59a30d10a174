//! The part of an open file that both strategies have: its names, its descriptor, and its close.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use forebay_block::Target;

use crate::core::aside::Aside;
use crate::core::user_code;
use crate::platform::sync::Mutex;
use crate::platform::{Identity, OpenFile};

/// An open file, without what its strategy adds.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) target: Target,
    pub(crate) identity: Identity,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<OpenFile>,
    /// The thread for calls that may block on its file system.
    pub(crate) aside: Arc<Aside>,
    is_closed: AtomicBool,
    /// Callers that wait for the close.
    closing: Mutex<Vec<Waker>>,
}

impl Common {
    pub(crate) fn new(target: Target, path: PathBuf, file: OpenFile, aside: Arc<Aside>) -> Self {
        let (identity, file) = (file.identity(), Arc::new(file));
        let (is_closed, closing) = (AtomicBool::new(false), Mutex::default());
        Self { target, identity, path, file, aside, is_closed, closing }
    }

    /// Returns whether the file is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Returns whether a caller waits for the close.
    pub(crate) fn is_close_awaited(&self) -> bool {
        !self.closing.lock().is_empty()
    }

    /// Notes that the file is closed, and wakes the callers that wait for that.
    pub(crate) fn note_closed(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.wake_closing();
    }

    /// Registers a caller that waits for the close. From then on it must look whether to wait.
    pub(crate) fn await_close(&self, waker: Waker) {
        self.closing.lock().push(waker);
    }

    /// Wakes the callers that wait for the close: the file was opened again, or no context is left.
    pub(crate) fn wake_closing(&self) {
        let wakers = std::mem::take(&mut *self.closing.lock());
        user_code::wake_all(wakers);
    }
}
