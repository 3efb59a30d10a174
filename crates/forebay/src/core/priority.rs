//! The knob `context_priority`: the scheduling class of the writeback threads.

use crate::core::error::{Error, ErrorKind, Result};
use crate::platform::thread;

/// Scheduling class of the writeback threads (knob `context_priority`).
///
/// ```no_run
/// # fn main() -> forebay::Result<()> {
/// use forebay::policy::ContextPriority;
///
/// let engine = forebay::Engine::builder().context_priority(ContextPriority::Realtime).build()?;
/// assert_eq!(engine.get("context_priority")?, "realtime");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Priority {
    /// That of the program.
    #[default]
    Normal,
    /// The lowest real-time priority (`SCHED_FIFO`). Needs `CAP_SYS_NICE`, or `RLIMIT_RTPRIO` of at
    /// least 1.
    Realtime,
}

impl Priority {
    /// Returns the name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Realtime => "realtime",
        }
    }

    /// Checks that a thread of this process may have it.
    ///
    /// # Errors
    /// `NotPermitted` with the remedy.
    pub(crate) fn check(self) -> Result<()> {
        if self == Self::Normal {
            return Ok(());
        }
        thread::try_realtime().map_err(|error| {
            let what = "cannot set context_priority to realtime";
            Error::new(ErrorKind::NotPermitted, what)
                .because(error)
                .remedy("raise RLIMIT_RTPRIO to 1 (`ulimit -r 1`) or grant CAP_SYS_NICE")
        })
    }

    /// Gives it to the calling thread. A failure is logged: the thread goes on as it is.
    pub(crate) fn apply(self) {
        if let Err(error) = thread::set_realtime(self == Self::Realtime) {
            tracing::warn!(%error, priority = self.name(), "could not set a context's priority");
        }
    }
}
