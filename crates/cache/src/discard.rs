//! Discards: of the dirty pages of a file that cannot be written, and of ranges of a device.
//!
//! # Dirty pages
//! A page that could not be written stays dirty and fails every sync. That is right while the
//! device may be repaired, and otherwise holds memory for good. Dropping such pages loses accepted
//! data. So every sync that waits fails, and every other handle gets the error once. A failed flush
//! is not repaired by this: the file stays poisoned.
//!
//! A page at the device is not dropped, because its write may land at any time. The caller holds
//! the file ([`CachedFile::begin_discard`]), so that nothing new starts. It drops the dirty pages
//! when all I/O has ended ([`CachedFile::can_discard`]).
//!
//! # Ranges
//! A range of a block device, or of a file, whose space is freed and which then reads as zeroes.
//! From the request on nobody starts to read or write in the range. I/O in flight there ends first.
//! Then the device is asked. Dirty pages of the range stay unsent meanwhile. If the device has
//! discarded the range, its pages are dropped; otherwise they are as before.

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
        debug_assert!(self.fences.is_held(), "nobody holds the file");
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
            self.report_discarded(first * PAGE);
        }
        for page in &dirty {
            self.errors.take_unreadable(*page);
            self.drop_page(*page, settled);
        }
        // A failed write may have moved the end, so clean pages beyond it are dropped, too.
        self.drop_pages(disk_size / PAGE..u64::MAX, settled);
        self.sizes.give_up(disk_size);
        self.sweep.give_up();
        debug_assert!(self.epochs.is_empty(), "every dirty page was dropped");
        debug_assert!(self.counts.charged() == 0 && self.counts.failing() == 0);
        self.verify_change();
        dirty.len() as u64
    }

    /// Ends the tickets that cover dropped pages, and reports the error to every handle.
    fn report_discarded(&mut self, offset: u64) {
        self.errors.note_write(offset, DISCARDED);
        let covers_some = |covers: u64| !self.epochs.is_written(covers);
        self.tickets.fail_covering(covers_some, Failure::Write { offset, errno: DISCARDED });
    }

    /// Returns the whole pages of a range of bytes. The last page of a device counts as whole if
    /// the range reaches its end.
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

    /// Returns the next discard whose range is quiet.
    pub(crate) fn next_discard(&mut self) -> Option<Bio> {
        // A fill may be in flight for a page that was overwritten since.
        let is_quiet =
            |pages: &Range<u64>| self.index.is_quiet_in(pages) && !self.flights.fill_some_of(pages);
        let (ticket, pages) = self.fences.send_next(is_quiet)?;
        for (_, mask, chunk) in self.index.chunks_in(&pages) {
            // Like pages being written: dirty pages are not sent.
            chunk.flight |= mask;
        }
        let (offset, length) = (pages.start * PAGE, self.bytes_of(&pages));
        let flight = self.flights.start(Flight::Discard { ticket, pages });
        Some(self.bio(Operation::Discard, offset, length, Vec::new(), Class::Waited, flight))
    }

    /// Space of the file from this byte on was freed at the caller's request. Records of space
    /// there are no longer right: a later write may need new space. Space beyond the end is not
    /// forgotten.
    fn forget_space(&mut self, start: u64) {
        if self.sizes.is_device() {
            return;
        }
        self.holes.forget();
        self.reserved.keep_litter();
        self.reserved.punch(start);
        if self.lease.is_shared() {
            // A flush that fails may lose the hole, and no kept page makes it again.
            self.flushes.note_unkept();
        }
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
            self.forget_space(pages.start * PAGE);
        }
        self.index.tidy_in(&pages);
        self.tickets.finish(ticket, result.map(|_| ()).map_err(Failure::Discard));
    }
}
