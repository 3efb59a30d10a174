//! Pages that cannot be written: how many there may be, and the way out.
//!
//! A page that could not be written stays dirty and keeps its memory, for as long as its device
//! takes nothing. So that one bad file or one dead device does not hold the memory of all: a file
//! may have so many of them, and a device, and who would write more hears at the write why that is
//! in vain. Those on the device beyond its share (they became dirty before anybody knew) are not
//! held against who writes elsewhere.

use crate::platform::sync::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use crate::core::error::{Error, ErrorKind, Result};
use crate::core::inode::{After, Inode, State};
use crate::core::limits::{FAILING_OF_DEVICE, FAILING_OF_FILE};
use crate::core::shared::Shared;

/// Of one device, the pages that cannot be written.
#[derive(Debug, Default)]
pub(crate) struct Failing {
    pages: AtomicU64,
    /// Of these, beyond the device's share when it was last looked.
    beyond: Mutex<u64>,
    /// Why, the last time.
    errno: AtomicI32,
}

impl Failing {
    /// A file had so many, and has now.
    fn change(&self, before: u64, now: u64) {
        if now >= before {
            self.pages.fetch_add(now - before, Ordering::AcqRel);
        } else {
            self.pages.fetch_sub(before - now, Ordering::AcqRel);
        }
    }

    /// Tells the level how many are beyond the device's share, which may have become others, or the
    /// share another; whom to wake is appended.
    pub(crate) fn look_again(&self, shared: &Shared, wakers: &mut Vec<Waker>) {
        // Held until the level has heard, so that it hears of one after the other.
        let mut beyond = self.beyond.lock();
        let now = self.pages.load(Ordering::Acquire).saturating_sub(device_share(shared));
        let before = std::mem::replace(&mut *beyond, now);
        if before != now {
            shared.level.change_beyond(before, now, wakers);
        }
    }
}

fn device_share(shared: &Shared) -> u64 {
    (shared.level.limit() / FAILING_OF_DEVICE).max(1)
}

fn file_cap(shared: &Shared) -> u64 {
    (shared.level.limit() / FAILING_OF_FILE).max(1)
}

impl Inode {
    /// Counts the file's failing pages anew: after everything that may have changed them.
    pub(crate) fn count_failing(&self, shared: &Shared, state: &mut State, after: &mut After) {
        let now = state.cache.unwritable_pages();
        let before = std::mem::replace(&mut state.unwritable, now);
        if before == now {
            return;
        }
        let failing = &self.volume.failing;
        if let Some((_, errno)) = state.cache.write_error() {
            failing.errno.store(errno.0, Ordering::Relaxed);
        }
        failing.change(before, now);
        failing.look_again(shared, &mut after.wakers);
    }

    /// Why a write would be in vain: it would add to pages that cannot be written, of which there
    /// are too many.
    pub(crate) fn refusal(&self, shared: &Shared, state: &State) -> Option<Error> {
        let failing = &self.volume.failing;
        let own = state.cache.write_error().filter(|_| state.unwritable >= file_cap(shared));
        let (whose, errno) = match own {
            Some((_, errno)) => ("of this file", errno.0),
            None if failing.pages.load(Ordering::Acquire) >= device_share(shared) => {
                ("on its device", failing.errno.load(Ordering::Relaxed))
            }
            None => return None,
        };
        let cause = std::io::Error::from_raw_os_error(errno);
        let what = format!("too many pages {whose} could not be written; nothing more is accepted");
        let error =
            Error::new(ErrorKind::at_device(&cause), what).at_path(&self.path).because(cause);
        Some(error.remedy("sync to try again, or drop the data with `discard_dirty`"))
    }

    /// One step of dropping what is dirty: `Ready` with the pages dropped. The caller holds the
    /// file.
    pub(crate) fn poll_discard(
        self: &Arc<Self>,
        shared: &Shared,
        context: &Context<'_>,
    ) -> Poll<Result<u64>> {
        loop {
            shared.check()?;
            let waker = context.waker().clone();
            let mut state = self.lock();
            if state.is_orphaned() {
                let ended = Error::new(
                    ErrorKind::Shutdown,
                    "the engine stopped before the operation ended",
                );
                return Poll::Ready(Err(ended.at_path(&self.path)));
            }
            if !state.cache.can_discard() {
                state.wait_for_pages(waker);
                return Poll::Pending;
            }
            drop(state);
            // Nothing of ours changes it while the file is held.
            let disk_size = self.file.length().map_err(|error| {
                Error::new(ErrorKind::Io, "could not examine the file")
                    .at_path(&self.path)
                    .because(error)
            })?;
            let mut state = self.lock();
            // A reader or a writer that had begun before is not hindered by the hold.
            if !state.cache.can_discard() {
                continue;
            }
            let mut after = After::default();
            let pages = state.cache.discard_dirty(disk_size, &mut after.settled);
            state.tell_arena(shared, &mut after);
            self.count_failing(shared, &mut state, &mut after);
            let _ = state.recount();
            state.tell_tickets(&mut after);
            drop(state);
            after.finish(shared);
            return Poll::Ready(Ok(pages));
        }
    }
}

/// Holds a file, so that what is under way comes to an end; lets go when dropped.
#[derive(Debug)]
pub(crate) struct Hold<'a> {
    inode: &'a Arc<Inode>,
    shared: &'a Shared,
}

impl<'a> Hold<'a> {
    pub(crate) fn new(inode: &'a Arc<Inode>, shared: &'a Shared) -> Self {
        inode.lock().cache.begin_discard();
        Self { inode, shared }
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        let mut after = After::default();
        let mut state = self.inode.lock();
        state.cache.end_discard();
        // Who was held up goes on, and so does the context.
        self.inode.look_again(&mut state, &mut after);
        drop(state);
        after.finish(self.shared);
    }
}
