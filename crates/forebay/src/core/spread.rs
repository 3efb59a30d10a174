//! Sets the number of contexts that files are spread among: by the knob, or as `load.rs` finds.
//!
//! Callers hold the lock `spreading`, so that all contexts see changes in the same order.

use std::fmt::Display;
use std::sync::Arc;

use forebay_block::Moment;

use crate::core::ended::Running;
use crate::core::error::Result;
use crate::core::home::Affinity;
use crate::core::limits::CONTEXTS;
use crate::core::settings::{Settings, Wanted};
use crate::core::shared::Shared;
use crate::platform::thread;

/// A change of the number in progress, which ends when this is dropped.
struct Change {
    shared: Arc<Shared>,
    /// The end of the engine waits for it. It is dropped last.
    _running: Running,
}

impl Drop for Change {
    fn drop(&mut self) {
        self.shared.load.end_change();
    }
}

impl Shared {
    /// Starts the first contexts. Returns the system calls that they use, in one line.
    ///
    /// # Errors
    /// If a context could not be started, with the reason.
    pub(crate) fn start(self: &Arc<Self>) -> Result<String> {
        let _spreading = self.spreading.lock();
        let settings = self.settings.lock().clone();
        Ok(self.spread(&settings)?.expect("nothing ran before"))
    }

    /// Spreads the files among the number of contexts set by the knob.
    ///
    /// # Errors
    /// If a context could not be started, with the reason.
    pub(crate) fn spread(self: &Arc<Self>, settings: &Settings) -> Result<Option<String>> {
        self.spread_among(self.load.begin(settings.contexts), settings)
    }

    /// Changes the number of contexts if a window has ended. A change may start a thread and a
    /// ring, so a short-lived thread makes it, which the end of the engine waits for.
    pub(crate) fn follow_load(self: &Arc<Self>, now: Moment, running: &Running) {
        let places = || match self.contexts.affinity() {
            Affinity::Single => Some(1),
            _ => self.table().places(),
        };
        let Some(active) = self.load.look(self, now, places) else { return };
        if active == self.contexts.active() || self.check().is_err() || !self.load.begin_change() {
            return;
        }
        let change = Change { shared: Arc::clone(self), _running: running.clone() };
        let run = move || {
            thread::mark_as_ours();
            if let Err(error) = change.shared.spread_found(active) {
                change.shared.keep_number(&error);
            }
        };
        if let Err(error) = thread::spawn("forebay-spread", run) {
            self.keep_number(&error);
        }
    }

    /// Has no more contexts tried than run, because another one could not be started.
    fn keep_number(&self, error: &dyn Display) {
        tracing::debug!(%error, "the number of contexts stays");
        self.load.limit(self.contexts.started());
    }

    /// Spreads the files among the number of contexts found best, unless the knob was set to a
    /// number meanwhile.
    fn spread_found(self: &Arc<Self>, active: usize) -> Result<()> {
        self.load.count_processors();
        let _spreading = self.spreading.lock();
        // Not locked meanwhile: callers read them.
        let settings = self.settings.lock().clone();
        if settings.contexts == Wanted::Adaptive && self.check().is_ok() {
            self.spread_among(active, &settings)?;
        }
        Ok(())
    }

    /// Spreads the files among `active` contexts, and starts missing ones. Returns once each
    /// context has its message, before the files have moved. The result describes the first context
    /// started here.
    ///
    /// # Errors
    /// If a context could not be started, with the reason.
    fn spread_among(
        self: &Arc<Self>,
        active: usize,
        settings: &Settings,
    ) -> Result<Option<String>> {
        assert!(
            (1..=CONTEXTS).contains(&active),
            "the number of contexts is out of range: {active}"
        );
        let mut first = None;
        while self.contexts.started() < active {
            let description = self.start_context(settings.of_context())?;
            first.get_or_insert(description);
        }
        self.contexts.spread(active, settings.affinity);
        Ok(first)
    }
}
