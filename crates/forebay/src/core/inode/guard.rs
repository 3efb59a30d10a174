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
//! check [`State::is_interrupted`].
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
use std::sync::{Arc, OnceLock};

use forebay_cache::file::Entry;
use forebay_cache::samples::Samples;
use forebay_cache::{CachedFile, FrameRuns, Liberties, Origin};

use super::{Inode, State};
use crate::core::base::Base;
use crate::core::error::Result;
use crate::core::inode::change::After;
use crate::core::sync::lead::Lead;
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
    /// Checks that the level counts what the file has. A broken state is counted until its context
    /// gives it up.
    fn check(&mut self) {
        let is_counted = self.is_interrupted || self.is_counted();
        if !is_counted {
            self.interrupt();
        }
        debug_assert!(is_counted, "a change counts itself at its end");
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

/// Whether a caller waits for a ticket of a file, and so gets the error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Heard {
    /// A caller waits.
    Yes,
    /// No caller waits, so the engine's callback must be called.
    No,
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

    /// Refuses a call for a file whose change was interrupted.
    ///
    /// # Errors
    /// `Poisoned`.
    #[inline]
    pub(crate) fn check_whole(&self, state: &State) -> Result<()> {
        if state.is_interrupted { Err(self.interrupted()) } else { Ok(()) }
    }

    /// Takes back all counts of an interrupted file, and wakes all its waiters. Returns `None` if
    /// that was done before.
    pub(crate) fn give_up(self: &Arc<Self>, base: &Base, after: &mut After) -> Option<Heard> {
        let mut state = self.lock();
        if !state.is_interrupted || std::mem::replace(&mut state.is_given_up, true) {
            return None;
        }
        let heard = if state.ticket_wakers.is_empty() { Heard::No } else { Heard::Yes };
        let effects = after.effects();
        effects.uncharged += std::mem::take(&mut state.owed);
        effects.wakers.append(&mut state.append_wakers.take());
        effects.wakers.extend(state.ticket_wakers.take().into_iter().map(|waiter| waiter.waker));
        // Counts the empty cache.
        #[expect(
            clippy::redundant_closure_for_method_calls,
            reason = "the method itself is not general enough in its lifetime"
        )]
        self.change_locked(base, &mut state, after, |file| file.wake());
        drop(state);
        let wakers = &mut after.effects().wakers;
        base.level.look_again(self.target, wakers);
        base.pool.take_waiting(wakers);
        Some(heard)
    }
}

impl State {
    /// Returns whether a panic has interrupted a change of the state. Exact under the lock.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.is_interrupted
    }

    /// Returns whether the level counts exactly the pages of the file.
    fn is_counted(&self) -> bool {
        self.counted == self.cache.dirty_pages() + self.credit
    }

    /// Replaces a broken state by an empty one. Reads as little as possible of the broken one:
    /// plain numbers, which a panic leaves either unchanged or as intended.
    fn interrupt(&mut self, fixed_size: Option<u64>) {
        // First: from now on the keeper writes nothing of the file.
        if let Some(record) = self.record.take() {
            record.interrupt();
            // Nothing of the empty cache is entered in it, above all not its size.
            self.marked_record = Some(record);
        }
        let entry = self.cache.entry();
        let (origin, liberties) = match (fixed_size, self.cache.disk_size()) {
            (Some(size), _) => (Origin::Device(size), Liberties::Exclusive),
            (None, 0) => (Origin::Empty { entry: Entry::Old }, Liberties::Shared),
            (None, length) => (Origin::Existing(length), Liberties::Shared),
        };
        let mut empty = CachedFile::new(self.cache.target(), origin, liberties);
        empty.set_entry(entry);
        self.cache = empty;
        // Its frames are leaked.
        self.stash = FrameRuns::default();
        // The level has the count from the end of the last change. A change counts itself at its
        // end, and the pages that this one has cleaned are not taken off.
        if !self.is_interrupted {
            self.owed = self.counted;
        }
        self.credit = 0;
        self.passing = 0;
        self.samples = Samples::default();
        self.dirty_since = None;
        self.break_deadline = None;
        self.is_renewing = false;
        self.kicked = None;
        self.lead = Lead::Context;
        self.is_interrupted = true;
    }
}
