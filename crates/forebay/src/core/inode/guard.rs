//! The lock of a file's state, and the end of the file's service if a panic passes through it
//! (contract 21).
//!
//! A panic under the lock leaves a state that is half changed. One of our assertions failed, and it
//! is unknown which numbers are wrong. A write from such a state would write wrong bytes, so
//! nothing is written from it again:
//!
//! ```text
//! panic under the lock -> drop of the guard, still under the lock:
//!     1. the mark in the file's record: the keeper writes nothing of the file
//!     2. an empty cache takes the place of the broken one, whose frames are leaked
//!     3. the alarm: the file's context gives up what the file counted for and wakes its callers
//! -> the lock opens -> every sync, write and read of the file fails until all handles are closed
//! ```
//!
//! Everything that runs later finds an empty cache that is consistent. So it cannot fail because of
//! the broken one, and gathers no bio of the file. The empty cache does not know of work that began
//! before the panic and ends after it: a bio in flight, a copy, an allocation. Only such work must
//! check [`Failures::is_interrupted`](super::counts::Failures::is_interrupted).
//!
//! Frames are leaked rather than freed. The device may read a frame, or a caller may copy into it,
//! and the state that would show this is broken. The memory comes back with the end of the engine.
//!
//! A copy runs between two changes, without the lock. A panic in it counts as one under the lock,
//! because its pages would stay busy for ever.
//!
//! Absent here: any other panic outside of a file's lock. On a context it ends the engine, as
//! before. With `panic = "abort"` there is no unwinding and no mark; the keeper finishes as after
//! any death.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;

use forebay_cache::file::Entry;
use forebay_cache::samples::Samples;
use forebay_cache::{CachedFile, Liberties, Origin};

use super::Inode;
use super::state::State;
use crate::platform::sync::MutexGuard;
use crate::platform::thread;

/// State of a file, locked.
#[derive(Debug)]
pub(crate) struct Locked<'a> {
    inode: &'a Inode,
    state: MutexGuard<'a, State>,
    /// Whether the thread was already unwinding when it took the lock: then the panic is not from
    /// this section.
    was_panicking: bool,
}

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

/// Runs before the mutex opens.
impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        let is_panicking = thread::panicking();
        if is_panicking && !self.was_panicking {
            self.interrupt();
        } else if cfg!(debug_assertions) && !is_panicking {
            self.check();
        }
    }
}

impl Locked<'_> {
    /// Checks that the parts of the state agree. If not, the file is interrupted as by any panic.
    fn check(&mut self) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.verify())) {
            self.interrupt();
            resume_unwind(panic);
        }
    }

    #[cold]
    fn interrupt(&mut self) {
        self.state.interrupt(self.inode.fixed_size);
        self.inode.note_interruption();
        self.inode.alarm.ring();
    }
}

/// Copy between two changes of a file.
struct Copying<'a> {
    inode: &'a Inode,
    was_panicking: bool,
}

impl Drop for Copying<'_> {
    #[inline]
    fn drop(&mut self) {
        if thread::panicking() && !self.was_panicking {
            // As if the lock had been held all the time.
            self.inode.lock().was_panicking = false;
        }
    }
}

/// Function that informs the context of a file of an interrupted change.
#[derive(Default)]
pub(crate) struct Alarm(OnceLock<Box<dyn Fn() + Send + Sync>>);

impl Alarm {
    /// Calls the function. Runs under the file's lock on a thread that is unwinding, so it takes no
    /// lock.
    fn ring(&self) {
        if let Some(ring) = self.0.get() {
            ring();
        }
    }
}

impl fmt::Debug for Alarm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Alarm")
    }
}

impl Inode {
    /// Locks the file, to look at it or to gather pages for writing. [`Inode::change`] locks it for
    /// changes with effects. Each cached write and read comes here twice.
    #[inline(always)]
    pub(crate) fn lock(&self) -> Locked<'_> {
        let state = self.state.lock();
        let locked = Locked { inode: self, state, was_panicking: thread::panicking() };
        #[cfg(test)]
        if thread::is_ours() {
            self.spring_trap();
        }
        locked
    }

    /// Runs a copy between two changes of the file. A panic in it interrupts the change.
    #[inline]
    pub(crate) fn copying<T>(&self, copy: impl FnOnce() -> T) -> T {
        let _copying = Copying { inode: self, was_panicking: thread::panicking() };
        copy()
    }

    /// Sets the function that informs the context of a panic under the lock. Called once, when the
    /// file is opened.
    pub(crate) fn set_alarm(&self, ring: impl Fn() + Send + Sync + 'static) {
        let armed = self.alarm.0.set(Box::new(ring));
        assert!(armed.is_ok(), "a file is opened once");
    }
}

impl State {
    /// Replaces a broken state by an empty one. Reads as little as possible of the broken one:
    /// plain numbers, which a panic leaves either unchanged or as intended.
    fn interrupt(&mut self, fixed_size: Option<u64>) {
        // First: from now on the keeper writes nothing of the file.
        self.account.interrupt();
        let entry = self.cache.entry();
        let (origin, liberties) = match (fixed_size, self.cache.disk_size()) {
            (Some(size), _) => (Origin::Device(size), Liberties::Exclusive),
            (None, 0) => (Origin::Empty { entry: Entry::Old }, Liberties::Shared),
            (None, length) => (Origin::Existing(length), Liberties::Shared),
        };
        let mut empty = CachedFile::new(self.cache.target(), origin, liberties);
        empty.set_entry(entry);
        self.cache = empty;
        self.charges.interrupt(self.failures.is_interrupted());
        self.samples = Samples::default();
        self.service.interrupt();
        self.ownership.interrupt();
        self.syncing.interrupt();
        self.failures.interrupt();
    }
}
