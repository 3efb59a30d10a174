//! The lease of an open file: how it is taken, and how it goes to another program.
//!
//! ```text
//! open            claim: the lock against other engines, and the lease if nobody has the file
//! other program   opens the file; the kernel signals, and its open waits for a second at most
//! watch thread    break_lease: the cache takes no liberties from here on, the context is asked
//! context         writes everything out -> give_up_lease, at the deadline in any case
//! kernel          lets the other program open; the file is shared from now on
//! ```
//!
//! The thread of the watch only stops the use of the lease. So the breaks of a hundred files wait
//! for the device at the same time, not one after the other. The context, which sees requests end,
//! releases each lease.
//!
//! A process that was stopped may have lost the lease before the watch has run. So callers look at
//! intervals ([`check_lease`]), and the context looks before each request that depends on it
//! ([`holds_lease`]).
//!
//! A lease counts only on a file system whose kernel code serves the data to all its users
//! ([`Coverage`](crate::platform::Coverage)). A write lease is taken when the file is opened for
//! writing, and a read lease when it is opened only for reading: other programs may read the file
//! then, too. On other file systems each file is shared from the start, unless the caller promises
//! to be alone ([`Open::exclusive`](crate::Open::exclusive)).
//!
//! A released lease is requested again when the file is next opened for writing here. The request
//! is made only if no other program has it open and nothing of it is in use or unwritten. There are
//! no other attempts, because they would never end for an idle file.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use forebay_block::Target;
use forebay_cache::{CachedFile, Liberties, TicketKind};

use crate::core::error::{Error, ErrorKind, Result};
use crate::core::inode::change::Changing;
use crate::core::inode::state::State;
use crate::core::inode::{Exclusion, Inode};
use crate::core::limits::{LEASE_BREAK, LEASE_LOOK, LEASE_TRIES, LEASE_TRIES_AFTER_CRASH};
use crate::core::shared::Shared;
use crate::core::space::reserving;
use crate::core::sync::tickets::ask_unawaited;
use crate::core::user_code;
use crate::platform::{LeaseWatch, Lock, OpenFile, clock, thread};

/// Stops using the liberties of the lease. The context releases the lease when accepted data is
/// written, or at the deadline.
pub(crate) fn break_lease(inode: &Arc<Inode>, shared: &Shared) {
    let (is_closed, is_interrupted) = shared.change(inode, |file| {
        let (is_closed, is_interrupted) = (inode.is_closed(), file.failures.is_interrupted());
        // The lease of a closed file is already released. An interrupted file has nothing to write
        // out first.
        if !is_closed && !is_interrupted {
            begin_break(file);
        }
        (is_closed, is_interrupted)
    });
    if !is_closed && (is_interrupted || shared.is_orphaned()) {
        inode.file.release_lease();
    }
}

/// Stops using the liberties of the lease, because another program opens the file. Has the context
/// look at it.
pub(crate) fn begin_break(file: &mut Changing<'_>) {
    file.apply(CachedFile::begin_break);
    assert!(file.cache.is_breaking(), "pages would be kept that another program may change");
    file.ownership.begin_break(clock::instant() + LEASE_BREAK);
    file.look();
}

/// Checks at intervals whether the lease is still held, before a call uses clean pages or known
/// holes.
#[inline]
pub(crate) fn check_lease(inode: &Arc<Inode>, shared: &Shared) {
    // Some milliseconds late at most, and much cheaper than the exact time.
    let now = clock::coarse().nanoseconds();
    let looked = inode.lease_looked.load(Ordering::Relaxed);
    if now.saturating_sub(looked) < LEASE_LOOK.as_nanos() as u64 || !inode.needs_lease {
        return;
    }
    check_lease_at(inode, shared, now);
}

#[inline(never)]
fn check_lease_at(inode: &Arc<Inode>, shared: &Shared, now: u64) {
    let is_ours = inode.lock().cache.liberties() == Liberties::Exclusive;
    if is_ours && !inode.file.has_lease() {
        break_lease(inode, shared);
    }
    inode.lease_looked.store(now, Ordering::Relaxed);
}

/// Returns whether the lease is still ours. If so, no other program can have written where space is
/// given back or zeroes are written. The kernel is asked: it takes the lease from a process that
/// was stopped for longer than others wait.
///
/// One race remains. A process may be stopped after this check and before the kernel begins the
/// request, and then makes the request when it continues. No request depends on a lease. Affected
/// are the requests of one pass of a context, and those that wait in its queue for a tag.
pub(crate) fn holds_lease(inode: &Inode, state: &State) -> bool {
    match state.ownership.deadline() {
        Some(deadline) => clock::instant() < deadline && inode.file.has_lease_still(),
        None => !inode.needs_lease || inode.file.has_lease(),
    }
}

/// Releases the lease if nothing needs it. Otherwise returns the latest time of the next attempt.
pub(crate) fn give_up_lease(inode: &Inode, now: Instant) -> GivingUp {
    let mut state = inode.lock();
    let Some(deadline) = state.ownership.deadline() else { return GivingUp::Done };
    let is_late = now >= deadline;
    if state.ownership.holds_end() && !is_late {
        // The append wakes the context.
        return GivingUp::NotBefore(Some(deadline));
    }
    if state.logging.is_live() {
        // Another program could change the file, and a replay would put older bytes over that. The
        // end of the emptying wakes the context.
        return GivingUp::NotBefore((!is_late).then_some(deadline));
    }
    if state.cache.break_is_over() || is_late && !state.cache.takes_liberties() {
        state.cache.end_break();
        state.ownership.end_break();
        let mut waiting = Vec::new();
        state.service.take_waiting(&mut waiting);
        drop(state);
        // No request that needs the lease is sent after the end of the break.
        inode.file.release_lease();
        user_code::wake_all(waiting);
        tracing::info!(
            path = %inode.path.display(),
            is_late,
            "another program opened the file: shared from now on"
        );
        return GivingUp::Done;
    }
    // After the deadline only the requests at the device are waited for, without a limit.
    GivingUp::NotBefore((!is_late).then_some(deadline))
}

/// State of the release of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GivingUp {
    /// The lease is released.
    Done,
    /// A request of the file has to end first, or this moment has to come.
    NotBefore(Option<Instant>),
}

/// Takes the lock and lease for the first writing handle of a file that was opened for reading.
/// For a later handle, takes a released lease again if possible.
pub(crate) fn claim_shared(shared: &Shared, watch: &LeaseWatch, inode: &Arc<Inode>) -> Result<()> {
    let state = inode.lock();
    let is_ours = state.cache.liberties() == Liberties::Exclusive || state.cache.is_breaking();
    // An interrupted file stays shared.
    let is_settled = is_ours || state.failures.is_interrupted();
    // Before the request: a lease that is lost from here on does not count.
    let breaks = state.cache.breaks();
    drop(state);
    if is_settled {
        return Ok(());
    }
    if claim(watch, &inode.file, inode.target, Claim::default())? == Exclusion::Shared {
        flush_what_was_there(shared, inode);
        return Ok(());
    }
    let look = inode.lock().cache.look();
    let length = inode.file.length().map_err(Error::not_examined)?;
    let ahead = reserving(shared, &inode.file, length);
    let (is_owned, is_breaking) = shared.change(inode, |file| {
        let is_owned = !file.ownership.is_appending()
            && file.apply(|cache, settled| cache.own(length, (look, breaks), settled));
        if is_owned {
            file.cache.set_reserving(ahead);
            // It may have changed for all files meanwhile.
            file.cache.change_reserving(shared.reserving());
        }
        (is_owned, file.cache.is_breaking())
    });
    if is_owned {
        look_at_lease(shared, inode);
    } else if !is_breaking {
        inode.file.release_lease();
    }
    Ok(())
}

/// Takes the lock that excludes other engines, and the lease if no other program has the file
/// open.
pub(crate) fn claim(
    watch: &LeaseWatch,
    file: &OpenFile,
    target: Target,
    claim: Claim,
) -> Result<Exclusion> {
    lock_out_engines(file)?;
    Ok(exclude_others(file, claim, || try_lease(watch, file, target, claim)))
}

/// Takes a lease of a file that is open only for reading, if no other program has it open for
/// writing. With it, pages that were read stay in memory.
pub(crate) fn lease_for_reading(
    watch: &LeaseWatch,
    file: &OpenFile,
    target: Target,
    claim: Claim,
) -> Exclusion {
    exclude_others(file, claim, || file.try_lease(watch, u64::from(target.0)))
}

/// Tries several times to take the lease, so that the file does not count as shared for good. A
/// descriptor lives a moment longer than its program if that was killed, or if a child has it
/// between fork and exec. If a crash left a mark, space has to be given back, and there are
/// more attempts.
fn try_lease(
    watch: &LeaseWatch,
    file: &OpenFile,
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
        let taken = file.try_lease(watch, u64::from(target.0));
        left -= 1;
        match taken {
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) && left > 0 => {
                thread::sleep(Duration::from_millis(1));
            }
            taken => return taken,
        }
    }
}

/// Flushes data of a shared file that was written before this engine could keep it. Afterwards
/// all unflushed data is kept here, so a failed flush can be repaired.
pub(crate) fn flush_what_was_there(shared: &Shared, inode: &Arc<Inode>) {
    let state = inode.lock();
    let wants_flush = state.cache.liberties() == Liberties::Shared && state.cache.lacks_frames();
    drop(state);
    if wants_flush {
        shared.finishing(|after| {
            ask_unawaited(inode, shared, TicketKind::FlushData, after);
        });
    }
}

/// Handles a break of the lease that came before the inode was in the table, or before the
/// lease counted as ours. Then nothing acted on it, and a program waits for it.
pub(crate) fn look_at_lease(shared: &Shared, inode: &Arc<Inode>) {
    if !inode.needs_lease {
        return;
    }
    if inode.lock().cache.liberties() == Liberties::Exclusive && !inode.file.has_lease() {
        break_lease(inode, shared);
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
        let _ = inode.catch(|| break_lease(&inode, shared));
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
fn exclude_others(
    file: &OpenFile,
    claim: Claim,
    take: impl FnOnce() -> std::io::Result<()>,
) -> Exclusion {
    let taken = match file.lease_coverage().gap() {
        None => take(),
        Some(gap) => Err(std::io::Error::other(gap)),
    };
    match taken {
        Ok(()) => Exclusion::Leased,
        // Unless another program has it open.
        Err(error) if claim.is_promised && error.raw_os_error() != Some(libc::EAGAIN) => {
            Exclusion::Promised
        }
        Err(error) => {
            tracing::debug!(%error, "no lease; the file counts as shared");
            Exclusion::Shared
        }
    }
}

/// Takes the lock that excludes other engines.
pub(crate) fn lock_out_engines(file: &OpenFile) -> Result<()> {
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
