//! End of all threads of an engine's contexts: a count of guards, and a wait for zero.

use std::sync::Arc;
use std::time::Instant;

use crate::platform::sync::{Condvar, Mutex};

/// Count of guards.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    running: Mutex<usize>,
    changed: Condvar,
}

/// Guard of a thread that has not ended, or of the permission to start one.
#[derive(Debug)]
pub(crate) struct Running(Arc<Ended>);

impl Ended {
    /// Creates the count with its first guard.
    pub(crate) fn new() -> (Arc<Self>, Running) {
        let ended = Arc::new(Self { running: Mutex::new(1), changed: Condvar::default() });
        (Arc::clone(&ended), Running(ended))
    }

    /// Waits until the last guard is dropped. Returns false if the deadline comes first.
    pub(crate) fn wait(&self, deadline: Option<Instant>) -> bool {
        let mut running = self.running.lock();
        while *running > 0 {
            let is_late;
            (running, is_late) = self.changed.wait_until(running, deadline);
            if is_late {
                return *running == 0;
            }
        }
        true
    }
}

impl Clone for Running {
    fn clone(&self) -> Self {
        *self.0.running.lock() += 1;
        Self(Arc::clone(&self.0))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut running = self.0.running.lock();
        assert!(*running > 0, "a guard is dropped once");
        *running -= 1;
        if *running == 0 {
            drop(running);
            self.0.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::platform::{clock, thread};

    #[test]
    fn a_wait_ends_with_the_last_guard_or_at_the_deadline() {
        let (ended, running) = Ended::new();
        let other = running.clone();
        drop(running);
        assert!(!ended.wait(Some(clock::instant() + Duration::from_millis(5))));
        thread::spawn("drops", move || {
            thread::sleep(Duration::from_millis(5));
            drop(other);
        })
        .unwrap();
        assert!(ended.wait(None));
    }
}
