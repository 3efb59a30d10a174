//! Mutexes and condition variables for tasks of the world.
//!
//! The data lies in a mutex of the standard library that is never contended: the world decides who
//! may lock it. Outside all tasks (in a constant, after the end of a world) a mutex is a plain one.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{self, PoisonError, TryLockError};
use std::time::Instant;

use crate::platform::clock;
use crate::world::{self, Ended, Identity, Reason};

/// A mutex without poisoning.
#[derive(Default)]
pub struct Mutex<T: ?Sized> {
    identity: Identity,
    data: sync::Mutex<T>,
}

/// The right to use the data of a mutex.
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    /// `None` only while the guard is dropped or waits.
    data: Option<sync::MutexGuard<'a, T>>,
    /// The number under which the world knows the mutex; `None` if it was locked outside a task.
    number: Option<u64>,
}

impl<T> Mutex<T> {
    /// Makes a mutex.
    pub const fn new(data: T) -> Self {
        Self { identity: Identity::new(), data: sync::Mutex::new(data) }
    }

    /// Returns the data.
    pub fn into_inner(self) -> T {
        self.data.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until no other task holds the mutex, and locks it.
    ///
    /// # Panics
    /// Outside all tasks, if the mutex is locked: nobody could wait there.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        world::preempt();
        self.lock_now()
    }

    /// Returns the data, which nobody else can reach.
    pub fn get_mut(&mut self) -> &mut T {
        self.data.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks it, without a point of preemption before.
    fn lock_now(&self) -> MutexGuard<'_, T> {
        let number = world::task().map(|_| self.identity.number());
        if let Some(number) = number {
            world::acquire(number);
        }
        let data = match self.data.try_lock() {
            Ok(data) => data,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                panic!("mutex {number:?} is locked, and cannot be waited for outside all tasks")
            }
        };
        MutexGuard { mutex: self, data: Some(data), number }
    }
}

impl<T: ?Sized> MutexGuard<'_, T> {
    /// Unlocks the mutex, without a point of preemption.
    fn unlock(&mut self) {
        if self.data.take().is_some()
            && let Some(number) = self.number
        {
            world::release(number);
        }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    // The counts of `costs` must not depend on whether a caller inlines it.
    #[inline(never)]
    fn drop(&mut self) {
        if self.data.is_some() {
            self.unlock();
            world::preempt();
        }
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.data.as_ref().expect("a guard that is not dropped has the data")
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.data.as_mut().expect("a guard that is not dropped has the data")
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.data.fmt(formatter)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(formatter)
    }
}

/// A value that is made once. Tasks that want it while one makes it wait.
#[derive(Debug)]
pub struct OnceLock<T> {
    turn: Mutex<()>,
    value: sync::OnceLock<T>,
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> OnceLock<T> {
    /// Makes a place without a value.
    #[must_use]
    pub const fn new() -> Self {
        Self { turn: Mutex::new(()), value: sync::OnceLock::new() }
    }

    /// Returns the value, if it was made.
    pub fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// Puts a value in, unless there is one.
    ///
    /// # Errors
    /// The value, if there is one already.
    pub fn set(&self, value: T) -> Result<(), T> {
        let _turn = self.turn.lock();
        self.value.set(value)
    }

    /// Returns the value. The first caller makes it, and may block meanwhile.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.value.get() {
            return value;
        }
        let _turn = self.turn.lock();
        if let Some(value) = self.value.get() {
            return value;
        }
        let made = make();
        // Nobody else has the turn.
        self.value.get_or_init(|| made)
    }
}

/// A condition variable. A wait may end without a wake, as the standard library permits.
#[derive(Debug, Default)]
pub struct Condvar {
    identity: Identity,
}

impl Condvar {
    /// Makes a condition variable.
    #[must_use]
    pub const fn new() -> Self {
        Self { identity: Identity::new() }
    }

    /// Unlocks the mutex, waits until it is notified, and locks the mutex again.
    ///
    /// # Panics
    /// Outside all tasks.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.wait_until(guard, None).0
    }

    /// Waits until it is notified or until a deadline; returns true if the deadline has passed.
    ///
    /// # Panics
    /// Outside all tasks.
    pub fn wait_until<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        deadline: Option<Instant>,
    ) -> (MutexGuard<'a, T>, bool) {
        world::preempt();
        let mutex = guard.mutex;
        guard.unlock();
        drop(guard);
        let on = self.reason();
        let ended = if world::wakes_for_nothing() {
            world::yield_now();
            Ended::Woken
        } else {
            world::block(on, deadline.map(clock::moment_of))
        };
        (mutex.lock_now(), ended == Ended::TimedOut)
    }

    /// Wakes one task that waits, any of them.
    pub fn notify_one(&self) {
        world::preempt();
        if world::has_world() {
            world::wake_one(self.reason());
            world::preempt();
        }
    }

    /// Wakes all tasks that wait.
    pub fn notify_all(&self) {
        world::preempt();
        if world::has_world() {
            world::wake(self.reason());
            world::preempt();
        }
    }

    fn reason(&self) -> Reason {
        Reason { what: "condition", number: self.identity.number() }
    }
}
