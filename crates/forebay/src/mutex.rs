//! How every mutex of the engine is locked.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks it, though somebody may have panicked who had it: that was a bug of ours and has been
/// reported, and must not take everybody else's data and errors along.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
