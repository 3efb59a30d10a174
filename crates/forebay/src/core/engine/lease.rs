//! The lease of a file that is open here: taken when it is opened for writing and nobody else has
//! it open, given up when somebody does.
//!
//! A lease that was given up is asked for again when the file is next opened for writing here, if
//! by then nobody else has it open and nothing of it is in use or unwritten. Not before: an idle
//! file would be asked about for ever.

use std::sync::Arc;
use std::time::Duration;

use forebay_block::Target;
use forebay_cache::{Liberties, TicketKind};

use super::{Engine, cannot_look};
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::inode::Inode;
use crate::core::limits::{LEASE_TRIES, LEASE_TRIES_AFTER_CRASH};
use crate::core::shared::Shared;
use crate::platform::Lock;

impl Engine {
    /// The first handle that may write an inode opened for reading takes its lock and lease; a
    /// later one the lease, where that was given up and can be had again.
    pub(super) fn claim_shared(&self, inode: &Arc<Inode>) -> Result<()> {
        let state = inode.lock();
        let is_ours = state.cache.liberties() == Liberties::Exclusive || state.cache.is_breaking();
        // An interrupted file stays shared.
        let is_settled = is_ours || state.is_interrupted();
        drop(state);
        if is_settled {
            return Ok(());
        }
        if self.claim(&inode.file, inode.target)? == Liberties::Shared {
            self.flush_what_was_there(inode);
            return Ok(());
        }
        let look = inode.lock().cache.look();
        let length = inode.file.length().map_err(cannot_look)?;
        let reserving = self.reserving(&inode.file, length);
        let shared = &self.owner.shared;
        let (is_owned, is_breaking) = shared.change(inode, |file| {
            let is_owned = file.own(length, look);
            if is_owned {
                file.cache.set_reserving(reserving);
                // It may have been changed for all files meanwhile.
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
        // The watch serves the other files, too.
        let _ = inode.catch(|| inode.break_lease(shared));
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
