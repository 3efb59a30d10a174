//! State of a direct file that its handles and the context share, and the errors that a handle has
//! to report.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use crate::core::answer::Keeps;
use crate::core::error::{Error, Result};
use crate::core::open::common::Common;
use crate::core::share::subtract;
use crate::platform::sync::{Mutex, MutexGuard};
use crate::platform::{Alignment, Home, Kind};

/// A direct file. Its length is stored only here, for all handles and the context.
#[derive(Debug)]
pub(crate) struct DirectInode {
    common: Common,
    pub(crate) alignment: Alignment,
    /// Whether this engine created it, now or at an earlier open, so that its directory has to be
    /// synced with it.
    pub(crate) created: bool,
    /// Length in bytes, with every write that has ended. Only the context changes it.
    length: AtomicU64,
    /// Number of operations that have not ended, including those held by plugs.
    operations: AtomicU64,
}

impl Deref for DirectInode {
    type Target = Common;

    fn deref(&self) -> &Common {
        &self.common
    }
}

impl DirectInode {
    pub(crate) fn new(common: Common, created: bool, length: u64) -> Self {
        let alignment = common.file.alignment();
        Self {
            common,
            alignment,
            created,
            length: AtomicU64::new(length),
            operations: AtomicU64::new(0),
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
}

/// The engine as its handles see it: the reporter of errors that no caller asks for. It is called
/// only for such errors, so dynamic dispatch costs nothing.
pub(crate) trait ErrorSink: Send + Sync {
    /// Has the context call [`Handle::leave`]; calls it here if the contexts have stopped.
    fn ask(&self, handle: &Arc<Handle>);

    /// Reports an error to the callback of the engine.
    fn report(&self, error: &Error);
}

/// Unreported errors of a handle: the first error of a write or flush whose future was dropped.
#[derive(Debug)]
pub(crate) struct Handle {
    engine: Weak<dyn ErrorSink>,
    home: Home,
    unreported: Mutex<Unreported>,
}

#[derive(Debug, Default)]
struct Unreported {
    /// At most one error while a sync may still ask. After that all errors, until the engine's
    /// callback gets them.
    errors: Vec<Error>,
    /// Whether errors go to the engine's callback, because no sync will ask.
    is_dropped: bool,
}

impl Handle {
    pub(crate) fn new(engine: &Arc<impl ErrorSink + 'static>) -> Self {
        let engine: Weak<dyn ErrorSink> = Arc::<_>::downgrade(engine) as _;
        Self { engine, home: Home::here(), unreported: Mutex::default() }
    }

    /// Keeps an error until the next sync. If there will be none, the engine reports it.
    pub(crate) fn keep(self: &Arc<Self>, error: Error) {
        let mut unreported = self.unreported();
        if unreported.is_dropped || unreported.errors.is_empty() {
            unreported.errors.push(error);
        }
        let is_dropped = unreported.is_dropped;
        drop(unreported);
        if is_dropped && let Some(engine) = self.engine.upgrade() {
            engine.ask(self);
        }
    }

    /// Removes and returns the unreported error.
    ///
    /// # Errors
    /// That one.
    pub(crate) fn take(&self) -> Result<()> {
        self.unreported().errors.pop().map_or(Ok(()), Err)
    }

    /// Reports the unreported errors to the engine's callback on this thread, and does so for later
    /// ones. Called when the handle is dropped.
    pub(crate) fn leave(&self) {
        let mut unreported = self.unreported();
        unreported.is_dropped = true;
        let errors = std::mem::take(&mut unreported.errors);
        drop(unreported);
        for error in errors {
            match self.engine.upgrade() {
                Some(engine) => engine.report(&error),
                None => tracing::error!(%error, "an error occurred after the end of the engine"),
            }
        }
    }

    fn unreported(&self) -> MutexGuard<'_, Unreported> {
        self.unreported.lock()
    }
}

/// Reports errors that neither a sync nor the context has taken.
impl Drop for Handle {
    fn drop(&mut self) {
        // In a forked child the parent reports them.
        if self.home.is_here() {
            self.leave();
        }
    }
}

impl Keeps for Arc<Handle> {
    fn keep(&self, error: Error) {
        Handle::keep(self, error);
    }
}
