//! Tickets: requests of callers that the context serves, such as a sync, a close or a new length.
//!
//! A ticket is taken under the lock of the file, which fixes what it covers. The context serves it.
//! Its result is kept until the caller fetches it, once, or abandons the ticket.

use forebay_block::Errno;

use crate::rare::{Empty, Rare};

/// Number of a ticket, unique within its file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TicketId(pub u64);

/// Kind of a ticket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TicketKind {
    /// Write everything accepted before, without a flush.
    WriteOut,
    /// Make everything accepted before durable (`fdatasync`).
    FlushData,
    /// Make everything accepted before and all metadata durable (`fsync`).
    FlushAll,
    /// Truncate or extend the file to this many bytes.
    SetLength(u64),
    /// Extend the file to this many bytes, unless it has them when all before has ended. Ends with
    /// `EAGAIN` on a shared file: another program may extend it, too.
    Extend(u64),
    /// Write everything accepted before, and give back reserved space. Also flush a shared file:
    /// pages kept for a flush cannot be dropped before it.
    Release,
    /// Drop a range of pages of a block device, and tell the device that it is not needed; or free
    /// the space of a range of a file.
    Discard {
        /// First page.
        first: u64,
        /// Number of pages, not beyond the end of the device, or of the file in its file system.
        pages: u64,
    },
}

impl TicketKind {
    pub(crate) fn flushes(self) -> bool {
        matches!(self, TicketKind::FlushData | TicketKind::FlushAll)
    }

    /// Returns whether it writes the pages accepted before.
    pub(crate) fn writes(self) -> bool {
        use TicketKind::{Discard, Extend, SetLength};
        !matches!(self, SetLength(_) | Extend(_) | Discard { .. })
    }
}

/// Reason why a ticket failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// A page could not be written, now or since the last error was reported. It stays dirty.
    Write {
        /// First byte of the first page that failed.
        offset: u64,
        /// Error of the device.
        errno: Errno,
    },
    /// A flush failed, now or earlier. Data written since the last successful flush may be lost.
    Flush(Errno),
    /// The length could not be set.
    SetLength(Errno),
    /// The device did not discard the range. Cached data is unchanged.
    Discard(Errno),
}

#[derive(Debug)]
struct Ticket {
    id: TicketId,
    request: TicketKind,
    /// The last epoch it covers.
    covers: u64,
    /// Set if a page could not be written. The other pages are written before it ends with this.
    failed: Option<Failure>,
}

/// Tickets of one file: those being worked on, and the results not yet fetched.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    next: u64,
    finished: u64,
    lists: Rare<Lists>,
}

#[derive(Debug, Default)]
struct Lists {
    waiting: Vec<Ticket>,
    results: Vec<(TicketId, Result<(), Failure>)>,
    abandoned: Vec<TicketId>,
    /// Failures of abandoned tickets.
    lost: Vec<Failure>,
}

impl Empty for Lists {
    const EMPTY: &'static Self =
        &Self { waiting: Vec::new(), results: Vec::new(), abandoned: Vec::new(), lost: Vec::new() };

    fn is_empty(&self) -> bool {
        let Self { waiting, results, abandoned, lost } = self;
        waiting.is_empty() && results.is_empty() && abandoned.is_empty() && lost.is_empty()
    }
}

impl Tickets {
    pub(crate) fn add(&mut self, request: TicketKind, covers: u64) -> TicketId {
        let id = TicketId(self.next);
        self.next += 1;
        self.lists.waiting.push(Ticket { id, request, covers, failed: None });
        id
    }

    pub(crate) fn finish(&mut self, id: TicketId, result: Result<(), Failure>) {
        let at = self.lists.waiting.iter().position(|ticket| ticket.id == id);
        let Some(at) = at else { return };
        self.lists.waiting.remove(at);
        self.finished += 1;
        if let Some(at) = self.lists.abandoned.iter().position(|abandoned| *abandoned == id) {
            self.lists.abandoned.swap_remove(at);
            self.lists.lost.extend(result.err());
        } else {
            self.lists.results.push((id, result));
        }
    }

    /// Ends a ticket that its caller has to serve in another way. If the caller is gone, nothing is
    /// lost.
    pub(crate) fn refuse(&mut self, id: TicketId, failure: Failure) {
        let lost = self.lists.lost.len();
        self.finish(id, Err(failure));
        self.lists.lost.truncate(lost);
    }

    /// A page could not be written. A flush would prove nothing, so tickets for one end. Tickets
    /// that only write pages have the other pages written first, because they may be the last to
    /// ask.
    pub(crate) fn fail_pages(&mut self, failure: Failure) {
        self.fail_flushes(failure);
        for ticket in self.lists.waiting.iter_mut().filter(|ticket| ticket.request.writes()) {
            ticket.failed.get_or_insert(failure);
        }
    }

    /// Returns whether a ticket with a failed page is being served.
    pub(crate) fn has_failed(&self) -> bool {
        self.lists.waiting.iter().any(|ticket| ticket.failed.is_some())
    }

    /// Ends the tickets with a failed page: no page that is left can be written.
    pub(crate) fn end_failed(&mut self) {
        self.fail(|ticket| ticket.failed);
    }

    /// Ends every ticket that waits for a flush.
    pub(crate) fn fail_flushes(&mut self, failure: Failure) {
        self.fail(|ticket| ticket.request.flushes().then_some(failure));
    }

    /// Ends every ticket that covers a page that will never be written.
    pub(crate) fn fail_covering(&mut self, covers_some: impl Fn(u64) -> bool, failure: Failure) {
        self.fail(|ticket| {
            (ticket.request.writes() && covers_some(ticket.covers)).then_some(failure)
        });
    }

    /// Ends the tickets with a failure from `why`.
    fn fail(&mut self, why: impl Fn(&Ticket) -> Option<Failure>) {
        let failed = self.lists.waiting.iter().filter_map(|ticket| Some((ticket.id, why(ticket)?)));
        for (id, failure) in failed.collect::<Vec<_>>() {
            self.finish(id, Err(failure));
        }
    }

    pub(crate) fn is_waiting(&self, id: TicketId) -> bool {
        self.lists.waiting.iter().any(|ticket| ticket.id == id)
    }

    /// Returns whether all tickets that wait are for flushes.
    pub(crate) fn are_flushes(&self) -> bool {
        self.lists.waiting.iter().all(|ticket| ticket.request.flushes())
    }

    /// Returns whether a flush that was requested before this ticket is being served.
    pub(crate) fn has_flush_before(&self, id: TicketId) -> bool {
        self.lists.waiting.iter().any(|ticket| ticket.request.flushes() && ticket.id < id)
    }

    /// Returns the first ticket that changes the length.
    pub(crate) fn first_set_length(&self) -> Option<(TicketId, TicketKind)> {
        let sets = |kind| matches!(kind, TicketKind::SetLength(_) | TicketKind::Extend(_));
        let first = self.lists.waiting.iter().find(|ticket| sets(ticket.request))?;
        Some((first.id, first.request))
    }

    pub(crate) fn finished(&self) -> u64 {
        self.finished
    }

    /// Returns whether a ticket is being served.
    pub(crate) fn are_waiting(&self) -> bool {
        !self.lists.waiting.is_empty()
    }

    /// Returns the result of a ticket, once.
    pub(crate) fn fetch(&mut self, id: TicketId) -> Option<Result<(), Failure>> {
        let at = self.lists.results.iter().position(|(done, _)| *done == id)?;
        let result = self.lists.results.swap_remove(at).1;
        self.lists.tidy();
        Some(result)
    }

    /// Nobody will fetch the result of a ticket.
    pub(crate) fn abandon(&mut self, id: TicketId) {
        if self.fetch(id).is_none() && self.is_waiting(id) {
            self.lists.abandoned.push(id);
        }
    }

    /// Removes and returns the failures of abandoned tickets.
    pub(crate) fn take_lost(&mut self) -> Vec<Failure> {
        if self.lists.lost.is_empty() {
            return Vec::new();
        }
        let lost = std::mem::take(&mut self.lists.lost);
        self.lists.tidy();
        lost
    }

    /// Returns the epochs covered by the tickets that wait for pages to be written, oldest first.
    pub(crate) fn covers(&self) -> impl Iterator<Item = u64> + Clone + '_ {
        self.lists
            .waiting
            .iter()
            .filter(|ticket| ticket.request.writes())
            .map(|ticket| ticket.covers)
    }

    /// Returns the tickets that wait and whose pages are written.
    pub(crate) fn written(&self, is_written: impl Fn(u64) -> bool) -> Vec<(TicketId, TicketKind)> {
        let written = self.lists.waiting.iter().filter(|ticket| is_written(ticket.covers));
        written.map(|ticket| (ticket.id, ticket.request)).collect()
    }

    /// Asserts the invariants of this part.
    pub(crate) fn verify(&self) {
        let mut waiting = self.lists.waiting.iter().zip(self.lists.waiting.iter().skip(1));
        let in_order =
            |(one, next): (&Ticket, &Ticket)| one.id < next.id && one.covers < next.covers;
        assert!(waiting.all(in_order), "tickets are served in the order of their requests");
        let is_of_waiting = |id: &TicketId| self.is_waiting(*id);
        assert!(self.lists.abandoned.iter().all(is_of_waiting), "an abandoned ticket ended twice");
        let has_result =
            |ticket: &Ticket| self.lists.results.iter().any(|(id, _)| *id == ticket.id);
        assert!(
            !self.lists.waiting.iter().any(has_result),
            "a ticket has a result and is being served"
        );
    }
}
