//! The part of a file that its context uses: completed bios, leases, the close.

use std::sync::Arc;
use std::time::Instant;

use forebay_block::{Ended, Moment, Operation};
use forebay_cache::CachedFile;
use forebay_cache::file::Look;
use forebay_cache::writeback::settle::Keep;

use super::change::Changing;
use super::{Inode, State};
use crate::core::base::Base;
use crate::core::inode::change::After;
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

impl Inode {
    /// Settles completed bios of the file, in this order. Takes the lock once for all bios of the
    /// file in a run of completions.
    pub(crate) fn settle(
        self: &Arc<Self>,
        base: &Base,
        ended: &[Ended],
        now: Moment,
        after: &mut After,
    ) -> Left {
        self.look_at_space(base, ended);
        self.change(base, after, |file| {
            if file.is_interrupted() {
                // The cache that sent them is gone, with all that waited for them.
                return Left::NOTHING;
            }
            file.is_held = false;
            let rewrites = file.cache.rewrites();
            ended.iter().for_each(|ended| settle_one(file, base, ended, now));
            let has_failed = file.cache.failing().is_some();
            if has_failed {
                base.level.look_again(self.target, file.wakers());
            }
            file.let_writers_through(has_failed);
            file.wake();
            base.pool.take_waiting(file.wakers());
            let is_dirty_again = file.cache.is_dirty() && !file.listed;
            if is_dirty_again {
                file.listed = true;
                file.dirty_since.get_or_insert_with(clock::instant);
            }
            if file.cache.rewrites() > rewrites {
                Counters::add(&base.counters.rewrites, 1);
                tracing::info!(
                    path = %self.path.display(),
                    "another program has mapped the written pages; writing them again"
                );
            }
            let is_awaited = file.cache.holds_back()
                || file.cache.has_tickets() && !file.is_led()
                || file.break_deadline.is_some()
                || base.level.has_waiters()
                || base.pool.has_waiting();
            Left { is_dirty_again, keeps: file.cache.kept_pages() > 0, is_awaited }
        })
    }
}

fn settle_one(file: &mut Changing<'_>, base: &Base, Ended { bio, result }: &Ended, now: Moment) {
    if result.is_ok() {
        Counters::add(&base.counters.given_back_bytes, file.cache.gives_back(bio));
    }
    file.apply(|cache, settled| cache.settle(bio, *result, Keep::Clean, settled));
    // Before the next bio is settled, and before the arena records the end of the cut.
    file.publish();
    file.report_cut_ends(base, bio);
    if bio.operation == Operation::Allocate && result.is_ok() {
        file.cache.note_reserved(now);
    }
    let (state, reported) = file.latencies();
    state.samples.ended(bio, *result, now, reported);
}

impl Changing<'_> {
    /// Drops all pages, because the context closes the file, which has no handle left.
    pub(crate) fn close(&mut self, base: &Base) {
        self.apply(CachedFile::discard);
        self.give_back_unused();
        self.publish();
        self.leave_arena(base);
    }

    /// Notes that the context has registered the new descriptor.
    pub(crate) fn end_renewing(&mut self) {
        self.is_renewing = false;
        self.wake();
    }

    /// Uses the liberties that the lease of the file allows. Returns false if the lease has to be
    /// released instead.
    pub(crate) fn own(&mut self, disk_size: u64, (look, breaks): (Look, u64)) -> bool {
        self.apply(|cache, settled| cache.own(disk_size, (look, breaks), settled))
    }

    /// Stops using the liberties of the lease, because another program opens the file. Has the
    /// context look at it.
    pub(crate) fn begin_break(&mut self, deadline: Instant) {
        self.apply(CachedFile::begin_break);
        self.break_deadline.get_or_insert(deadline);
        self.look();
    }
}

impl State {
    /// Notes that the lease is released.
    pub(crate) fn end_break(&mut self) {
        self.cache.end_break();
        self.break_deadline = None;
    }
}
