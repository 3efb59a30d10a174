//! Errors that a handle of a direct file has to report, as the context sees the handle.

use std::sync::{Arc, Weak};

use crate::core::error::{Error, Result};
use crate::platform::sync::{Mutex, MutexGuard};

/// The engine as its handles see it: the reporter of errors that no caller asks for. It is called
/// only for such errors, so dynamic dispatch costs nothing.
pub(crate) trait ErrorSink: Send + Sync {
    /// Has the context call [`Handle::leave`]; calls it here if the contexts have stopped.
    fn ask(&self, handle: &Arc<Handle>);

    /// Reports an error to the callback of the engine.
    fn report(&self, error: &Error);

    /// Returns whether the calling process is the one that made the engine.
    fn is_parent(&self) -> bool;
}

/// Unreported errors of a handle: the first error of a write or flush whose future was dropped.
#[derive(Debug)]
pub(crate) struct Handle {
    engine: Weak<dyn ErrorSink>,
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
        Self { engine, unreported: Mutex::default() }
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
    pub(crate) fn take(&self) -> Option<Error> {
        self.unreported().errors.pop()
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
        if self.engine.upgrade().is_none_or(|engine| engine.is_parent()) {
            self.leave();
        }
    }
}

/// Error taken from its handle. It goes back if its owner is dropped before reporting it.
#[derive(Debug)]
pub(crate) struct Taken {
    handle: Arc<Handle>,
    error: Option<Error>,
}

impl Taken {
    pub(crate) fn from(handle: &Arc<Handle>) -> Self {
        Self { handle: Arc::clone(handle), error: handle.take() }
    }

    /// Holds the result of a call until its caller gets it.
    pub(crate) fn of<T>(handle: &Arc<Handle>, result: Result<T>) -> Self {
        Self { handle: Arc::clone(handle), error: result.err() }
    }

    /// Returns the error to the caller.
    pub(crate) fn report(mut self) -> Result<()> {
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
