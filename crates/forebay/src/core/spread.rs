//! Sets the number of contexts that files are spread among, by the knob.
//!
//! Callers hold the lock of the settings, so that all contexts see changes in the same order.

use std::sync::Arc;

use crate::core::error::Result;
use crate::core::limits::CONTEXTS;
use crate::core::settings::Settings;
use crate::core::shared::Shared;

impl Shared {
    /// Starts the first contexts. Returns the system calls that they use, in one line.
    ///
    /// # Errors
    /// If a context could not be started, with the reason.
    pub(crate) fn start(self: &Arc<Self>) -> Result<String> {
        let settings = self.settings.lock();
        Ok(self.spread(&settings)?.expect("nothing ran before"))
    }

    /// Spreads the files among the number of contexts set by the knob, and starts missing ones.
    /// Returns once each context has its message, before the files have moved. The result describes
    /// the first context started here.
    ///
    /// # Errors
    /// If a context could not be started, with the reason.
    pub(crate) fn spread(self: &Arc<Self>, settings: &Settings) -> Result<Option<String>> {
        let active = settings.contexts;
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
