//! Discards: a range of pages that is emptied, and fenced until that has ended.
//!
//! From the moment it is asked for nobody reads or writes in the range anew. What is on its way
//! there ends first; then the device is told, and what is dirty there stays where it is meanwhile,
//! unsent. Where the device has done it the pages are dropped, written or not; where it has not
//! they are as they were.

use std::ops::Range;

use forebay_block::{Bio, Class, Errno, Operation};

use crate::file::CachedFile;
use crate::limits::PAGE;
use crate::settled::Settled;
use crate::ticket::{Failure, TicketId};
use crate::writeback::flight::Flight;

/// A range being discarded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fence {
    ticket: TicketId,
    pages: Range<u64>,
    /// The device has been told.
    is_sent: bool,
}

impl CachedFile {
    /// The whole pages of a range of bytes; the last one of a device counts as whole where the
    /// range reaches its end.
    #[must_use]
    pub fn whole_pages(&self, bytes: &Range<u64>) -> Range<u64> {
        let end = if bytes.end == self.size { bytes.end.div_ceil(PAGE) } else { bytes.end / PAGE };
        let start = bytes.start.div_ceil(PAGE);
        start..end.max(start)
    }

    pub(crate) fn raise_fence(&mut self, ticket: TicketId, pages: Range<u64>) {
        self.fences.push(Fence { ticket, pages, is_sent: false });
    }

    /// How many pages from `page` on nobody has fenced off: none where it is itself.
    pub(crate) fn unfenced_from(&self, page: u64) -> u64 {
        let ahead = self.fences.iter().filter(|fence| fence.pages.end > page);
        ahead.map(|fence| fence.pages.start.saturating_sub(page)).min().unwrap_or(u64::MAX)
    }

    /// The next discard of which the range is quiet.
    pub(crate) fn next_discard(&mut self) -> Option<Bio> {
        let overlaps =
            |one: &Range<u64>, other: &Range<u64>| one.start < other.end && other.start < one.end;
        let ready = |fence: &&Fence| {
            let mut sent = self.fences.iter().filter(|other| other.is_sent);
            !fence.is_sent
                && !sent.any(|sent| overlaps(&sent.pages, &fence.pages))
                && self.index.is_quiet_in(&fence.pages)
        };
        let at = self.fences.iter().position(|fence| ready(&fence))?;
        self.fences[at].is_sent = true;
        let Fence { ticket, pages, .. } = self.fences[at].clone();
        for (_, mask, chunk) in self.index.chunks_in(&pages) {
            // As where something is being written: what is dirty is not sent.
            chunk.flight |= mask;
        }
        let (offset, length) = (pages.start * PAGE, self.bytes_of(&pages));
        let flight = self.flights.start(Flight::Discard { ticket, pages });
        Some(self.bio(Operation::Discard, offset, length, Vec::new(), Class::Waited, flight))
    }

    pub(crate) fn settle_discard(
        &mut self,
        ticket: TicketId,
        pages: Range<u64>,
        result: Result<u64, Errno>,
        settled: &mut Settled,
    ) {
        for (_, mask, chunk) in self.index.chunks_in(&pages) {
            chunk.flight &= !mask;
        }
        self.fences.retain(|fence| fence.ticket != ticket);
        if result.is_ok() {
            self.unflushed = true;
            self.drop_pages(pages.clone(), settled);
        }
        self.index.tidy_in(&pages);
        self.tickets.finish(ticket, result.map(|_| ()).map_err(Failure::Discard));
    }
}
