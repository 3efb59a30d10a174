//! A blocking sync with little to write makes its requests on its own thread.
//!
//! ```text
//! ask --nobody leads, little to write--> lead: gather -> system call -> settle -> gather -> ...
//!   \--a caller leads--> wait --its ticket ends--> offered the lead, for the next flush
//!   \--otherwise--> the context
//! ```
//!
//! The way over the context costs two switches of threads, and its ring makes a flush on a kernel
//! thread, which costs two more. The leader needs none. Syncs that arrive while it flushes wait,
//! and share the next flush: group commit, as in databases.
//!
//! The rules are those of the context. Bios are gathered and settled under the file's lock, so at
//! most one write of a page is in flight. Background writeback of the file continues beside a
//! leader. A leader leaves some work to the context, together with the lead: reservations, reads
//! for partly written pages, changes of length, the end of a lease.

pub(crate) mod kits;
pub(crate) mod lead;
pub(crate) mod tickets;
pub(crate) mod together;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use forebay_block::{Bio, Operation};
use forebay_cache::{Gaps, Reason, TicketId, TicketKind};

use crate::core::direct::plug::plugged_no_more;
use crate::core::error::Result;
use crate::core::inode::Inode;
use crate::core::inode::change::Changing;
use crate::core::limits::LEAD_BIOS;
use crate::core::recovery::HeldOff;
use crate::core::shared::Shared;
use crate::core::stats::Counters;
use crate::core::sync::lead::Leads;
use crate::core::sync::tickets::Turn;
use crate::platform::clock;

/// Future of a sync. If it is dropped, the sync continues and its result is lost. The file
/// remembers a failed flush.
#[derive(Debug)]
pub(crate) struct Syncing<'a> {
    inode: &'a Arc<Inode>,
    shared: &'a Shared,
    request: TicketKind,
    id: Option<TicketId>,
}

impl<'a> Syncing<'a> {
    /// Creates a sync, which begins with the first poll.
    pub(crate) fn new(inode: &'a Arc<Inode>, shared: &'a Shared, request: TicketKind) -> Self {
        Self { inode, shared, request, id: None }
    }

    /// Serves the tickets of the file until the own one has ended, or the context has to.
    fn lead(&self, id: TicketId) {
        let Self { inode, shared, .. } = *self;
        let held = shared.hold_off_keeper();
        while let Some(bios) = self.gather(id, held.is_some()) {
            inode.make_here(shared, bios, held.as_ref());
        }
    }

    /// Returns the next bios to make. `None` if the caller no longer leads.
    fn gather(&self, id: TicketId, may_lead: bool) -> Option<Vec<Bio>> {
        let Self { inode, shared, .. } = *self;
        shared.change(inode, |file| {
            if !file.is_led_by(id) {
                return None;
            }
            let may_lead = may_lead
                && !file.is_orphaned()
                && !inode.is_closed()
                && !shared.is_left()
                && file.cache.awaits_only_flushes();
            let bios = if may_lead && file.cache.is_waiting(id) {
                file.gather_led(shared)
            } else {
                Vec::new()
            };
            if bios.is_empty() {
                file.end_lead(id);
                return None;
            }
            Some(bios)
        })
    }
}

impl Inode {
    /// Makes requests of the file on the calling thread, and settles them. A keeper has to be held
    /// off if one of them is a write.
    pub(crate) fn make_here(
        self: &Arc<Self>,
        shared: &Shared,
        bios: Vec<Bio>,
        held: Option<&HeldOff>,
    ) {
        // A panic here counts as one under the lock: the bios would stay in flight for ever.
        let ended = self.copying(|| {
            let mut kit = shared.kits.take(&shared.pool);
            let ended = kit.make(self, bios, &shared.counters, held.and_then(HeldOff::alive));
            shared.kits.put(kit);
            ended
        });
        shared.finishing(|after| {
            let left = self.settle(shared, &ended, clock::now(), after);
            let has_failed = ended.iter().any(|ended| ended.result.is_err());
            if left.is_dirty_again || left.keeps || left.is_awaited || has_failed {
                self.change(shared, after, |file| file.leave_to_context(left.is_dirty_again));
            }
        });
    }
}

impl Changing<'_> {
    /// Gathers bios for the tickets of the file. Those that a leader does not make are passed to
    /// the context.
    fn gather_led(&mut self, shared: &Shared) -> Vec<Bio> {
        // Zeroes over holes are worth it only in large writes.
        self.cache.set_gaps(Gaps::Unfilled);
        let mut bios = Vec::new();
        while bios.len() < LEAD_BIOS
            && let Some(bio) = self.cache.next_bio(Reason::Sync)
        {
            match bio.operation {
                Operation::Write | Operation::WriteBuffered | Operation::FlushDirectory => {}
                Operation::FlushData | Operation::FlushAll => {
                    Counters::add(&shared.counters.flushes, 1);
                    self.samples.flush_begins();
                }
                _ => {
                    self.submit([bio]);
                    continue;
                }
            }
            bios.push(bio);
        }
        bios
    }

    /// Has the context do what is left after requests that a caller has made.
    fn leave_to_context(&mut self, is_dirty_again: bool) {
        if is_dirty_again {
            // The context enters it in its list.
            self.listed = false;
        }
        self.look();
    }
}

impl Future for Syncing<'_> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { inode, shared, request, .. } = *self;
        let leads = Leads::of(context.waker());
        let id = self.id.unwrap_or_else(|| {
            shared.finishing(|after| {
                inode.ask_to_lead(shared, request, (context.waker(), leads), after)
            })
        });
        self.id = Some(id);
        loop {
            match inode.poll_turn(context, id, leads) {
                Turn::Waits => return plugged_no_more(Poll::Pending),
                Turn::Leads => self.lead(id),
                Turn::Ended(result) => {
                    self.id = None;
                    return Poll::Ready(result);
                }
            }
        }
    }
}

impl Drop for Syncing<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        self.shared.change(self.inode, |file| {
            file.abandon(id);
            if file.is_led_by(id) {
                file.pass_lead_on();
            }
        });
    }
}
