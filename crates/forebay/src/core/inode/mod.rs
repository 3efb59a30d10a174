//! An open inode: the single cache of a file, which all handles of an engine share, also those
//! opened by another name.
//!
//! ```text
//! caller, context --lock (guard.rs)--> state.rs: the cache and what surrounds it
//!                       |                  ^
//!                       +-- change.rs -----+--> effects, once the lock is released
//! ```
//!
//! - `state`: the parts of the state. `counts`: those that add up in the engine.
//! - `change`: the one way to change the cache, and the effects of changes.
//! - `guard`: the lock, and the end of a file's service after a panic under it.
//! - `settle`: completed bios.
//! - `record`: the file's account in the arena.
//!
//! They need only [`Base`]. Calls of users are above, a directory for each verb.
//!
//! No two locks are held together here, except the file's state and then the pool's. No lock is
//! held during a copy, a system call or a wake.

pub(crate) mod change;
pub(crate) mod counts;
mod guard;
pub(crate) mod record;
pub(crate) mod settle;
pub(crate) mod state;
mod wakers;

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use forebay_cache::discard::DISCARDED;
use forebay_cache::limits::MAX_OFFSET;
use forebay_cache::{CachedFile, Failure, Liberties};

use self::counts::Reached;
use self::guard::Alarm;
pub(crate) use self::guard::Locked;
use self::state::State;
use crate::core::base::Base;
use crate::core::context::placement::Placement;
use crate::core::error::{Error, ErrorKind, Result, is_full};
use crate::core::open::common::Common;
use crate::core::space::volume::Volume;
use crate::core::user_code;
use crate::platform::clock;
use crate::platform::sync::Mutex;
use crate::platform::{Kind, OpenFile};

/// Reason why no other program changes a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exclusion {
    /// None: other programs may have it open.
    Shared,
    /// The engine has a lease that counts.
    Leased,
    /// The caller that opened it promised so.
    Promised,
    /// It is a temporary file, or a block device that is opened exclusively.
    Private,
}

impl Exclusion {
    pub(crate) fn liberties(self) -> Liberties {
        if self == Self::Shared { Liberties::Shared } else { Liberties::Exclusive }
    }
}

/// One inode in the cache.
#[derive(Debug)]
pub(crate) struct Inode {
    common: Common,
    pub(crate) volume: Arc<Volume>,
    pub(crate) placement: Placement,
    /// Size of a block device in bytes, which never changes.
    pub(crate) fixed_size: Option<u64>,
    /// Whether it is a temporary file or a block device.
    pub(crate) is_private: bool,
    /// Whether the file is shared without a lease.
    pub(crate) needs_lease: bool,
    /// Largest file end that its file system is known to accept.
    reach: AtomicU64,
    /// Whether the last write was of one whole page that was dirty before.
    pub(crate) rewrites: AtomicBool,
    /// Time when the lease was last seen to be held, in nanoseconds of the clock.
    pub(crate) lease_looked: AtomicU64,
    /// Whether the file has the reservation mark. Locked while the file system changes it, which
    /// may block: no context locks it. Taken before the state's lock.
    pub(crate) marked: Mutex<bool>,
    state: Mutex<State>,
    alarm: Alarm,
}

impl Deref for Inode {
    type Target = Common;

    fn deref(&self) -> &Common {
        &self.common
    }
}

impl Inode {
    pub(crate) fn new(
        cache: CachedFile,
        file: OpenFile,
        volume: Arc<Volume>,
        path: PathBuf,
        exclusion: Exclusion,
    ) -> Self {
        let fixed_size = (file.kind() == Kind::Block).then(|| cache.size());
        volume.learn(&file);
        let placement = Placement::new(&file, &path, &volume, cache.disk_size());
        let reach = AtomicU64::new(file.sure_end());
        let aside = Arc::clone(&volume.aside);
        Self {
            common: Common::new(cache.target(), path, file, aside),
            volume,
            placement,
            fixed_size,
            is_private: exclusion == Exclusion::Private,
            needs_lease: matches!(exclusion, Exclusion::Shared | Exclusion::Leased),
            reach,
            rewrites: AtomicBool::new(false),
            lease_looked: AtomicU64::new(clock::now().nanoseconds()),
            marked: Mutex::new(false),
            state: Mutex::new(State::new(cache)),
            alarm: Alarm::default(),
        }
    }

    /// Returns whether a file of its file system can be `end` bytes long.
    pub(crate) fn can_reach(&self, end: u64) -> bool {
        if end <= self.reach.load(Ordering::Relaxed) {
            return true;
        }
        let roomy = end.saturating_mul(2).min(MAX_OFFSET);
        let reach = [roomy, end].into_iter().find(|end| self.file.can_hold(*end));
        self.reach.fetch_max(reach.unwrap_or(0), Ordering::Relaxed);
        reach.is_some()
    }

    /// Ends every wait for a file that is closed.
    pub(crate) fn closed(&self) {
        self.end_waits(|_| ());
    }

    /// Notes that the contexts have stopped, and ends every wait for one.
    pub(crate) fn orphan(&self) {
        let appends = self.end_waits(|state| {
            state.service.orphan();
            state.ownership.take_appends()
        });
        user_code::wake_all(appends);
    }

    fn end_waits<T>(&self, note: impl FnOnce(&mut State) -> T) -> T {
        let mut wakers = Vec::new();
        let mut state = self.lock();
        let noted = note(&mut state);
        state.service.take_all_waiting(&mut wakers);
        wakers.extend(state.syncing.take_waiters());
        wakers.append(&mut state.logging.take_waiters());
        drop(state);
        user_code::wake_all(wakers);
        noted
    }

    /// Returns the error for a write that cannot be accepted. Either a panic has interrupted a
    /// change of the file, or too many pages cannot be written.
    #[inline]
    pub(crate) fn refusal(&self, base: &Base, state: &State) -> Option<Error> {
        if let Err(error) = self.check_whole(state) {
            return Some(error);
        }
        if state.logging.is_uncertain() {
            return Some(Error::uncertain(&self.path));
        }
        let reached = state.failures.reached(&state.cache, &self.volume.failing, &base.level)?;
        Some(self.refused(reached))
    }

    #[cold]
    fn refused(&self, Reached { whose, errno }: Reached) -> Error {
        let cause = std::io::Error::from_raw_os_error(errno.0);
        let what = format!("too many pages {whose} could not be written; nothing more is accepted");
        let error =
            Error::new(ErrorKind::at_device(&cause), what).at_path(&self.path).because(cause);
        error.remedy("sync to try again, or drop the data with `abandon_unwritten`")
    }

    /// Refuses a call for a file whose change was interrupted.
    ///
    /// # Errors
    /// `Poisoned`.
    #[inline]
    pub(crate) fn check_whole(&self, state: &State) -> Result<()> {
        if state.failures.is_interrupted() { Err(self.interrupted()) } else { Ok(()) }
    }

    /// Returns the error for the caller of a failed ticket.
    pub(crate) fn failure(&self, failure: Failure) -> Error {
        match failure {
            Failure::Write { offset, errno: DISCARDED } => self.io_error(
                "`abandon_unwritten` dropped the data written here",
                offset,
                DISCARDED,
            ),
            Failure::Write { offset, errno } => {
                let error =
                    self.io_error("could not write a page out; it stays dirty", offset, errno);
                if is_full(&std::io::Error::from_raw_os_error(errno.0)) {
                    error.remedy("free space on the file system, then sync again")
                } else {
                    error.remedy("sync again to retry, or drop the data with `abandon_unwritten`")
                }
            }
            Failure::Flush(errno) => Error::poisoned(&self.path, errno),
            Failure::Discard(errno) => {
                let kind = match errno.0 {
                    libc::EOPNOTSUPP => ErrorKind::Unsupported,
                    _ => ErrorKind::Io,
                };
                let what = match self.fixed_size {
                    Some(_) => "the device did not discard the range; its data is unchanged",
                    None => "the file system did not free the range; its whole pages are unchanged",
                };
                Error::new(kind, what)
                    .at_path(&self.path)
                    .because(std::io::Error::from_raw_os_error(errno.0))
            }
            Failure::SetLength(errno) => {
                let cause = std::io::Error::from_raw_os_error(errno.0);
                Error::new(ErrorKind::at_device(&cause), "could not set the length")
                    .at_path(&self.path)
                    .because(cause)
            }
        }
    }
}
