//! The way out when pages cannot be written: what is dirty is dropped, and the file is as its file
//! system has it.
//!
//! A page that could not be written stays dirty and fails every sync, for as long as its device
//! takes nothing: that is right while somebody may yet repair the device, and otherwise holds
//! memory for good. Dropping loses what was accepted and not written. So it is told: to those who
//! wait for a sync now, and once to every other handle, like an error that was got over. A failed
//! flush is not got over by this: the file stays poisoned.
//!
//! What is at the device is not dropped, for it may land at any time. Whoever drops holds the file
//! ([`CachedFile::begin_discard`]): nothing new is started, and when what is under way has ended
//! ([`CachedFile::can_discard`]), the rest goes.

use std::ops::Range;

use forebay_block::{Bio, Class, Errno, Operation};

use crate::file::CachedFile;
use crate::limits::PAGE;
use crate::settled::Settled;
use crate::ticket::{Failure, TicketId};
use crate::writeback::flight::Flight;

/// Error for callers whose data was dropped by a discard: `ECANCELED`, which no device reports.
pub const DISCARDED: Errno = Errno(125);

impl CachedFile {
    /// Prepares to drop dirty pages: no new I/O starts until [`CachedFile::end_discard`].
    pub fn begin_discard(&mut self) {
        self.fences.hold();
    }

    /// Ends a discard, finished or not. The caller must wake the context and every task that waits
    /// for pages of this file.
    pub fn end_discard(&mut self) {
        self.fences.end_hold();
    }

    /// Returns whether all I/O has ended, so that dirty pages can be dropped.
    #[must_use]
    pub fn can_discard(&self) -> bool {
        assert!(self.fences.is_held(), "nobody holds the file");
        self.flights.is_empty() && self.index.is_quiet()
    }

    /// Drops every dirty page and sets the size to `disk_size`, the size in the file system.
    /// Returns the number of pages dropped.
    ///
    /// # Panics
    /// If I/O is in flight.
    pub fn discard_dirty(&mut self, disk_size: u64, settled: &mut Settled) -> u64 {
        assert!(self.can_discard(), "frames in flight outlive everything");
        self.give_up_rewriting(settled);
        let dirty = self.index.dirty_pages();
        if let Some(first) = dirty.first() {
            self.tell_discarded(first * PAGE);
        }
        for page in &dirty {
            self.errors.take_unreadable(*page);
            self.drop_page(*page, settled);
        }
        // So are clean ones from the end on, which may not be where it was: a write that failed may
        // have moved it.
        self.drop_pages(disk_size / PAGE..u64::MAX, settled);
        self.sizes.give_up(disk_size);
        self.sweep.give_up();
        assert!(self.epochs.is_empty(), "every dirty page was dropped");
        debug_assert!(self.counts.charged() == 0 && self.counts.failing() == 0);
        self.verify_change();
        dirty.len() as u64
    }

    /// Tickets that cover what is dropped end, and every handle hears of it.
    fn tell_discarded(&mut self, offset: u64) {
        self.errors.note_write(offset, DISCARDED);
        let covers_some = |covers: u64| !self.epochs.is_written(covers);
        self.tickets.fail_covering(covers_some, Failure::Write { offset, errno: DISCARDED });
    }

    /// The whole pages of a range of bytes; the last one of a device counts as whole where the
    /// range reaches its end.
    #[must_use]
    pub fn whole_pages(&self, bytes: &Range<u64>) -> Range<u64> {
        let end = if bytes.end == self.sizes.size() {
            bytes.end.div_ceil(PAGE)
        } else {
            bytes.end / PAGE
        };
        let start = bytes.start.div_ceil(PAGE);
        start..end.max(start)
    }

    /// The next discard of which the range is quiet.
    pub(crate) fn next_discard(&mut self) -> Option<Bio> {
        let is_quiet = |pages: &Range<u64>| self.index.is_quiet_in(pages);
        let (ticket, pages) = self.fences.send_next(is_quiet)?;
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
        self.fences.lower(ticket);
        if result.is_ok() {
            self.flushes.note_change();
            self.drop_pages(pages.clone(), settled);
        }
        self.index.tidy_in(&pages);
        self.tickets.finish(ticket, result.map(|_| ()).map_err(Failure::Discard));
    }
}
