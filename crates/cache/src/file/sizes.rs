//! The two sizes of a file: the one that the program sees, and the one in the file system.
//!
//! ```text
//!  0             origin_pages           disk_size        size
//!  |--- had when opened ---|--- written since ---|--- accepted ---|
//! ```
//!
//! Invariants:
//! - `disk_size <= size`: nothing beyond an accepted end is sent to the file system;
//! - both sizes of a device are its fixed size.
//!
//! Nothing here looks at pages or at the lease; the caller decides when an observed size counts.

use crate::limits::PAGE;

/// Marks when the size of a file was read from its file system, relative to our own changes of it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Look {
    /// Times that we have set the length.
    cuts: u64,
    /// Requests that have ended; each may have moved the end.
    writes: u64,
    /// Its number among all looks, from 1 on.
    number: u64,
}

impl Look {
    /// Returns whether the length was set between this look and a later one.
    pub(crate) fn is_cut_since(self, now: Look) -> bool {
        self.cuts != now.cuts
    }

    /// Returns whether a request ended between this look and a later one.
    pub(crate) fn has_ended_since(self, now: Look) -> bool {
        self.writes != now.writes
    }
}

/// Sizes of one file.
#[derive(Debug)]
pub(crate) struct Sizes {
    /// Size in bytes that the program sees: the largest end accepted or set.
    size: u64,
    /// Size in bytes in the file system.
    disk_size: u64,
    is_device: bool,
    /// Whole pages that the file had when it was opened. Below, space is reserved only in holes.
    origin_pages: u64,
    /// The last look that began, with the events since then.
    look: Look,
    /// The number of the youngest look whose answer has come.
    answered: u64,
}

impl Sizes {
    pub(crate) fn of_a_file(bytes: u64) -> Self {
        let origin_pages = bytes.div_ceil(PAGE);
        let look = Look::default();
        Self { size: bytes, disk_size: bytes, is_device: false, origin_pages, look, answered: 0 }
    }

    pub(crate) fn of_a_device(bytes: u64) -> Self {
        Self { is_device: true, ..Self::of_a_file(bytes) }
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn disk_size(&self) -> u64 {
        self.disk_size
    }

    pub(crate) fn is_device(&self) -> bool {
        self.is_device
    }

    pub(crate) fn origin_pages(&self) -> u64 {
        self.origin_pages
    }

    pub(crate) fn look(&self) -> Look {
        self.look
    }

    /// Begins a look at the size in the file system.
    pub(crate) fn begin_look(&mut self) -> Look {
        self.look.number += 1;
        self.look
    }

    /// Ends a look. Returns whether its answer counts: none that began later has been answered.
    pub(crate) fn end_look(&mut self, look: Look) -> bool {
        let counts = look.number >= self.answered;
        self.answered = self.answered.max(look.number);
        counts
    }

    /// Returns whether we may have changed the size in the file system since this look.
    pub(crate) fn is_stale(&self, look: Look) -> bool {
        look.is_cut_since(self.look) || look.has_ended_since(self.look)
    }

    /// Returns the page that contains the end, if the end is inside a page. The last page of a
    /// device is written direct like the others, so a device has no such page.
    pub(crate) fn tail_page(&self) -> Option<u64> {
        (!self.is_device && !self.size.is_multiple_of(PAGE)).then_some(self.size / PAGE)
    }

    /// Returns the number of pages at the start of the file whose writes do not move its end.
    pub(crate) fn inner_pages(&self) -> u64 {
        if self.is_device { self.size.div_ceil(PAGE) } else { self.disk_size / PAGE }
    }

    /// Returns the number of bytes of a page that are before the end.
    pub(crate) fn bytes_inside(&self, page: u64) -> usize {
        self.size.saturating_sub(page * PAGE).min(PAGE) as usize
    }

    /// Accepts bytes up to `end`.
    pub(crate) fn accept(&mut self, end: u64) {
        debug_assert!(!self.is_device || end <= self.size, "a device has one size");
        self.size = self.size.max(end);
    }

    /// Records that a request up to `end` was written.
    pub(crate) fn note_written(&mut self, end: u64) {
        if !self.is_device {
            debug_assert!(end <= self.size, "bytes beyond the end were written");
            self.disk_size = self.disk_size.max(end);
        }
    }

    /// Records that a request has ended; it may have moved the end.
    pub(crate) fn note_ended(&mut self) {
        self.look.writes += 1;
    }

    /// Sets both sizes to the length that was set in the file system.
    pub(crate) fn set_length(&mut self, length: u64) {
        debug_assert!(!self.is_device, "the length of a device is never set");
        if length < self.size {
            self.origin_pages = self.origin_pages.min(length.div_ceil(PAGE));
        }
        (self.size, self.disk_size) = (length, length);
        self.look.cuts += 1;
    }

    /// Adopts the size in the file system after every dirty page was dropped.
    pub(crate) fn give_up(&mut self, disk_size: u64) {
        if !self.is_device {
            (self.size, self.disk_size) = (disk_size, disk_size);
        }
        self.look.cuts += 1;
    }

    /// Adopts a size that another program may have changed.
    pub(crate) fn observe(&mut self, disk_size: u64) {
        debug_assert!(!self.is_device || disk_size == self.size, "a device has one size");
        (self.size, self.disk_size) = (disk_size, disk_size);
    }

    /// Makes the file exclusive: all pages that it has now count as there before.
    pub(crate) fn own(&mut self, disk_size: u64) {
        self.origin_pages = disk_size.div_ceil(PAGE);
    }

    /// Asserts the invariants of this part.
    pub(crate) fn verify(&self) {
        assert!(self.disk_size <= self.size, "the file system has bytes that were not accepted");
        assert!(!self.is_device || self.disk_size == self.size, "a device has one size");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_never_changes_its_size() {
        let mut sizes = Sizes::of_a_device(3 * PAGE + 512);
        sizes.note_written(4 * PAGE);
        sizes.give_up(7);
        sizes.verify();
        assert_eq!((sizes.size(), sizes.disk_size()), (3 * PAGE + 512, 3 * PAGE + 512));
        assert_eq!((sizes.tail_page(), sizes.inner_pages(), sizes.bytes_inside(3)), (None, 4, 512));
    }

    #[test]
    fn a_cut_lowers_what_was_there_before_and_growth_does_not() {
        let mut sizes = Sizes::of_a_file(8 * PAGE);
        let before = sizes.look();
        sizes.set_length(3 * PAGE + 1);
        assert_eq!((sizes.origin_pages(), sizes.tail_page()), (4, Some(3)));
        sizes.set_length(20 * PAGE);
        assert_eq!((sizes.origin_pages(), sizes.tail_page()), (4, None));
        assert!(before.is_cut_since(sizes.look()) && !before.has_ended_since(sizes.look()));
        sizes.accept(21 * PAGE);
        sizes.note_written(20 * PAGE + 1);
        sizes.verify();
        assert_eq!((sizes.size(), sizes.inner_pages()), (21 * PAGE, 20));
    }

    #[test]
    #[should_panic(expected = "not accepted")]
    fn a_file_system_with_more_than_was_accepted_is_found() {
        Sizes { disk_size: 1, ..Sizes::of_a_file(0) }.verify();
    }
}
