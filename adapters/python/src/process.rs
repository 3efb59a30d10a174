//! Forks and locks. A child must not take a lock that a thread of its parent held.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::failure::Failure;

/// Number of forks between the first process and this one.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Marks this process as a child. All objects that exist already belong to its parent.
#[pyo3::pyfunction]
pub(crate) fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// The process that made an object.
#[derive(Clone, Copy)]
pub(crate) struct Birth(u64);

impl Birth {
    pub(crate) fn here() -> Self {
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// Returns an error in another process.
    pub(crate) fn check(self) -> Result<(), Failure> {
        if self.0 == FORKS.load(Ordering::Relaxed) { Ok(()) } else { Err(Failure::Forked) }
    }
}

/// Locks a mutex, also after a panic of another thread: every value here is whole at all times.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
