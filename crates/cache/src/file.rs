//! One cached file: its pages, its two sizes, its I/O in flight, and its waiting callers.
//!
//! All operations run under the lock of the file and are short; bytes are copied outside of it.
//! Callers use [`begin_write`](CachedFile::begin_write) and [`begin_read`](CachedFile::begin_read),
//! copy, and publish. The context takes the next bio and reports how each one ended.
//!
//! # Two sizes
//! `size` is the size that the program sees: the largest end accepted or set. `disk_size` is the
//! size in the file system. A write beyond `disk_size` moves it, and one such write is in flight at
//! a time. The page that contains the end of `size` is never written direct: its exact bytes go
//! through the page cache of the kernel, with nothing else of the file in flight.
//!
//! A block device has a single, fixed size, so none of this applies to it.

use std::ops::Range;

use forebay_block::{Bio, Errno, Target};

mod ahead;
mod counts;
mod errors;
mod fences;
mod flush;
mod liberties;
mod odd;
mod reserved;
mod sizes;
mod sweep;
mod verify;

use crate::epochs::Epochs;
use crate::holes::Holes;
use crate::index::Index;
use crate::limits::PAGE;
use crate::rare::Rare;
use crate::readahead::Streams;
use crate::settled::Settled;
use crate::ticket::{Failure, Tickets};
use crate::writeback::flight::Flights;

use ahead::Ahead;
pub use ahead::{Gaps, Reserving};
use counts::Counts;
use errors::Errors;
use fences::Fences;
pub use flush::Entry;
use flush::Flushes;
use liberties::Lease;
pub use liberties::Liberties;
use odd::OddPages;
pub use reserved::Below;
use reserved::Reserved;
pub use sizes::Look;
use sizes::Sizes;
use sweep::Sweep;

/// State of a file when it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Created or truncated to 0 by this open, so all of it is a hole.
    Empty {
        /// Whether the directory entry must be made durable.
        entry: Entry,
    },
    /// An existing file of this many bytes.
    Existing(u64),
    /// A block device of this many bytes. Its size never changes.
    Device(u64),
}

/// One file in the cache. All methods must be called under the lock of the file.
///
/// Each part has private fields, and its methods are the only way to change them. The invariants of
/// a part are in the header of its file, and those between parts in `file/verify.rs`.
#[derive(Debug)]
pub struct CachedFile {
    pub(crate) target: Target,
    pub(crate) lease: Lease,
    pub(crate) sizes: Sizes,
    pub(crate) index: Index,
    pub(crate) odd: OddPages,
    pub(crate) counts: Counts,
    pub(crate) holes: Holes,
    pub(crate) epochs: Epochs,
    pub(crate) flights: Flights,
    pub(crate) tickets: Tickets,
    pub(crate) fences: Fences,
    pub(crate) sweep: Sweep,
    pub(crate) flushes: Flushes,
    pub(crate) errors: Errors,
    pub(crate) reserved: Reserved,
    pub(crate) ahead: Ahead,
    pub(crate) streams: Rare<Streams>,
    /// Whether the last write planned was of one whole dirty page.
    pub(crate) in_place: bool,
    /// Changes since the file was verified.
    #[cfg(debug_assertions)]
    unverified: usize,
}

impl CachedFile {
    /// Creates the cache of a file that was just opened. `target` is its number at the device.
    #[must_use]
    pub fn new(target: Target, origin: Origin, liberties: Liberties) -> Self {
        let (sizes, entry) = match origin {
            Origin::Empty { entry } => (Sizes::of_a_file(0), entry),
            Origin::Existing(size) => (Sizes::of_a_file(size), Entry::Old),
            Origin::Device(size) => (Sizes::of_a_device(size), Entry::Old),
        };
        let holes = match (origin, liberties) {
            (Origin::Empty { .. }, Liberties::Exclusive) => Holes::all(),
            _ => Holes::unknown(),
        };
        // Nobody knows whether bytes written before were flushed, so a flush that fails now is a
        // failure.
        let had_bytes = sizes.size() > 0 || matches!(origin, Origin::Existing(_));
        Self {
            target,
            lease: Lease::new(liberties),
            sizes,
            index: Index::default(),
            odd: OddPages::default(),
            counts: Counts::default(),
            holes,
            epochs: Epochs::default(),
            flights: Flights::default(),
            tickets: Tickets::default(),
            fences: Fences::default(),
            sweep: Sweep::default(),
            flushes: Flushes::new(entry, had_bytes),
            errors: Errors::default(),
            reserved: Reserved::default(),
            ahead: Ahead::default(),
            streams: Rare::default(),
            in_place: false,
            #[cfg(debug_assertions)]
            unverified: 0,
        }
    }

    /// Sets whether the directory entry must be made durable, for a file that this engine created
    /// and closed without a sync.
    pub fn set_entry(&mut self, entry: Entry) {
        self.flushes.set_entry(entry);
    }

    /// Returns whether the directory entry must still be made durable.
    #[must_use]
    pub fn entry(&self) -> Entry {
        self.flushes.entry()
    }

    /// Returns its number at the device.
    #[must_use]
    pub fn target(&self) -> Target {
        self.target
    }

    /// Returns the size in bytes that the program sees.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.sizes.size()
    }

    /// Returns the size in bytes in the file system, as far as this engine knows.
    #[must_use]
    pub fn disk_size(&self) -> u64 {
        self.sizes.disk_size()
    }

    /// Returns the number of pages that are dirty or being written.
    #[must_use]
    pub fn dirty_pages(&self) -> u64 {
        self.counts.charged()
    }

    /// Returns the number of pages that are dirty and not being written.
    #[must_use]
    pub fn unsent_pages(&self) -> u64 {
        self.index.dirty_count()
    }

    /// Returns whether a page is dirty or being written.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        !self.epochs.is_empty()
    }

    /// Returns whether a bio of the file is at the device.
    #[must_use]
    pub fn in_flight(&self) -> bool {
        !self.flights.is_empty()
    }

    /// Returns whether the current or an older version of a page is being written.
    #[must_use]
    pub fn is_page_in_flight(&self, page: u64) -> bool {
        self.index.get(page).is_some_and(|(chunk, slot)| chunk.flight & (1 << slot) != 0)
    }

    /// Returns the target and the number that identify the flight of a bio of this crate.
    #[must_use]
    pub fn flight_of(bio: &Bio) -> (Target, u32) {
        (bio.target, bio.owner as u32)
    }

    /// Removes and returns the failures of abandoned tickets.
    pub fn take_lost(&mut self) -> Vec<Failure> {
        let lost = self.tickets.take_lost();
        if lost.iter().any(|failure| matches!(failure, Failure::Flush(_))) {
            self.flushes.note_reported();
        }
        lost
    }

    /// Records that space for a range was allocated before its bytes were accepted. It counts as
    /// written from here on, so that a release does not give it back.
    pub fn note_allocated(&mut self, bytes: Range<u64>) {
        self.holes.mark_written(bytes.start / PAGE..bytes.end.div_ceil(PAGE));
        self.reserved.add(bytes);
    }

    /// Begins a write whose space is allocated already. Space beyond the end stays until
    /// [`CachedFile::end_allocated_write`].
    pub fn begin_allocated_write(&mut self) {
        self.reserved.begin_write();
    }

    /// Ends a write whose space was allocated before, accepted or not.
    pub fn end_allocated_write(&mut self) {
        self.reserved.end_write();
    }

    /// Records that an allocation up to this byte failed and may have left space behind, which a
    /// release gives back.
    pub fn note_litter(&mut self, end: u64) {
        self.reserved.note_litter(end);
    }

    /// Returns whether writing these pages certainly needs no new space. `written_in_place`: a page
    /// with data needs none on this file system.
    #[must_use]
    pub fn is_allocated(&self, bytes: &Range<u64>, written_in_place: bool) -> bool {
        let mut pages = bytes.start / PAGE..bytes.end.div_ceil(PAGE);
        self.reserved.ranges().covers(&(pages.start * PAGE..pages.end * PAGE))
            || written_in_place && pages.all(|page| self.holes.is_written(page))
    }

    /// Records where a file that was just opened has data; elsewhere it reads as zeroes.
    pub fn set_data(&mut self, data: &[Range<u64>], below: Below) {
        debug_assert!(self.lease.is_exclusive(), "another program may fill a hole");
        self.holes = Holes::all();
        for bytes in data {
            self.holes.mark_written(bytes.start / PAGE..bytes.end.div_ceil(PAGE));
        }
        self.reserved.set_below(below);
    }

    /// Sets whether space may be reserved ahead.
    pub fn set_reserving(&mut self, reserving: Reserving) {
        self.ahead.set_reserving(reserving);
    }

    /// Sets whether space may be reserved ahead, unless it is [`Reserving::Off`].
    pub fn change_reserving(&mut self, reserving: Reserving) {
        self.ahead.change_reserving(reserving);
    }

    /// Sets which gaps may be filled with zeroes.
    pub fn set_gaps(&mut self, gaps: Gaps) {
        self.ahead.set_gaps(gaps);
    }

    /// Sets whether a write of a page that has data needs no space on this file system.
    pub fn set_rewrites_in_place(&mut self, in_place: bool) {
        self.ahead.set_rewrites_in_place(in_place);
    }

    /// Sets the longest gap that is written along, in pages: the price of a request.
    pub fn set_gap_pages(&mut self, pages: u64) {
        self.ahead.set_gap_pages(pages);
    }

    /// Sets the most pages of a write, and of one that moves the end of the file: a caller's small
    /// request waits for the whole of one that the device has begun.
    pub fn set_request_pages(&mut self, pages: u64, extending: u64) {
        self.ahead.set_request_pages(pages, extending);
    }

    /// Sets the free bytes of the file system, which limit the space reserved beyond the end.
    pub fn set_free_bytes(&mut self, free_bytes: u64) {
        self.ahead.set_free_bytes(free_bytes);
    }

    /// Returns the bytes reserved beyond the end of the file now.
    #[must_use]
    pub fn reserved_beyond_end(&self) -> u64 {
        self.reserved.beyond(self.sizes.disk_size())
    }

    /// Returns whether a request at the device gives space back.
    #[must_use]
    pub fn is_giving_back(&self) -> bool {
        self.flights.give_back()
    }

    /// Returns whether space reserved by this engine remains beyond the end, for the next open to
    /// give back.
    #[must_use]
    pub fn leaves_space(&self) -> bool {
        self.reserved.leaves_space() || self.reserved_beyond_end() > 0
    }

    /// Returns a mark to take before asking the file system for the size without the lock.
    #[must_use]
    pub fn look(&mut self) -> Look {
        self.sizes.begin_look()
    }

    /// Records the size in the file system of a shared file, read after `look` was taken. Other
    /// programs may have moved the end. A larger size is adopted at once. A smaller size is adopted
    /// only if nothing of ours could have made the file longer since, and no unwritten data will.
    /// An answer that comes after that of a later look is ignored.
    pub fn observe_disk_size(&mut self, disk_size: u64, look: Look, settled: &mut Settled) {
        if self.sizes.end_look(look) && !self.lease.is_exclusive() {
            self.follow_disk_size(disk_size, look, settled);
        }
    }

    /// Adopts the size in the file system as far as nothing of ours is in the way.
    pub(crate) fn follow_disk_size(&mut self, disk_size: u64, look: Look, settled: &mut Settled) {
        if look.is_cut_since(self.sizes.look()) || self.is_being_cut() {
            return;
        }
        let is_settled =
            !look.has_ended_since(self.sizes.look()) && !self.is_dirty() && self.flights.is_empty();
        if disk_size >= self.sizes.size() || is_settled && self.may_follow_cut(disk_size, settled) {
            self.sizes.observe(disk_size);
        }
    }

    /// Records that the file was extended past the cache, which no flush before covers. A length
    /// that was read before is too small.
    pub fn note_extended(&mut self) {
        self.sizes.note_ended();
        self.flushes.note_change();
    }

    /// Returns whether a change of length is requested or in flight.
    #[must_use]
    pub fn is_being_cut(&self) -> bool {
        self.tickets.first_set_length().is_some()
    }

    /// Returns the offset and error of a failed page write that a handle has not reported yet.
    /// `seen` is the mark of that handle.
    pub fn unreported_error(&mut self, seen: &mut u64) -> Option<(u64, Errno)> {
        self.errors.unreported(seen)
    }

    /// Returns the offset and error of pages that could not be written, while there are any.
    #[must_use]
    pub fn failing(&self) -> Option<(u64, Errno)> {
        if self.counts.failing() > 0 { self.errors.last_write() } else { None }
    }

    /// Returns the number of pages that stay dirty because they could not be written, or because
    /// the rest of a partly written page could not be read.
    #[must_use]
    pub fn failing_pages(&self) -> u64 {
        self.counts.failing()
    }

    /// Returns the number of pages whose last write failed. Unlike
    /// [`CachedFile::failing_pages`] it includes pages that are being retried.
    #[must_use]
    pub fn unwritable_pages(&self) -> u64 {
        self.counts.unwritable()
    }

    /// Returns the offset and error of the last page write that failed.
    #[must_use]
    pub fn write_error(&self) -> Option<(u64, Errno)> {
        self.errors.last_write()
    }

    /// Returns the error of the failed flush that makes every sync of this file fail, if there was
    /// one.
    #[must_use]
    pub fn poisoned(&self) -> Option<Errno> {
        self.flushes.poisoned()
    }

    /// Returns the error of the failed flush, once, if no caller has got it: no sync waited for the
    /// flush, or its result was not fetched.
    pub fn take_unreported_flush(&mut self) -> Option<Failure> {
        self.flushes.take_unreported().map(Failure::Flush)
    }

    /// Drops every page; dirty data is lost. Nothing may be in flight and no handle may be left.
    /// `settled` lists the frames to free.
    pub fn discard(&mut self, settled: &mut Settled) {
        assert!(self.flights.is_empty(), "frames in flight outlive everything");
        self.drop_pages(0..u64::MAX, settled);
        debug_assert_eq!(self.counts.unread(), 0, "nothing is left to be read");
        // A late release or flush has nothing to do: the file is no longer at the device. A lease
        // that is broken at this moment asks for both.
        self.reserved.forget();
        self.flushes.forget();
    }

    /// The page that contains the end of the file, if the end is inside a page. A device has none:
    /// its last page is written direct like the others, as long as it is.
    /// Nor has a shared file: only the written bytes of its last page are sent (`exact.rs`).
    pub(crate) fn tail_page(&self) -> Option<u64> {
        if self.lease.is_exclusive() { self.sizes.tail_page() } else { None }
    }

    /// Bytes that go over the line for these pages: whole ones, but for the last of a device.
    pub(crate) fn bytes_of(&self, pages: &Range<u64>) -> u64 {
        let end = pages.end * PAGE;
        (if self.sizes.is_device() { end.min(self.sizes.size()) } else { end }) - pages.start * PAGE
    }

    /// Whether a page that is not here is zero for sure.
    pub(crate) fn absent_is_zero(&self, page: u64) -> bool {
        self.lease.is_exclusive()
            && (self.holes.is_zero(page) || page * PAGE >= self.sizes.disk_size())
    }

    /// Drops the pages of a range in any state. Nobody uses them.
    pub(crate) fn drop_pages(&mut self, pages: Range<u64>, settled: &mut Settled) {
        // Most are clean and unused, and are dropped by the chunk. At a close that may be a whole
        // cache, under locks.
        self.drop_clean_in(&pages, settled);
        for page in self.index.pages_in(&pages) {
            self.drop_page(page, settled);
        }
        self.errors.forget_unreadable(&pages);
    }

    /// Drops one page, whose content is lost if it is dirty.
    pub(crate) fn drop_page(&mut self, page: u64, settled: &mut Settled) {
        let (chunk, slot) = self.index.get_mut(page).expect("a page that is here has a chunk");
        let bit = 1 << slot;
        let (was_dirty, epoch) = (chunk.dirty & bit != 0, chunk.epoch(slot));
        chunk.present &= !bit;
        chunk.partial &= !bit;
        self.counts.end_unread(chunk.uses.forget(bit));
        settled.freed.extend(chunk.take_frame(slot));
        self.end_failure(page);
        self.disown(page);
        if was_dirty {
            self.index.clear_dirty(page);
            self.epochs.remove(epoch, 1);
        }
        if self.unkeep(page) || was_dirty {
            self.counts.uncharge(1);
            settled.uncharged += 1;
        }
        settled.freed.extend(self.odd.end_partial(page).and_then(|partial| partial.spare()));
        self.index.tidy(page);
    }
}
