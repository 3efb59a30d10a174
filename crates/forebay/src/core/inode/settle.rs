//! Completed bios of a file, settled by its context or by the caller that made the requests; and
//! the end of a file whose pages nobody will write.

use std::sync::Arc;

use forebay_block::{Ended, Moment, Operation};
use forebay_cache::CachedFile;
use forebay_cache::writeback::settle::Keep;

use super::Inode;
use super::change::{After, Changing};
use crate::core::base::Base;
use crate::core::stats::Counters;
use crate::platform::clock;

/// Work left after bios have ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Left {
    /// Whether the file became dirty and was not in the list of dirty files.
    pub(crate) is_dirty_again: bool,
    /// Whether the file keeps pages for a flush.
    pub(crate) keeps: bool,
    /// Whether the context may have waited for the end of these bios.
    pub(crate) is_awaited: bool,
}

impl Left {
    /// Nothing is dirty, or kept, of an interrupted file.
    pub(crate) const NOTHING: Self =
        Self { is_dirty_again: false, keeps: false, is_awaited: false };
}

/// Settles completed bios of a file, in this order. Takes the lock once for all bios of the file in
/// a run of completions.
pub(crate) fn settle(
    inode: &Arc<Inode>,
    base: &Base,
    ended: &[Ended],
    now: Moment,
    after: &mut After,
) -> Left {
    inode.change(base, after, |file| {
        if file.failures.is_interrupted() {
            // The cache that sent them is gone, with all that waited for them.
            return Left::NOTHING;
        }
        file.service.end_hold();
        let rewrites = file.cache.rewrites();
        ended.iter().for_each(|ended| settle_one(file, base, ended, now));
        let has_failed = file.cache.failing().is_some();
        if has_failed {
            base.level.look_again(inode.target, file.wakers());
        }
        file.let_writers_through(has_failed);
        file.wake();
        base.pool.take_waiting(file.wakers());
        let is_dirty_again = file.cache.is_dirty() && file.service.list();
        if is_dirty_again {
            file.service.is_dirty_again(clock::instant);
        }
        if file.cache.rewrites() > rewrites {
            Counters::add(&base.counters.rewrites, 1);
            tracing::info!(
                path = %inode.path.display(),
                "another program has mapped the written pages; writing them again"
            );
        }
        let is_awaited = file.cache.holds_back()
            || file.cache.has_tickets() && !file.syncing.is_led()
            || file.ownership.is_breaking()
            || base.level.has_waiters()
            || base.pool.has_waiting();
        Left { is_dirty_again, keeps: file.cache.kept_pages() > 0, is_awaited }
    })
}

fn settle_one(file: &mut Changing<'_>, base: &Base, Ended { bio, result }: &Ended, now: Moment) {
    // Checked in every build: otherwise bytes of this file would count as written.
    assert_eq!(bio.target, file.inode().target, "a bio ends at the file that made it");
    if result.is_ok() {
        Counters::add(&base.counters.given_back_bytes, file.cache.gives_back(bio));
    }
    file.apply(|cache, settled| cache.settle(bio, *result, Keep::Clean, settled));
    // Before the next bio is settled, and before the arena records the end of the cut.
    file.publish();
    file.account.report_cut_ends(bio);
    if bio.operation == Operation::Allocate && result.is_ok() {
        file.cache.note_reserved(now);
    }
    let (state, reported) = file.latencies();
    state.account.report_flushed(&state.cache, bio, result.is_ok());
    state.samples.ended(bio, *result, now, reported);
}

/// Drops all pages of a file that is being closed and has no handle left.
pub(crate) fn drop_pages(file: &mut Changing<'_>) {
    file.apply(CachedFile::discard);
    file.give_back_unused();
    debug_assert_eq!(file.cache.dirty_pages(), 0, "the level would count pages of no file");
    debug_assert!(file.charges.is_unused(), "frames of the file would be lost");
    file.publish();
    file.account.leave_arena();
}

/// Whether a caller waits for a ticket of an interrupted file, and so gets the error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Heard {
    /// A caller waits.
    Yes,
    /// No caller waits, so the engine's callback must be called.
    No,
}

/// Takes back all counts of an interrupted file, and wakes all its waiters. Returns `None` if that
/// was done before.
pub(crate) fn give_up(inode: &Arc<Inode>, base: &Base, after: &mut After) -> Option<Heard> {
    let mut state = inode.lock();
    if !state.failures.give_up() {
        return None;
    }
    debug_assert_eq!(state.cache.dirty_pages(), 0, "a write was accepted after the panic");
    let heard = if state.syncing.has_waiters() { Heard::Yes } else { Heard::No };
    let effects = after.effects();
    effects.uncharged += state.charges.take_owed();
    effects.wakers.append(&mut state.ownership.take_appends());
    effects.wakers.extend(state.syncing.take_waiters());
    effects.wakers.append(&mut state.logging.take_waiters());
    // Counts the empty cache.
    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "the method itself is not general enough in its lifetime"
    )]
    inode.change_locked(base, &mut state, after, |file| file.wake());
    drop(state);
    let wakers = &mut after.effects().wakers;
    base.level.look_again(inode.target, wakers);
    base.pool.take_waiting(wakers);
    Some(heard)
}
