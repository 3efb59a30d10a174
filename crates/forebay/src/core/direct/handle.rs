//! A handle of a direct file, as the context sees it: the errors that it has to report.

use std::sync::{Arc, Weak};

use crate::core::error::{Error, Result};
use crate::platform::sync::{Mutex, MutexGuard};

/// The engine, as its handles see it: it reports errors that no caller asks for. Called only for
/// such errors, so a call through a table costs nothing.
pub(crate) trait LastResort: Send + Sync {
    /// Has the context call [`Handle::leave`]; calls it here if the contexts have stopped.
    fn ask(&self, handle: &Arc<Handle>);

    /// Reports an error to the callback of the engine.
    fn report(&self, error: &Error);

    /// Returns whether the calling process is the one that made the engine.
    fn is_parent(&self) -> bool;
}

/// Errors of a handle that were not reported yet: the first one of a write whose future was
/// dropped.
#[derive(Debug)]
pub(crate) struct Handle {
    engine: Weak<dyn LastResort>,
    untold: Mutex<Untold>,
}

#[derive(Debug, Default)]
struct Untold {
    /// At most one while a sync may ask; after that all there are, until they are reported to the
    /// engine's callback.
    errors: Vec<Error>,
    /// No sync will ask: errors go to the engine's callback.
    is_dropped: bool,
}

impl Handle {
    pub(crate) fn new(engine: &Arc<impl LastResort + 'static>) -> Self {
        let engine: Weak<dyn LastResort> = Arc::<_>::downgrade(engine) as _;
        Self { engine, untold: Mutex::default() }
    }

    /// Keeps an error until the next sync. If there will be none, the engine reports it.
    pub(crate) fn keep(self: &Arc<Self>, error: Error) {
        let mut untold = self.untold();
        if untold.is_dropped || untold.errors.is_empty() {
            untold.errors.push(error);
        }
        let is_dropped = untold.is_dropped;
        drop(untold);
        if is_dropped && let Some(engine) = self.engine.upgrade() {
            engine.ask(self);
        }
    }

    /// Takes the error that was not reported yet.
    pub(crate) fn take(&self) -> Option<Error> {
        self.untold().errors.pop()
    }

    /// Reports to the engine's callback the errors that were not reported yet, here: the handle
    /// goes, or is gone.
    pub(crate) fn leave(&self) {
        let mut untold = self.untold();
        untold.is_dropped = true;
        let errors = std::mem::take(&mut untold.errors);
        drop(untold);
        for error in errors {
            match self.engine.upgrade() {
                Some(engine) => engine.report(&error),
                None => tracing::error!(%error, "an error after the end of the engine"),
            }
        }
    }

    fn untold(&self) -> MutexGuard<'_, Untold> {
        self.untold.lock()
    }
}

/// The last resort, if neither a sync nor the context has asked for the errors.
impl Drop for Handle {
    fn drop(&mut self) {
        // In a forked child they are the parent's to report.
        if self.engine.upgrade().is_none_or(|engine| engine.is_parent()) {
            self.leave();
        }
    }
}

/// An error taken from its handle by a caller that may be dropped before it reports it: then it
/// goes back.
#[derive(Debug)]
pub(crate) struct Taken {
    handle: Arc<Handle>,
    error: Option<Error>,
}

impl Taken {
    pub(crate) fn from(handle: &Arc<Handle>) -> Self {
        Self { handle: Arc::clone(handle), error: handle.take() }
    }

    /// Reports it.
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
