//! The lease of an open file, where it counts: only on a file system whose kernel code serves the
//! data to all its users ([`Coverage`](crate::platform::Coverage)). A write lease is taken when the
//! file is opened for writing and no other program has it open. It is released when another program
//! opens the file. For a file that is opened only for reading it is a read lease: other programs
//! may read the file, too.
//!
//! A released lease is requested again when the file is next opened for writing here. The request
//! is made only if no other program has it open and nothing of it is in use or unwritten. There are
//! no other attempts, because they would never end for an idle file.
//!
//! On other file systems each file is shared from the start, unless the caller promises to be alone
//! ([`OpenOptions::assume_exclusive`](crate::OpenOptions::assume_exclusive)).

use std::sync::Arc;
use std::time::Duration;

use forebay_block::Target;
use forebay_cache::{Liberties, TicketKind};

use crate::core::engine::Engine;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::inode::{Hold, Inode};
use crate::core::limits::{LEASE_TRIES, LEASE_TRIES_AFTER_CRASH};
use crate::core::open::enter::cannot_look;
use crate::core::shared::Shared;
use crate::platform::Lock;

impl Engine {
    /// Takes the lock and lease for the first writing handle of a file that was opened for reading.
    /// For a later handle, takes a released lease again if possible.
    pub(crate) fn claim_shared(&self, inode: &Arc<Inode>) -> Result<()> {
        let state = inode.lock();
        let is_ours = state.cache.liberties() == Liberties::Exclusive || state.cache.is_breaking();
        // An interrupted file stays shared.
        let is_settled = is_ours || state.is_interrupted();
        // Before the request: a lease that is lost from here on does not count.
        let breaks = state.cache.breaks();
        drop(state);
        if is_settled {
            return Ok(());
        }
        if self.claim(&inode.file, inode.target, Claim::default())? == Hold::Shared {
            self.flush_what_was_there(inode);
            return Ok(());
        }
        let look = inode.lock().cache.look();
        let length = inode.file.length().map_err(cannot_look)?;
        let reserving = self.reserving(&inode.file, length);
        let shared = &self.owner.shared;
        let (is_owned, is_breaking) = shared.change(inode, |file| {
            let is_owned = !file.is_appending() && file.own(length, (look, breaks));
            if is_owned {
                file.cache.set_reserving(reserving);
                // It may have changed for all files meanwhile.
                file.cache.change_reserving(shared.reserving());
            }
            (is_owned, file.cache.is_breaking())
        });
        if is_owned {
            self.look_at_lease(inode);
        } else if !is_breaking {
            inode.file.release_lease();
        }
        Ok(())
    }

    /// Takes the lock that excludes other engines, and the lease if no other program has the file
    /// open.
    pub(crate) fn claim(
        &self,
        file: &crate::platform::OpenFile,
        target: Target,
        claim: Claim,
    ) -> Result<Hold> {
        lock_out_engines(file)?;
        Ok(hold_by(file, claim, || self.try_lease(file, target, claim)))
    }

    /// Takes a lease of a file that is open only for reading, if no other program has it open for
    /// writing. With it, pages that were read stay in memory.
    pub(crate) fn lease_for_reading(
        &self,
        file: &crate::platform::OpenFile,
        target: Target,
        claim: Claim,
    ) -> Hold {
        hold_by(file, claim, || file.try_lease(&self.owner.leases, u64::from(target.0)))
    }

    /// Tries several times to take the lease, so that the file does not count as shared for good. A
    /// descriptor lives a moment longer than its program if that was killed, or if a child has it
    /// between fork and exec. If a crash left a mark, space has to be given back, and there are
    /// more attempts.
    fn try_lease(
        &self,
        file: &crate::platform::OpenFile,
        target: Target,
        claim: Claim,
    ) -> std::io::Result<()> {
        let tries = if !claim.is_created && matches!(file.reservation_mark(), Ok(Some(_))) {
            LEASE_TRIES_AFTER_CRASH
        } else {
            LEASE_TRIES
        };
        let mut left = tries;
        loop {
            let taken = file.try_lease(&self.owner.leases, u64::from(target.0));
            left -= 1;
            match taken {
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) && left > 0 => {
                    crate::platform::thread::sleep(Duration::from_millis(1));
                }
                taken => return taken,
            }
        }
    }

    /// Flushes data of a shared file that was written before this engine could keep it. Afterwards
    /// all unflushed data is kept here, so a failed flush can be repaired.
    pub(crate) fn flush_what_was_there(&self, inode: &Arc<Inode>) {
        let state = inode.lock();
        let wants_flush =
            state.cache.liberties() == Liberties::Shared && state.cache.lacks_frames();
        drop(state);
        if wants_flush {
            inode.ask_unawaited(&self.owner.shared, TicketKind::FlushData);
        }
    }

    /// Handles a break of the lease that came before the inode was in the table, or before the
    /// lease counted as ours. Then nothing acted on it, and a program waits for it.
    pub(crate) fn look_at_lease(&self, inode: &Arc<Inode>) {
        if !inode.needs_lease {
            return;
        }
        if inode.lock().cache.liberties() == Liberties::Exclusive && !inode.file.has_lease() {
            inode.break_lease(&self.owner.shared);
        }
    }
}

/// Handles a break: another program opens a file with a lease of ours. Runs on the thread of the
/// watch.
pub(crate) fn on_break(shared: &Shared, target: Target) {
    // `None` if it is being closed, which releases the lease, or being opened, which checks the
    // lease.
    let inode = shared.table().by_target(target);
    if let Some(inode) = inode {
        // The watch has to serve the other files, too.
        let _ = inode.catch(|| inode.break_lease(shared));
    }
}

/// Knowledge of the caller of an open about other users of the file.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Claim {
    /// The open created the file.
    pub(crate) is_created: bool,
    /// The caller promised that no other program writes it.
    pub(crate) is_promised: bool,
}

/// Takes a lease where it counts. Returns the reason why no other program changes the file.
fn hold_by(
    file: &crate::platform::OpenFile,
    claim: Claim,
    take: impl FnOnce() -> std::io::Result<()>,
) -> Hold {
    let taken = match file.lease_coverage().gap() {
        None => take(),
        Some(gap) => Err(std::io::Error::other(gap)),
    };
    match taken {
        Ok(()) => Hold::Leased,
        // Unless another program has it open.
        Err(error) if claim.is_promised && error.raw_os_error() != Some(libc::EAGAIN) => {
            Hold::Promised
        }
        Err(error) => {
            tracing::debug!(%error, "no lease; the file counts as shared");
            Hold::Shared
        }
    }
}

/// Takes the lock that excludes other engines.
pub(crate) fn lock_out_engines(file: &crate::platform::OpenFile) -> Result<()> {
    match file.try_ofd_lock() {
        Ok(Lock::HeldElsewhere) => {
            let error =
                Error::new(ErrorKind::Busy, "another engine or program has locked the file");
            return Err(error.remedy("close it there, or open it for reading"));
        }
        Ok(Lock::Taken) => {}
        Err(error) => tracing::debug!(%error, "this file system has no locks"),
    }
    Ok(())
}
