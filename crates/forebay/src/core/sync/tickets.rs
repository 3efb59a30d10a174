//! Tickets: requests of callers to the context, and the waits for them.
//!
//! The context of a file serves its tickets, except while a caller leads: a blocking sync serves
//! the tickets itself (`sync/mod.rs`). [`Lead`] says who does.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use forebay_cache::{Failure, Liberties, Reason, TicketId, TicketKind};

use crate::core::base::Base;
use crate::core::direct::plug::plugged_no_more;
use crate::core::error::{Error, Result};
use crate::core::inode::change::{After, Changing};
use crate::core::inode::{Inode, State};
use crate::core::limits::LEAD_PAGES;
use crate::core::shared::Shared;
use crate::core::sync::lead::{Lead, Leads, Waiter};

/// The ticket of an interrupted file, which no context serves.
const NO_TICKET: TicketId = TicketId(u64::MAX);

/// State of a ticket, for the caller that waits for it.
#[derive(Debug)]
pub(crate) enum Turn {
    /// It has ended.
    Ended(Result<()>),
    /// It is being served. The caller is woken at its end, or to take the lead.
    Waits,
    /// The caller has the lead.
    Leads,
}

impl Inode {
    /// Adds a request to the context and returns its ticket. The context gets the message when
    /// `after` is finished.
    pub(crate) fn ask_with(
        self: &Arc<Self>,
        base: &Base,
        request: TicketKind,
        after: &mut After,
    ) -> TicketId {
        self.change(base, after, |file| file.ask(request))
    }

    /// As [`Inode::ask_with`], but no caller waits, so the engine's callback gets a failure. (A
    /// ticket that is abandoned later may already have failed unreported.)
    pub(crate) fn ask_unawaited_with(
        self: &Arc<Self>,
        base: &Base,
        request: TicketKind,
        after: &mut After,
    ) {
        self.change(base, after, |file| {
            let id = file.ask(request);
            file.cache.abandon(id);
        });
    }

    /// Adds a sync and returns its ticket. The caller takes the lead if it may, nobody has it, and
    /// there is little to write. Otherwise it is registered as waiting.
    pub(crate) fn ask_to_lead(
        self: &Arc<Self>,
        base: &Base,
        request: TicketKind,
        (waker, leads): (&Waker, Leads),
        after: &mut After,
    ) -> TicketId {
        let waker = waker.clone();
        self.change(base, after, |file| {
            let id = file.ask_quietly(request);
            if file.cache.dirty_pages() <= LEAD_PAGES {
                file.inode().volume.note_small_sync();
            }
            match file.lead {
                Lead::Context if leads == Leads::May && file.can_be_led() => {
                    file.lead = Lead::Caller(id);
                    return id;
                }
                Lead::Context => file.look(),
                // The present leader passes the lead on at its end.
                Lead::Caller(_) | Lead::Offered(_) => {}
            }
            // The poll of an interrupted file returns the error: its caller does not wait.
            if !file.is_interrupted {
                file.ticket_wakers.push(Waiter { id, leads, waker });
            }
            id
        })
    }

    /// As [`Inode::ask_with`], for a caller that closes the file. A ticket with nothing to do ends
    /// here, and the context is not told about it.
    pub(crate) fn ask_to_close(
        self: &Arc<Self>,
        base: &Base,
        request: TicketKind,
        after: &mut After,
    ) -> TicketId {
        self.change(base, after, |file| {
            let is_clean = !file.cache.is_dirty() && !file.cache.has_tickets();
            let may_end = is_clean && !file.is_led() && file.can_be_led();
            let id = file.ask_quietly(request);
            if may_end {
                while let Some(bio) = file.cache.next_bio(Reason::Sync) {
                    file.submit([bio]);
                }
            }
            if !may_end || file.cache.is_waiting(id) {
                file.look();
            }
            id
        })
    }

    /// Returns the state of a ticket. Registers the caller if it has to wait.
    ///
    /// # Errors
    /// Of the ticket; `Poisoned` if a panic has interrupted a change of the file; `Shutdown` if no
    /// context will serve it, because the file is closed or the engine has ended.
    pub(crate) fn poll_turn(&self, context: &Context<'_>, id: TicketId, leads: Leads) -> Turn {
        let mut waker = context.waker().clone();
        let mut state = self.lock();
        if let Err(error) = self.check_whole(&state) {
            return Turn::Ended(Err(error));
        }
        // First, because the lead has to be passed on even if the ticket has ended.
        if state.is_led_by(id) {
            state.lead = Lead::Caller(id);
            return Turn::Leads;
        }
        if let Some(result) = state.cache.fetch(id) {
            return Turn::Ended(result.map_err(|failure| self.failure(failure)));
        }
        if state.is_closed || state.is_orphan {
            return Turn::Ended(Err(Error::unserved().at_path(&self.path)));
        }
        match state.ticket_wakers.iter_mut().find(|waiter| waiter.id == id) {
            // The previous waker is dropped once the lock is released.
            Some(waiter) => std::mem::swap(&mut waiter.waker, &mut waker),
            None => state.ticket_wakers.push(Waiter { id, leads, waker }),
        }
        Turn::Waits
    }

    /// Returns the result of a ticket that its caller never serves.
    ///
    /// # Errors
    /// As [`Inode::poll_turn`].
    pub(crate) fn poll_ticket(&self, context: &Context<'_>, id: TicketId) -> Poll<Result<()>> {
        match self.poll_turn(context, id, Leads::Never) {
            Turn::Ended(result) => Poll::Ready(result),
            Turn::Waits => Poll::Pending,
            Turn::Leads => unreachable!("the lead is offered only to callers that may take it"),
        }
    }

    /// Declares that no caller will fetch the result of a ticket.
    pub(crate) fn abandon(&self, id: TicketId) {
        self.lock().abandon(id);
    }

    /// As [`Inode::abandon`]. Returns its failure if it has ended already.
    pub(crate) fn abandon_unreported(&self, id: TicketId) -> Option<Failure> {
        let mut state = self.lock();
        let unreported = state.cache.fetch(id).and_then(std::result::Result::err);
        state.abandon(id);
        unreported
    }
}

impl Changing<'_> {
    fn ask(&mut self, request: TicketKind) -> TicketId {
        let id = self.ask_quietly(request);
        self.look();
        id
    }

    /// Takes a ticket that the context is not told about.
    fn ask_quietly(&mut self, request: TicketKind) -> TicketId {
        // A poll of the ticket of an interrupted file returns the error.
        let id = if self.is_interrupted { NO_TICKET } else { self.cache.ask(request) };
        self.give_back_unused();
        id
    }

    /// Ends the lead of a caller: offers it to the caller that has waited longest, or gives it back
    /// to the context.
    pub(crate) fn pass_lead_on(&mut self) {
        self.lead = Lead::Context;
        if !self.cache.has_tickets() {
            return;
        }
        let may_lead =
            |waiter: &Waiter| waiter.leads == Leads::May && self.cache.is_waiting(waiter.id);
        let next = self.ticket_wakers.iter().position(may_lead).filter(|_| self.can_be_led());
        let Some(next) = next else { return self.look() };
        let Waiter { id, waker, .. } = self.ticket_wakers.remove(next);
        self.ticket_wakers.tidy();
        self.lead = Lead::Offered(id);
        self.wakers().push(waker);
    }

    /// Ends the lead of the caller of a ticket: passes it on if the ticket has ended. Otherwise
    /// there is more to do than a caller should, and the context gets it.
    pub(crate) fn end_lead(&mut self, id: TicketId) {
        if self.cache.is_waiting(id) {
            self.lead = Lead::Context;
            self.look();
        } else {
            self.pass_lead_on();
        }
    }
}

impl State {
    /// Returns whether a caller may make the requests of the file itself: there are few, nothing is
    /// in flight that it would wait for, and the file stays what and where it is.
    fn can_be_led(&self) -> bool {
        !self.is_interrupted
            && !self.is_renewing
            && self.break_deadline.is_none()
            && self.cache.liberties() == Liberties::Exclusive
            && self.cache.dirty_pages() <= LEAD_PAGES
            && !self.cache.in_flight()
            && self.cache.awaits_only_flushes()
    }

    /// Declares that no caller will fetch the result of a ticket, or take the lead for it.
    pub(crate) fn abandon(&mut self, id: TicketId) {
        self.cache.abandon(id);
        if !self.ticket_wakers.is_empty() {
            self.ticket_wakers.retain(|waiter| waiter.id != id);
            self.ticket_wakers.tidy();
        }
    }

    /// Returns whether the caller of this ticket has the lead, or was offered it.
    pub(crate) fn is_led_by(&self, id: TicketId) -> bool {
        self.lead == Lead::Caller(id) || self.lead == Lead::Offered(id)
    }

    /// Returns whether a caller serves the tickets, or is about to.
    pub(crate) fn is_led(&self) -> bool {
        self.lead != Lead::Context
    }

    /// Wakes callers whose tickets have ended.
    #[inline]
    pub(crate) fn report_tickets(&mut self, after: &mut After) {
        if self.reported_tickets != self.cache.finished_tickets() {
            self.report_ended(after);
        }
    }

    #[inline(never)]
    fn report_ended(&mut self, after: &mut After) {
        self.reported_tickets = self.cache.finished_tickets();
        let wakers = &mut after.effects().wakers;
        let Self { ticket_wakers, cache, .. } = self;
        if !ticket_wakers.is_empty() {
            let ended = ticket_wakers.extract_if(.., |waiter| !cache.is_waiting(waiter.id));
            wakers.extend(ended.map(|waiter| waiter.waker));
            ticket_wakers.tidy();
        }
        // The end of a change of length lets waiting calls continue.
        self.page_wakers.drain_into(wakers);
    }
}

impl Inode {
    /// Sends a request to the context and returns its ticket.
    pub(crate) fn ask(self: &Arc<Self>, shared: &Shared, request: TicketKind) -> TicketId {
        shared.finishing(|after| self.ask_with(shared, request, after))
    }

    /// As [`Inode::ask`], but no caller waits, so the engine's callback gets a failure.
    pub(crate) fn ask_unawaited(self: &Arc<Self>, shared: &Shared, request: TicketKind) {
        shared.finishing(|after| self.ask_unawaited_with(shared, request, after));
    }
}

/// Future of a request to the context. If it is dropped, the request continues and its result is
/// lost.
#[derive(Debug)]
pub(crate) struct Ticket {
    inode: Arc<Inode>,
    id: Option<TicketId>,
    /// Engine whose callback gets a failure that has come when the future is dropped, because no
    /// handle is left to report it.
    reports: Option<Arc<Shared>>,
}

impl Ticket {
    pub(crate) fn new(inode: Arc<Inode>, id: TicketId) -> Self {
        Self { inode, id: Some(id), reports: None }
    }

    /// Creates the ticket of the last close of a file.
    pub(crate) fn of_close(inode: Arc<Inode>, id: TicketId, shared: Arc<Shared>) -> Self {
        Self { inode, id: Some(id), reports: Some(shared) }
    }

    /// Sends the same request for several open files, without handles of them. The table is locked
    /// meanwhile: no context closes a file that is in the table and has a ticket.
    pub(crate) fn of_all(
        shared: &Shared,
        request: TicketKind,
        is_asked: impl Fn(&Inode) -> bool,
    ) -> Vec<Self> {
        let mut after = After::default();
        let table = shared.table();
        let inodes = table.inodes().into_iter().filter(|inode| is_asked(inode));
        let ask = |inode: Arc<Inode>| {
            let id = inode.ask_with(shared, request, &mut after);
            Self::new(inode, id)
        };
        let tickets = inodes.map(ask).collect();
        drop(table);
        shared.finish(&mut after);
        tickets
    }

    pub(crate) fn inode(&self) -> &Arc<Inode> {
        &self.inode
    }
}

impl Future for Ticket {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let id = self.id.expect("a ticket was polled after its end");
        match self.inode.poll_ticket(context, id) {
            Poll::Pending => plugged_no_more(Poll::Pending),
            Poll::Ready(result) => {
                self.id = None;
                Poll::Ready(result)
            }
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let Some(id) = self.id else { return };
        let Some(shared) = &self.reports else { return self.inode.abandon(id) };
        if let Some(failure) = self.inode.abandon_unreported(id) {
            shared.report(&self.inode.failure(failure));
        }
    }
}

/// Result of a close that still waits for the file to be closed, or of a shutdown on another thread.
/// The engine's callback gets a failure if the future is dropped meanwhile.
pub(crate) struct Undelivered {
    shared: Arc<Shared>,
    result: Result<()>,
}

impl Undelivered {
    pub(crate) fn new(shared: &Arc<Shared>, result: Result<()>) -> Self {
        Self { shared: Arc::clone(shared), result }
    }

    /// Returns the result to the caller.
    pub(crate) fn deliver(mut self) -> Result<()> {
        std::mem::replace(&mut self.result, Ok(()))
    }
}

impl Drop for Undelivered {
    fn drop(&mut self) {
        if let Err(error) = &self.result {
            self.shared.report(error);
        }
    }
}
