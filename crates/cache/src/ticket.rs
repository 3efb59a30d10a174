//! What somebody waits for: a sync, a close, a change of length.
//!
//! A ticket is taken under the file's lock and fixes what it covers then; the context works it off;
//! its result is kept until it is fetched, exactly once, or nobody will.

use forebay_block::Errno;

use crate::file::CachedFile;

/// The number of a ticket, unique within its file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TicketId(pub u64);

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// Everything accepted before is written; not flushed.
    WriteOut,
    /// Everything accepted before is durable.
    FlushData,
    /// The same with all metadata.
    FlushAll,
    /// The file is cut or grown to this many bytes.
    SetLength(u64),
    /// Everything accepted before is written, and space reserved but not used is given back. On a
    /// shared file it is flushed too: what is kept for a flush cannot be let go of before.
    Release,
    /// The device need not keep these pages, which are dropped: of `first` and those after it, so
    /// many. Only of a device, and not beyond its end.
    Discard {
        /// The first page.
        first: u64,
        /// How many.
        pages: u64,
    },
}

impl Request {
    pub(crate) fn flushes(self) -> bool {
        matches!(self, Request::FlushData | Request::FlushAll)
    }

    /// Whether what was accepted before is written for it.
    pub(crate) fn writes(self) -> bool {
        !matches!(self, Request::SetLength(_) | Request::Discard { .. })
    }
}

/// Why a ticket could not be served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// A page could not be written, now or since its error was last told. It stays dirty.
    Write {
        /// The first byte of the first page that failed.
        offset: u64,
        /// What the device said.
        errno: Errno,
    },
    /// A flush failed, now or before: what was written since the last good one may be gone.
    Flush(Errno),
    /// The length could not be set.
    SetLength(Errno),
    /// The device did not discard. What was accepted is as it was.
    Discard(Errno),
}

#[derive(Debug)]
pub(crate) struct Ticket {
    pub(crate) id: TicketId,
    pub(crate) request: Request,
    /// The last epoch it covers.
    pub(crate) covers: u64,
    /// A page of it could not be written; the others are, before it ends with this.
    failed: Option<Failure>,
}

/// Tickets of one file: those being worked on, and the results not yet fetched.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    next: u64,
    pub(crate) waiting: Vec<Ticket>,
    results: Vec<(TicketId, Result<(), Failure>)>,
    abandoned: Vec<TicketId>,
    /// Failures of abandoned tickets.
    pub(crate) lost: Vec<Failure>,
    finished: u64,
}

impl Tickets {
    fn add(&mut self, request: Request, covers: u64) -> TicketId {
        let id = TicketId(self.next);
        self.next += 1;
        self.waiting.push(Ticket { id, request, covers, failed: None });
        id
    }

    pub(crate) fn finish(&mut self, id: TicketId, result: Result<(), Failure>) {
        let at = self.waiting.iter().position(|ticket| ticket.id == id);
        let Some(at) = at else { return };
        self.waiting.remove(at);
        self.finished += 1;
        if let Some(at) = self.abandoned.iter().position(|abandoned| *abandoned == id) {
            self.abandoned.swap_remove(at);
            self.lost.extend(result.err());
        } else {
            self.results.push((id, result));
        }
    }

    /// A page could not be written. A flush would prove nothing any more, and its ticket ends; who
    /// wanted pages to be written out has the others written first, for it may be the last to ask.
    pub(crate) fn fail_pages(&mut self, failure: Failure) {
        self.fail_flushes(failure);
        for ticket in self.waiting.iter_mut().filter(|ticket| ticket.request.writes()) {
            ticket.failed.get_or_insert(failure);
        }
    }

    /// Whether one that has failed still goes on.
    pub(crate) fn has_failed(&self) -> bool {
        self.waiting.iter().any(|ticket| ticket.failed.is_some())
    }

    /// What is left cannot be written: ends the tickets of which a page has failed.
    pub(crate) fn end_failed(&mut self) {
        self.fail(|ticket| ticket.failed);
    }

    /// Ends every ticket that waits for a flush.
    pub(crate) fn fail_flushes(&mut self, failure: Failure) {
        self.fail(|ticket| ticket.request.flushes().then_some(failure));
    }

    /// Ends every ticket that covers what will never be written.
    pub(crate) fn fail_covering(&mut self, covers_some: impl Fn(u64) -> bool, failure: Failure) {
        self.fail(|ticket| {
            (ticket.request.writes() && covers_some(ticket.covers)).then_some(failure)
        });
    }

    /// Ends with a failure those that have one.
    fn fail(&mut self, why: impl Fn(&Ticket) -> Option<Failure>) {
        let failed = self.waiting.iter().filter_map(|ticket| Some((ticket.id, why(ticket)?)));
        for (id, failure) in failed.collect::<Vec<_>>() {
            self.finish(id, Err(failure));
        }
    }

    pub(crate) fn is_waiting(&self, id: TicketId) -> bool {
        self.waiting.iter().any(|ticket| ticket.id == id)
    }

    /// Whether a flush is waited for that was asked for before.
    pub(crate) fn has_flush_before(&self, id: TicketId) -> bool {
        self.waiting.iter().any(|ticket| ticket.request.flushes() && ticket.id < id)
    }

    pub(crate) fn first_set_length(&self) -> Option<(TicketId, u64)> {
        self.waiting.iter().find_map(|ticket| match ticket.request {
            Request::SetLength(length) => Some((ticket.id, length)),
            _ => None,
        })
    }

    pub(crate) fn finished(&self) -> u64 {
        self.finished
    }
}

impl CachedFile {
    /// Takes a ticket; the context must be told that the file has one.
    pub fn ask(&mut self, request: Request) -> TicketId {
        self.retry_failing();
        if request == Request::Release && self.wants_flush() {
            let flush = self.ask(Request::FlushData);
            self.abandon(flush);
        }
        let covers = self.epochs.close();
        let id = self.tickets.add(request, covers);
        if let Request::Discard { first, pages } = request {
            self.raise_fence(id, first..first + pages);
        }
        if request.flushes()
            && let Some(errno) = self.poisoned
        {
            self.tickets.finish(id, Err(Failure::Flush(errno)));
        }
        id
    }

    /// The result of a ticket, once; `None` while it is worked on.
    pub fn fetch(&mut self, id: TicketId) -> Option<Result<(), Failure>> {
        let at = self.tickets.results.iter().position(|(done, _)| *done == id)?;
        Some(self.tickets.results.swap_remove(at).1)
    }

    /// Nobody will fetch the result of this ticket. What it asked for is still done.
    pub fn abandon(&mut self, id: TicketId) {
        if self.fetch(id).is_none() && self.tickets.is_waiting(id) {
            self.tickets.abandoned.push(id);
        }
    }

    /// Whether somebody waits for this file.
    #[must_use]
    pub fn has_tickets(&self) -> bool {
        !self.tickets.waiting.is_empty()
    }
}
