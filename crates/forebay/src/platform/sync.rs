//! Locks.

use std::sync::PoisonError;
use std::time::Instant;

pub(crate) use std::sync::{MutexGuard, OnceLock};

/// A mutex that a panic does not poison: a panic under a file's lock poisons that file alone, and
/// must not take the data and the errors of others along.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    #[inline]
    pub(crate) const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    /// Locks it. Blocks while another thread has it.
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks it, unless another thread has it.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }
}

/// A condition that threads wait for under a [`Mutex`].
#[derive(Debug, Default)]
pub(crate) struct Condvar(std::sync::Condvar);

impl Condvar {
    pub(crate) const fn new() -> Self {
        Self(std::sync::Condvar::new())
    }

    /// Waits for a notification; it may also return without one.
    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Condvar::wait`], and until the deadline, if there is one. Returns whether the deadline
    /// has passed.
    pub(crate) fn wait_until<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        deadline: Option<Instant>,
    ) -> (MutexGuard<'a, T>, bool) {
        let Some(deadline) = deadline else { return (self.wait(guard), false) };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return (guard, true);
        }
        let waited = self.0.wait_timeout(guard, left);
        (waited.unwrap_or_else(PoisonError::into_inner).0, false)
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}
