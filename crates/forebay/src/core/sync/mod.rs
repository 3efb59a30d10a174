//! Syncs: who makes the writes and the flush of a sync, and how callers wait for it.
//!
//! ```text
//!                  +-- the caller   little to write, nobody leads: gather -> system call -> settle
//! sync --decide----+-- the leader   a flush is under way: wait, and share the next one
//!                  +-- the context  otherwise: message -> next bios -> queue -> ring -> settle
//!                                       the caller is woken at the end of its ticket
//! ```
//!
//! Every sync takes a ticket of the cache. It ends once all bytes that were accepted before it are
//! written, and a flush that began after those writes has succeeded. [`decide`] is the only place
//! that chooses who does the work, at two moments.
//!
//! A caller asks:
//!
//! - Another caller leads: that leader's successor does it. The next flush covers all syncs that
//!   wait. This is group commit, as in databases.
//! - The caller blocks, there are at most [`LEAD_PAGES`] dirty pages, and nothing is in flight: the
//!   caller leads. The way over the context costs two switches of threads, and its ring makes a
//!   flush on a kernel thread, which costs two more.
//! - Otherwise the context. It keeps many requests in flight. It alone reserves space, reads for
//!   partly written pages, sets lengths and ends a lease.
//!
//! A leader ends:
//!
//! - Its ticket has ended, and other blocking callers wait: the one that has waited longest leads.
//! - Otherwise, or if the leader has found more to do than it may: the context.
//!
//! A leader follows the rules of the context. It gathers and settles bios under the file's lock, so
//! at most one write of a page is in flight. Background writeback of the file continues beside it.
//!
//! - `tickets`: requests to the context, and waits. `together`: a sync of many files.
//! - `lead`: the callers that wait, the lead, and the queues of leaders.

pub(crate) mod lead;
pub(crate) mod tickets;
pub(crate) mod together;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use forebay_block::{Bio, Operation};
use forebay_cache::{Gaps, Liberties, Reason, TicketId, TicketKind};

use self::lead::Leads;
use self::tickets::{TicketState, abandon, poll_ticket, take_ticket};
use crate::core::base::Base;
use crate::core::direct::plug::plugged_no_more;
use crate::core::error::Result;
use crate::core::inode::Inode;
use crate::core::inode::change::{After, Changing};
use crate::core::inode::settle::settle;
use crate::core::inode::state::State;
use crate::core::limits::{LEAD_BIOS, LEAD_PAGES};
use crate::core::recovery::HeldOff;
use crate::core::shared::Shared;
use crate::core::stats::Counters;
use crate::platform::clock;

/// The one that makes the requests of a sync.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Server {
    /// The caller that asks, on its own thread.
    Caller,
    /// The leader of the flush under way, which offers the lead to a caller that waits.
    Leader,
    /// The caller that waits for this ticket. It is woken for the lead.
    Waiter(TicketId),
    /// The context of the file.
    Context,
}

/// Moment of a decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// A caller asks for a sync.
    Asked(Leads),
    /// The leader's own ticket has ended, or nobody waits for it any longer.
    LeaderIsDone,
    /// The leader has found more to do than it may.
    LeaderGivesUp,
}

/// Decides who makes the requests of the syncs of a file from now on; see the page above.
pub(crate) fn decide(file: &State, event: Event) -> Server {
    // Few requests, nothing in flight that a caller would wait for, and the file keeps its lease
    // and its descriptor.
    let can_be_led = || {
        !file.failures.is_interrupted()
            && !file.service.is_renewing()
            && !file.ownership.is_breaking()
            && file.cache.liberties() == Liberties::Exclusive
            && file.cache.dirty_pages() <= LEAD_PAGES
            && !file.cache.in_flight()
            && file.cache.awaits_only_flushes()
    };
    match event {
        Event::Asked(_) if file.syncing.is_led() => Server::Leader,
        Event::Asked(Leads::May) if can_be_led() => Server::Caller,
        Event::Asked(_) | Event::LeaderGivesUp => Server::Context,
        Event::LeaderIsDone => match file.syncing.next_leader(&file.cache) {
            Some(id) if can_be_led() => Server::Waiter(id),
            _ => Server::Context,
        },
    }
}

/// Adds a sync and returns its ticket. The caller leads, or is registered as waiting.
fn ask_to_sync(
    inode: &Arc<Inode>,
    base: &Base,
    request: TicketKind,
    waker: &Waker,
    after: &mut After,
) -> TicketId {
    let (waker, leads) = (waker.clone(), Leads::of(waker));
    inode.change(base, after, |file| {
        let id = take_ticket(file, request);
        if file.cache.dirty_pages() <= LEAD_PAGES {
            inode.volume.note_small_sync();
        }
        match decide(file, Event::Asked(leads)) {
            Server::Caller => {
                file.syncing.lead(id);
                return id;
            }
            Server::Context => file.look(),
            Server::Leader | Server::Waiter(_) => {}
        }
        // The poll of an interrupted file returns the error: its caller does not wait.
        if !file.failures.is_interrupted() {
            let previous = file.syncing.wait(id, leads, waker);
            debug_assert!(previous.is_none(), "two callers would fetch the result of one ticket");
        }
        id
    })
}

/// Ends the lead of a caller, and passes it on if syncs wait.
fn end_lead(file: &mut Changing<'_>, event: Event) {
    file.syncing.end_lead();
    if !file.cache.has_tickets() {
        return;
    }
    match decide(file, event) {
        Server::Waiter(id) => {
            let waker = file.syncing.offer(id);
            file.wakers().push(waker);
        }
        _ => file.look(),
    }
}

/// Future of a sync. If it is dropped, the sync continues and its result is lost. The file
/// remembers a failed flush.
#[derive(Debug)]
pub(crate) struct SyncCall<'a> {
    inode: &'a Arc<Inode>,
    shared: &'a Shared,
    request: TicketKind,
    id: Option<TicketId>,
}

impl<'a> SyncCall<'a> {
    /// Creates a sync, which begins with the first poll.
    pub(crate) fn new(inode: &'a Arc<Inode>, shared: &'a Shared, request: TicketKind) -> Self {
        Self { inode, shared, request, id: None }
    }

    /// Serves the tickets of the file until the own one has ended, or the context has to.
    fn lead(&self, id: TicketId) {
        let Self { inode, shared, .. } = *self;
        let held = shared.hold_off_keeper();
        while let Some(bios) = self.gather(id, held.is_some()) {
            make_here(inode, shared, bios, held.as_ref());
        }
    }

    /// Returns the next bios to make. `None` if the caller no longer leads.
    fn gather(&self, id: TicketId, may_lead: bool) -> Option<Vec<Bio>> {
        let Self { inode, shared, .. } = *self;
        shared.change(inode, |file| {
            if !file.syncing.is_led_by(id) {
                return None;
            }
            let may_lead = may_lead
                && !file.service.is_orphaned()
                && !inode.is_closed()
                && !shared.is_left()
                && shared.may_change(file)
                && file.cache.awaits_only_flushes();
            let bios = if may_lead && file.cache.is_waiting(id) {
                gather_led(file, shared)
            } else {
                Vec::new()
            };
            if bios.is_empty() {
                let gives_up = file.cache.is_waiting(id);
                end_lead(file, if gives_up { Event::LeaderGivesUp } else { Event::LeaderIsDone });
                return None;
            }
            Some(bios)
        })
    }
}

impl Future for SyncCall<'_> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { inode, shared, request, .. } = *self;
        let waker = context.waker();
        let id = self.id.unwrap_or_else(|| {
            shared.finishing(|after| ask_to_sync(inode, shared, request, waker, after))
        });
        self.id = Some(id);
        let leads = Leads::of(waker);
        loop {
            match poll_ticket(inode, context, id, leads) {
                TicketState::Waits => return plugged_no_more(Poll::Pending),
                TicketState::Leads => self.lead(id),
                TicketState::Ended(result) => {
                    self.id = None;
                    return Poll::Ready(result);
                }
            }
        }
    }
}

impl Drop for SyncCall<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id.filter(|_| self.inode.is_here()) else { return };
        self.shared.change(self.inode, |file| {
            abandon(file, id);
            if file.syncing.is_led_by(id) {
                end_lead(file, Event::LeaderIsDone);
            }
        });
    }
}

/// Makes requests of a file on the calling thread, and settles them. A keeper has to be held off if
/// one of them is a write.
pub(crate) fn make_here(
    inode: &Arc<Inode>,
    shared: &Shared,
    bios: Vec<Bio>,
    held: Option<&HeldOff>,
) {
    assert!(!bios.is_empty(), "a leader without requests would lead for ever");
    let flushes = |bio: &Bio| matches!(bio.operation, Operation::FlushData | Operation::FlushAll);
    let is_flush = matches!(&bios[..], [bio] if flushes(bio));
    let begin = is_flush.then(clock::now);
    // A panic here counts as one under the lock: the bios would stay in flight for ever.
    let ended = inode.copying(|| {
        let mut queue = shared.caller_queues.take(&shared.pool);
        let alive = held.and_then(HeldOff::alive);
        let ended = queue.make(inode.target, &inode.file, bios, &shared.counters, alive);
        shared.caller_queues.put(queue);
        ended
    });
    let now = clock::now();
    if let Some(begin) = begin
        && ended[0].result.is_ok()
    {
        inode.volume.note_flush(now.since(begin), now);
    }
    shared.finishing(|after| {
        let left = settle(inode, shared, &ended, now, after);
        let has_failed = ended.iter().any(|ended| ended.result.is_err());
        if left.is_dirty_again || left.keeps || left.is_awaited || has_failed {
            inode.change(shared, after, |file| {
                if left.is_dirty_again {
                    // The context enters it in its list.
                    file.service.unlist();
                }
                file.look();
            });
        }
    });
}

/// Gathers bios for the tickets of a file. Those that a leader does not make are passed to the
/// context.
fn gather_led(file: &mut Changing<'_>, shared: &Shared) -> Vec<Bio> {
    // Zeroes over holes are worth it only in large writes.
    file.cache.set_gaps(Gaps::Unfilled);
    file.cache.set_request_pages(u64::MAX, u64::MAX);
    let mut bios = Vec::new();
    while bios.len() < LEAD_BIOS
        && let Some(bio) = file.cache.next_bio(Reason::Sync)
    {
        match bio.operation {
            Operation::Write | Operation::WriteBuffered | Operation::FlushDirectory => {}
            Operation::FlushData | Operation::FlushAll => {
                Counters::add(&shared.counters.flushes, 1);
                file.samples.flush_begins();
                let (state, _) = file.latencies();
                state.account.report_sent(&mut state.cache, &bio);
            }
            _ => {
                file.submit([bio]);
                continue;
            }
        }
        bios.push(bio);
    }
    debug_assert!(bios.len() <= LEAD_BIOS, "a caller would keep its file from the context");
    bios
}
