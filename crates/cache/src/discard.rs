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

use forebay_block::Errno;

use crate::file::CachedFile;
use crate::limits::PAGE;
use crate::settled::Settled;
use crate::ticket::Failure;

/// Error for callers whose data was dropped by a discard: `ECANCELED`, which no device reports.
pub const DISCARDED: Errno = Errno(125);

impl CachedFile {
    /// Prepares to drop dirty pages: no new I/O starts until [`CachedFile::end_discard`].
    pub fn begin_discard(&mut self) {
        self.discarding += 1;
    }

    /// Ends a discard, finished or not. The caller must wake the context and every task that waits
    /// for pages of this file.
    pub fn end_discard(&mut self) {
        self.discarding = self.discarding.checked_sub(1).expect("a discard ends once");
    }

    /// Returns whether all I/O has ended, so that dirty pages can be dropped.
    #[must_use]
    pub fn can_discard(&self) -> bool {
        assert!(self.discarding > 0, "nobody holds the file");
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
            self.fill_errors.remove(page);
            self.drop_page(*page, settled);
        }
        // So are clean ones from the end on, which may not be where it was: a write that failed may
        // have moved it.
        self.drop_pages(disk_size / PAGE..u64::MAX, settled);
        if !self.is_device {
            (self.size, self.disk_size) = (disk_size, disk_size);
        }
        self.overdue = None;
        self.draining = false;
        self.look.cuts += 1;
        assert!(self.epochs.is_empty() && self.charged == 0 && self.failing_pages == 0);
        dirty.len() as u64
    }

    /// Tickets that cover what is dropped end, and every handle hears of it.
    fn tell_discarded(&mut self, offset: u64) {
        self.write_error = Some((offset, DISCARDED));
        self.error_sequence += 1;
        let covers_some = |covers: u64| !self.epochs.is_written(covers);
        self.tickets.fail_covering(covers_some, Failure::Write { offset, errno: DISCARDED });
    }
}
