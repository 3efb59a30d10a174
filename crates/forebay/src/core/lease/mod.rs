//! The lease of an open file: what it allows, and how it goes to another program.
//!
//! ```text
//! open            claim.rs: the lock against other engines, and the lease if nobody has the file
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

pub(crate) mod claim;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use forebay_cache::{CachedFile, Liberties};

use crate::core::inode::Inode;
use crate::core::inode::change::Changing;
use crate::core::inode::state::State;
use crate::core::limits::{LEASE_BREAK, LEASE_LOOK};
use crate::core::shared::Shared;
use crate::core::user_code;
use crate::platform::clock;

/// Stops using the liberties of the lease. The context releases the lease when accepted data is
/// written, or at the deadline.
pub(crate) fn break_lease(inode: &Arc<Inode>, shared: &Shared) {
    let (is_closed, is_interrupted) = shared.change(inode, |file| {
        let (is_closed, is_interrupted) =
            (file.service.is_closed(), file.failures.is_interrupted());
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
