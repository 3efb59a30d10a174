//! The caller's side of a ticket: ask for something, and fetch its result.

use crate::file::CachedFile;
use crate::ticket::{Failure, TicketId, TicketKind};

impl CachedFile {
    /// Takes a ticket. The caller must then notify the context of the file.
    pub fn ask(&mut self, request: TicketKind) -> TicketId {
        self.retry_failing();
        if request == TicketKind::Release && self.wants_flush() {
            let flush = self.ask(TicketKind::FlushData);
            self.abandon(flush);
        }
        let covers = self.epochs.close();
        let id = self.tickets.add(request, covers);
        if let TicketKind::Discard { first, pages } = request {
            self.fences.raise(id, first..first + pages);
        }
        if request.flushes()
            && let Some(errno) = self.flushes.poisoned()
        {
            self.tickets.finish(id, Err(Failure::Flush(errno)));
        }
        id
    }

    /// Returns the result of a ticket, once, or `None` while it is being served.
    pub fn fetch(&mut self, id: TicketId) -> Option<Result<(), Failure>> {
        let result = self.tickets.fetch(id);
        if let Some(Err(Failure::Flush(_))) = result {
            self.flushes.note_reported();
        }
        result
    }

    /// As [`fetch`](Self::fetch), for a caller that reports no failure to the program.
    pub fn fetch_quietly(&mut self, id: TicketId) -> Option<Result<(), Failure>> {
        self.tickets.fetch(id)
    }

    /// Declares that no one will fetch the result of a ticket. It is still served.
    pub fn abandon(&mut self, id: TicketId) {
        self.tickets.abandon(id);
    }

    /// Returns whether this ticket is being served.
    #[must_use]
    pub fn is_waiting(&self, id: TicketId) -> bool {
        self.tickets.is_waiting(id)
    }

    /// Returns whether all tickets that are being served are for flushes.
    #[must_use]
    pub fn awaits_only_flushes(&self) -> bool {
        self.tickets.are_flushes()
    }

    /// Returns whether a ticket of this file is being served.
    #[must_use]
    pub fn has_tickets(&self) -> bool {
        self.tickets.are_waiting()
    }
}
