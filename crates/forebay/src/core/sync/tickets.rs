//! Tickets: requests of callers to the context of a file, and the waits for them.
//!
//! ```text
//! ask --> the cache has a ticket, the context looks --> it ends --> the waiting caller is woken
//! ```
//!
//! A ticket is a sync, a change of length, a discard, or a writing out. The context serves them
//! all, except while a caller leads ([`decide`](super::decide)).

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use forebay_cache::{Failure, Reason, TicketId, TicketKind};

use super::{Event, Server, decide};
use crate::core::base::Base;
use crate::core::direct::plug::plugged_no_more;
use crate::core::error::{Error, Result};
use crate::core::inode::Inode;
use crate::core::inode::change::{After, Changing};
use crate::core::inode::state::State;
use crate::core::shared::Shared;
use crate::core::sync::lead::Leads;

/// The ticket of an interrupted file, which no context serves.
const NO_TICKET: TicketId = TicketId(u64::MAX);

/// State of a ticket, for the caller that waits for it.
#[derive(Debug)]
pub(crate) enum TicketState {
    /// It has ended.
    Ended(Result<()>),
    /// It is being served. The caller is woken at its end, or to take the lead.
    Waits,
    /// The caller has the lead.
    Leads,
}

/// Adds a request to the context and returns its ticket. The context gets the message when `after`
/// is finished.
pub(crate) fn ask(
    inode: &Arc<Inode>,
    base: &Base,
    request: TicketKind,
    after: &mut After,
) -> TicketId {
    inode.change(base, after, |file| {
        let id = take_ticket(file, request);
        file.look();
        id
    })
}

/// As [`ask`], but no caller waits, so the engine's callback gets a failure. (A ticket that is
/// abandoned later may already have failed unreported.)
pub(crate) fn ask_unawaited(
    inode: &Arc<Inode>,
    base: &Base,
    request: TicketKind,
    after: &mut After,
) {
    inode.change(base, after, |file| {
        let id = take_ticket(file, request);
        file.look();
        file.cache.abandon(id);
    });
}

/// As [`ask`], for a caller that closes the file. A ticket with nothing to do ends here, and the
/// context does not look.
pub(crate) fn ask_to_close(
    inode: &Arc<Inode>,
    base: &Base,
    request: TicketKind,
    after: &mut After,
) -> TicketId {
    inode.change(base, after, |file| {
        let is_clean =
            !file.cache.is_dirty() && !file.cache.has_tickets() && !file.logging.is_live();
        let may_end = is_clean && decide(file, Event::Asked(Leads::May)) == Server::Caller;
        let id = take_ticket(file, request);
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

/// Takes a ticket. The context does not look for it.
pub(crate) fn take_ticket(file: &mut Changing<'_>, request: TicketKind) -> TicketId {
    // A poll of the ticket of an interrupted file returns the error.
    let is_interrupted = file.failures.is_interrupted();
    let id = if is_interrupted { NO_TICKET } else { file.cache.ask(request) };
    file.give_back_unused();
    id
}

/// Returns the state of a ticket. Registers the caller if it has to wait.
///
/// # Errors
/// Of the ticket; `Poisoned` if a panic has interrupted a change of the file; `Shutdown` if no
/// context will serve it, because the file is closed or the engine has ended.
pub(super) fn poll_ticket(
    inode: &Inode,
    context: &Context<'_>,
    id: TicketId,
    leads: Leads,
) -> TicketState {
    poll_with(inode, context, id, leads, |state| state.cache.fetch(id))
}

/// As [`poll_ticket`]. `end` returns the result if the ticket has ended.
fn poll_with(
    inode: &Inode,
    context: &Context<'_>,
    id: TicketId,
    leads: Leads,
    end: impl FnOnce(&mut State) -> Option<std::result::Result<(), Failure>>,
) -> TicketState {
    let waker = context.waker().clone();
    let mut state = inode.lock();
    if let Err(error) = inode.check_whole(&state) {
        return TicketState::Ended(Err(error));
    }
    // First, because the lead has to be passed on even if the ticket has ended.
    if state.syncing.take_lead(id) {
        return TicketState::Leads;
    }
    if let Some(result) = end(&mut state) {
        return TicketState::Ended(result.map_err(|failure| inode.failure(failure)));
    }
    if inode.is_closed() || state.service.is_orphaned() {
        return TicketState::Ended(Err(Error::unserved().at_path(&inode.path)));
    }
    let previous = state.syncing.wait(id, leads, waker);
    drop(state);
    drop(previous);
    TicketState::Waits
}

/// Declares that no caller will fetch the result of a ticket, or take the lead for it.
pub(super) fn abandon(state: &mut State, id: TicketId) {
    state.cache.abandon(id);
    state.syncing.forget(id);
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

    /// Sends a request to the context of a file.
    pub(crate) fn ask(inode: &Arc<Inode>, shared: &Shared, request: TicketKind) -> Self {
        let id = shared.finishing(|after| ask(inode, shared, request, after));
        Self::new(Arc::clone(inode), id)
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
        let asked = |inode: Arc<Inode>| {
            let id = ask(&inode, shared, request, &mut after);
            Self::new(inode, id)
        };
        let tickets = inodes.map(asked).collect();
        drop(table);
        shared.finish(&mut after);
        tickets
    }

    pub(crate) fn inode(&self) -> &Arc<Inode> {
        &self.inode
    }

    /// Waits for the end of the request, for a caller that reports no failure to the program.
    pub(crate) async fn end_quietly(mut self) -> Result<()> {
        poll_fn(|context| {
            let id = self.id.expect("a ticket was polled after its end");
            let end = |state: &mut State| state.cache.fetch_quietly(id);
            match poll_with(&self.inode, context, id, Leads::Never, end) {
                TicketState::Ended(result) => {
                    self.id = None;
                    Poll::Ready(result)
                }
                TicketState::Waits | TicketState::Leads => plugged_no_more(Poll::Pending),
            }
        })
        .await
    }

    /// Waits until the request has ended, and leaves its result: a failed flush counts as reported
    /// only once it is fetched.
    pub(crate) fn poll_ended(&self, context: &Context<'_>) -> Poll<()> {
        let id = self.id.expect("a ticket was polled after its end");
        let end = |state: &mut State| (!state.cache.is_waiting(id)).then_some(Ok(()));
        match poll_with(&self.inode, context, id, Leads::Never, end) {
            TicketState::Waits => plugged_no_more(Poll::Pending),
            TicketState::Ended(_) | TicketState::Leads => Poll::Ready(()),
        }
    }
}

impl Future for Ticket {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let id = self.id.expect("a ticket was polled after its end");
        debug_assert!(id != NO_TICKET || self.inode.is_interrupted(), "no context serves it");
        match poll_ticket(&self.inode, context, id, Leads::Never) {
            TicketState::Waits => plugged_no_more(Poll::Pending),
            TicketState::Ended(result) => {
                self.id = None;
                Poll::Ready(result)
            }
            TicketState::Leads => {
                unreachable!("the lead is offered only to callers that may take it")
            }
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let Some(id) = self.id.filter(|_| self.inode.is_here()) else { return };
        let mut state = self.inode.lock();
        let ended = self.reports.as_ref().and_then(|shared| Some((shared, state.cache.fetch(id)?)));
        abandon(&mut state, id);
        drop(state);
        if let Some((shared, Err(failure))) = ended {
            shared.report(&self.inode.failure(failure));
        }
    }
}
