//! The start of the two threads of a log.

use std::sync::Arc;

use super::batches::Writer;
use super::{IntentLog, emptying};
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::intent_log::file::LogFile;
use crate::core::shared::Shared;
use crate::platform::{clock, thread};

/// Starts both threads of a log. A keeper waits for their end.
///
/// # Errors
/// `Io` if one could not be started.
pub(crate) fn start(shared: &Arc<Shared>, log: &Arc<IntentLog>, file: LogFile) -> Result<()> {
    let guard = log.take_guard();
    let alive = shared.keeper.as_ref().and_then(|keeper| keeper.alive());
    let (alive_too, guard_too) = (alive.clone(), guard.clone());
    let not_started = |error| {
        // Without a wait: this thread holds a guard.
        log.end(Some(clock::instant()));
        Error::new(ErrorKind::Io, "could not start a thread of the intent log").because(error)
    };
    let writer = Writer::new(shared, log, file);
    let write = move || {
        writer.run();
        drop((alive_too, guard_too));
    };
    thread::spawn("forebay-log", write).map_err(not_started)?;
    let (shared, of_empty) = (Arc::clone(shared), Arc::clone(log));
    let empty = move || {
        emptying::run(&shared, &of_empty);
        drop((alive, guard));
    };
    thread::spawn("forebay-empty", empty).map_err(not_started)
}
