//! Tickets: requests of callers to the context, and the waits for them.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use forebay_cache::{TicketId, TicketKind};

use super::after::After;
use super::change::Changing;
use super::{Inode, State};
use crate::core::base::Base;
use crate::core::error::Result;

/// The ticket of an interrupted file, which no context serves.
const NO_TICKET: TicketId = TicketId(u64::MAX);

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
    pub(crate) fn ask_unheard_with(
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

    /// Returns the result of a ticket; `None` if no context will serve it, because the file is
    /// closed or the engine has ended.
    ///
    /// # Errors
    /// Of the ticket; `Poisoned` if a panic has interrupted a change of the file.
    pub(crate) fn poll_ticket(
        &self,
        context: &Context<'_>,
        id: TicketId,
    ) -> Poll<Option<Result<()>>> {
        let mut waker = context.waker().clone();
        let mut state = self.lock();
        if let Err(error) = self.check_whole(&state) {
            return Poll::Ready(Some(Err(error)));
        }
        if let Some(result) = state.cache.fetch(id) {
            return Poll::Ready(Some(result.map_err(|failure| self.failure(failure))));
        }
        if state.is_closed || state.is_orphan {
            return Poll::Ready(None);
        }
        match state.ticket_wakers.iter_mut().find(|(waiting, _)| *waiting == id) {
            // The previous waker is dropped once the lock is released.
            Some((_, registered)) => std::mem::swap(registered, &mut waker),
            None => state.ticket_wakers.push((id, waker)),
        }
        Poll::Pending
    }

    /// Declares that no caller will fetch the result of a ticket.
    pub(crate) fn abandon(&self, id: TicketId) {
        self.lock().cache.abandon(id);
    }
}

impl Changing<'_> {
    fn ask(&mut self, request: TicketKind) -> TicketId {
        // A poll of the ticket of an interrupted file returns the error.
        let id = if self.is_interrupted { NO_TICKET } else { self.cache.ask(request) };
        self.give_back_unused();
        self.look();
        id
    }
}

impl State {
    /// Wakes callers whose tickets have ended.
    #[inline]
    pub(super) fn tell_tickets(&mut self, wakers: &mut Vec<Waker>) {
        if self.told_tickets != self.cache.finished_tickets() {
            self.told_tickets = self.cache.finished_tickets();
            wakers.extend(self.ticket_wakers.drain(..).map(|(_, waker)| waker));
            // The end of a change of length lets waiting calls continue.
            self.page_wakers.drain_into(wakers);
        }
    }
}
