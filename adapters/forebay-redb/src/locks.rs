//! Locks of whole files among the databases of this process.
//!
//! All handles of a file in an engine share one descriptor, so a lock of the system would not keep
//! two databases of one engine apart. The engine's own lock keeps other engines and programs out.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Device and inode of a file.
pub(crate) type Identity = (u64, u64);

/// State of a locked file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Held {
    Exclusive,
    /// By this many databases.
    Shared(usize),
}

static FILES: Mutex<BTreeMap<Identity, Held>> = Mutex::new(BTreeMap::new());

fn files() -> MutexGuard<'static, BTreeMap<Identity, Held>> {
    FILES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lock of one database. Dropping it releases the lock.
#[derive(Debug)]
pub(crate) struct Locks {
    identity: Identity,
    is_locked: Mutex<bool>,
}

impl Locks {
    pub(crate) fn new(identity: Identity) -> Self {
        Self { identity, is_locked: Mutex::new(false) }
    }

    /// Locks the file, unless another database has locked it. Returns whether it did.
    pub(crate) fn try_lock(&self) -> bool {
        self.take(|held| held.is_none().then_some(Held::Exclusive))
    }

    /// Locks the file beside other readers, unless a database has locked it exclusively.
    pub(crate) fn try_lock_shared(&self) -> bool {
        self.take(|held| match held {
            None => Some(Held::Shared(1)),
            Some(Held::Shared(others)) => Some(Held::Shared(others + 1)),
            Some(Held::Exclusive) => None,
        })
    }

    fn take(&self, next: impl FnOnce(Option<Held>) -> Option<Held>) -> bool {
        let mut is_locked = self.is_locked.lock().unwrap_or_else(PoisonError::into_inner);
        debug_assert!(!*is_locked, "a database locks its file once");
        let mut files = files();
        let Some(held) = next(files.get(&self.identity).copied()) else { return false };
        files.insert(self.identity, held);
        *is_locked = true;
        true
    }

    pub(crate) fn release(&self) {
        let mut is_locked = self.is_locked.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut *is_locked, false) {
            return;
        }
        let mut files = files();
        match files.get(&self.identity).copied() {
            Some(Held::Shared(others @ 2..)) => {
                files.insert(self.identity, Held::Shared(others - 1));
            }
            _ => {
                files.remove(&self.identity);
            }
        }
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        self.release();
    }
}
