//! Whose a knob is. Work on files has the engine's, requests have the queue's: a setting goes to whoever knows it, and
//! what nobody that is going to run knows is refused before anything is done.

use forebay_lab::plan::queue_knobs;

use crate::failure::Failure;
use crate::meaning::CompareRequest;

/// Settings, by whose they are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Settings {
    /// Of the engine, which looks at them itself.
    pub(super) engine: Vec<(String, String)>,
    /// Of the queue, looked at.
    pub(super) queue: Vec<(String, String)>,
}

impl Settings {
    /// Those of a request, for the suites it names.
    pub(super) fn sort(request: &CompareRequest) -> Result<Self, Failure> {
        let cuts = || request.suites.iter().flat_map(|suite| &suite.parts);
        let cuts = || cuts().filter_map(|part| part.cut(request.form));
        let requests = cuts().any(|cut| !cut.devices.is_empty());
        let files = cuts().any(|cut| cut.devices.is_empty());
        let mut settings = Self::default();
        for (key, value) in &request.settings {
            let own = (key.clone(), value.clone());
            if !requests || (files && !queue_knobs::NAMES.contains(&key.as_str())) {
                settings.engine.push(own);
                continue;
            }
            queue_knobs::check(key, value)
                .map_err(|why| Failure::usage(format!("--set {key}={value}: {why}")))?;
            settings.queue.push(own);
        }
        Ok(settings)
    }
}
