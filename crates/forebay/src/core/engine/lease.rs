//! The lease of a file that is open here: taken when it is opened for writing and nobody else has
//! it open, given up when somebody does.
//!
//! The watch's thread only passes the word on, so a hundred files broken at once wait for the
//! device side by side and not for each other; the context, which sees what ends, lets each lease
//! go ([`Inode::give_up_lease`]).
//!
//! A lease that was given up is asked for again when the file is next opened for writing here, if
//! by then nobody else has it open and nothing of it is in use or unwritten. Not before: an idle
//! file would be asked about for ever.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::platform::{Lock, clock};
use forebay_block::Target;
use forebay_cache::{Liberties, TicketKind};

use super::{Engine, cannot_look};
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::inode::{After, Inode, State};
use crate::core::limits::{LEASE_BREAK, LEASE_LOOK, LEASE_TRIES, LEASE_TRIES_AFTER_CRASH};
use crate::core::shared::Shared;

impl Engine {
    /// The first handle that may write an inode opened for reading takes its lock and lease; a
    /// later one the lease, where that was given up and can be had again.
    pub(super) fn claim_shared(&self, inode: &Arc<Inode>) -> Result<()> {
        let state = inode.lock();
        let is_ours = state.cache.liberties() == Liberties::Exclusive || state.cache.is_breaking();
        drop(state);
        if is_ours {
            return Ok(());
        }
        if self.claim(&inode.file, inode.target)? == Liberties::Shared {
            self.flush_what_was_there(inode);
            return Ok(());
        }
        let look = inode.lock().cache.look();
        let length = inode.file.length().map_err(cannot_look)?;
        let reserving = self.reserving(&inode.file, length);
        let mut after = After::default();
        let mut state = inode.lock();
        let is_owned = state.own(&self.owner.shared, (length, look), &mut after);
        if is_owned {
            state.cache.set_reserving(reserving);
            // It may have been changed for all files meanwhile.
            state.cache.change_reserving(self.owner.shared.reserving());
        }
        let is_breaking = state.cache.is_breaking();
        drop(state);
        after.finish(&self.owner.shared);
        if is_owned {
            self.look_at_lease(inode);
        } else if !is_breaking {
            inode.file.release_lease();
        }
        Ok(())
    }

    /// Takes the lock that keeps other engines off, and the lease if nobody else has the file open.
    pub(super) fn claim(&self, file: &crate::platform::File, target: Target) -> Result<Liberties> {
        lock_out_engines(file)?;
        match self.try_lease(file, target) {
            Ok(()) => Ok(Liberties::Exclusive),
            Err(error) => {
                tracing::debug!(%error, "no lease: the file counts as shared");
                Ok(Liberties::Shared)
            }
        }
    }

    /// A descriptor lives a moment longer than its program where that was killed, or was passing
    /// through a child between fork and exec: then the file should not count as shared for good.
    /// Where a crash left its mark there is space to be given back, and more patience.
    fn try_lease(&self, file: &crate::platform::File, target: Target) -> std::io::Result<()> {
        let tries = if matches!(file.reservation_mark(), Ok(Some(_))) {
            LEASE_TRIES_AFTER_CRASH
        } else {
            LEASE_TRIES
        };
        let mut left = tries;
        loop {
            let taken = file.try_lease(&self.owner.leases.0, u64::from(target.0));
            left -= 1;
            match taken {
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) && left > 0 => {
                    crate::platform::thread::sleep(Duration::from_millis(1));
                }
                taken => return taken,
            }
        }
    }

    /// What was written to a shared file before is not kept here. Once it is flushed, all that is
    /// not flushed is; a flush that fails can be got over then.
    pub(super) fn flush_what_was_there(&self, inode: &Arc<Inode>) {
        let state = inode.lock();
        let wants_flush =
            state.cache.liberties() == Liberties::Shared && state.cache.lacks_frames();
        drop(state);
        if wants_flush {
            inode.ask_unheard(&self.owner.shared, TicketKind::FlushData);
        }
    }

    /// A lease that was broken between its taking and the inode's entering the table, or its
    /// counting as ours, was heard of too early: whoever waits is served now.
    pub(super) fn look_at_lease(&self, inode: &Arc<Inode>) {
        if inode.lock().cache.liberties() == Liberties::Exclusive && !inode.file.has_lease() {
            inode.break_lease(&self.owner.shared);
        }
    }
}

/// Somebody else opens a file we hold the lease of. On the watch's thread.
pub(super) fn on_break(shared: &Shared, target: Target) {
    // None: it is being closed, which gives the lease up, or being opened, which looks.
    let inode = shared.table().by_target(target);
    if let Some(inode) = inode {
        inode.break_lease(shared);
    }
}

/// Takes the lock that keeps other engines off.
pub(super) fn lock_out_engines(file: &crate::platform::File) -> Result<()> {
    match file.try_ofd_lock() {
        Ok(Lock::HeldElsewhere) => {
            let error =
                Error::new(ErrorKind::Busy, "another engine or program has locked the file");
            return Err(error.remedy("close it there, or open it for reading"));
        }
        Ok(Lock::Taken) => {}
        Err(error) => tracing::debug!(%error, "no lock on this file system"),
    }
    Ok(())
}

impl Inode {
    /// No more liberties; the context gives the lease up when what was accepted is written, or
    /// soon.
    pub(crate) fn break_lease(self: &Arc<Self>, shared: &Shared) {
        let mut after = After::default();
        let mut state = self.lock();
        if state.is_closed() {
            // Its lease went with it.
            return;
        }
        state.begin_break(shared, clock::instant() + LEASE_BREAK, &mut after);
        self.kick(&mut state, &mut after);
        drop(state);
        after.finish(shared);
        if shared.is_orphaned() {
            self.file.release_lease();
        }
    }

    /// Whether the lease is still ours, so that nobody else can have put anything where space is
    /// given back, or zeroes are written. The kernel is asked: it takes the lease from a process
    /// that was stopped for longer than others wait.
    ///
    /// One race is left. A process that is stopped after this, and before the kernel has begun the
    /// request, makes the request when it goes on: there is no request that depends on a lease.
    /// Such are the requests of one pass of a context, and those that wait in its queue for a tag.
    pub(crate) fn holds_lease(&self, state: &State) -> bool {
        match state.break_deadline {
            Some(deadline) => clock::instant() < deadline && self.file.has_lease_still(),
            None => self.fixed_size.is_some() || self.file.has_lease(),
        }
    }

    /// Asks whether the lease is still held, if it has been a while, before a call uses clean pages
    /// or known holes. In a process that was stopped the watch's thread may not have run yet.
    pub(crate) fn check_lease(self: &Arc<Self>, shared: &Shared) {
        let now = clock::now().nanoseconds();
        let looked = self.lease_looked.load(Ordering::Relaxed);
        if now.saturating_sub(looked) < LEASE_LOOK.as_nanos() as u64 || self.fixed_size.is_some() {
            return;
        }
        let is_ours = self.lock().cache.liberties() == Liberties::Exclusive;
        if is_ours && !self.file.has_lease() {
            self.break_lease(shared);
        }
        self.lease_looked.store(now, Ordering::Relaxed);
    }

    /// The context looks whether the lease can go; true when it has gone. Otherwise when to look
    /// again at the latest, if a moment does.
    pub(crate) fn give_up_lease(&self, now: Instant) -> GivingUp {
        let mut state = self.lock();
        let Some(deadline) = state.break_deadline else { return GivingUp::Done };
        let is_late = now >= deadline;
        if state.cache.break_is_over() || is_late && !state.cache.takes_liberties() {
            state.end_break();
            drop(state);
            // (Nothing that needs it is sent after it has been declared gone.)
            self.file.release_lease();
            tracing::info!(path = %self.path.display(), is_late, "another program opened the file: shared from now on");
            return GivingUp::Done;
        }
        // Late, the end of what is at the device is waited for, however long it takes.
        GivingUp::NotBefore((!is_late).then_some(deadline))
    }
}

/// How far a lease has been given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GivingUp {
    /// It has gone.
    Done,
    /// Something of the file has to end first, or this moment to come.
    NotBefore(Option<Instant>),
}
