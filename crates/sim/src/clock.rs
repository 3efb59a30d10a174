//! Virtual time: it passes when somebody says so, and never else.

use std::time::Duration;

/// A clock that only its owner moves.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    now: Duration,
}

impl Clock {
    /// Time since the simulation began.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.now
    }

    /// It is this late now, if it was not later already.
    pub fn advance_to(&mut self, time: Duration) {
        self.now = self.now.max(time);
    }
}
