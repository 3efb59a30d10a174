//! Requests to the context that a caller waits for: syncs, changes of length, discards.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use forebay_cache::{TicketId, TicketKind};

use crate::core::direct::plug::plugged_no_more;
use crate::core::error::{Error, Result};
use crate::core::inode::Inode;
use crate::core::inode::after::After;
use crate::core::shared::Shared;

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

/// Result of a close that still waits for the file to be closed, or of a shutdown or a commit on
/// another thread. The engine's callback gets a failure if the future is dropped meanwhile.
pub(crate) struct Undelivered<E: Failure = Error> {
    shared: Arc<Shared>,
    result: std::result::Result<(), E>,
}

/// Error of a call, with each of its failures.
pub(crate) trait Failure {
    fn failures(&self) -> &[Error];
}

impl Failure for Error {
    fn failures(&self) -> &[Error] {
        std::slice::from_ref(self)
    }
}

impl<E: Failure> Undelivered<E> {
    pub(crate) fn new(shared: &Arc<Shared>, result: std::result::Result<(), E>) -> Self {
        Self { shared: Arc::clone(shared), result }
    }

    /// Returns the result to the caller.
    pub(crate) fn deliver(mut self) -> std::result::Result<(), E> {
        std::mem::replace(&mut self.result, Ok(()))
    }
}

impl<E: Failure> Drop for Undelivered<E> {
    fn drop(&mut self) {
        if let Err(error) = &self.result {
            error.failures().iter().for_each(|failure| self.shared.report(failure));
        }
    }
}
