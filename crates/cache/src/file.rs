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

use std::collections::BTreeMap;
use std::ops::Range;

use forebay_block::{Bio, Errno, Frame, Operation, Target};

use crate::epochs::Epochs;
use crate::exact::Exact;
use crate::fence::Fence;
use crate::growth::Growth;
use crate::holes::Holes;
use crate::index::Index;
use crate::kept::Kept;
use crate::limits::{GAP_PAGES, MOST_GAP_PAGES, PAGE};
use crate::partial::{Partial, Rest};
use crate::readahead::Streams;
use crate::settled::Settled;
use crate::space::Space;
use crate::ticket::{Failure, TicketId, Tickets};
use crate::writeback::flight::Flights;

/// Whether other programs may have a file open, which limits what may be done to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Liberties {
    /// The engine holds the write lease. It may write zeroes over known holes, keep clean pages,
    /// and give back reserved space.
    Exclusive,
    /// Another program may have the file open.
    Shared,
}

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

/// Whether the directory entry of a file must still be made durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// Created by this engine and not durable yet.
    New,
    /// Not created by this engine, or already made durable.
    Old,
}

/// Whether space may be reserved ahead of data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reserving {
    /// Reserve space in files that become dense.
    Adaptive,
    /// As `Adaptive`, and this many bytes beyond the end of a file that grows.
    Ahead(u64),
    /// Set an extent-size hint of this many bytes on new files. As `Adaptive` if the file system
    /// has no such hint.
    Hint(u64),
    /// Reserve nothing for now, because the knob says so.
    Paused,
    /// Reserve nothing ever in this file: it could not be given back, or the file system refused.
    Off,
}

/// Holes between two dirty runs that may be filled with zeroes, to write both runs in one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gaps {
    /// All known holes, which allocates space for them.
    OverHoles,
    /// Only known holes with reserved space.
    OverReserved,
}

/// Marks when the size of a file was read from its file system, relative to our own changes of it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Look {
    /// Times that we have set the length.
    pub(crate) cuts: u64,
    /// Requests that have ended; each may have moved the end.
    pub(crate) writes: u64,
}

/// One file in the cache. All methods must be called under the lock of the file.
#[derive(Debug)]
pub struct CachedFile {
    pub(crate) target: Target,
    pub(crate) liberties: Liberties,
    /// Its lease is being given up: what is written out, flushed and given back before.
    pub(crate) breaking: Option<TicketId>,
    pub(crate) kept: Kept,
    pub(crate) size: u64,
    pub(crate) disk_size: u64,
    /// It is a device: neither size ever changes, and its end needs no care.
    pub(crate) is_device: bool,
    /// Whole pages the file had when it was opened: nothing is reserved below.
    pub(crate) origin_pages: u64,
    pub(crate) index: Index,
    pub(crate) holes: Holes,
    pub(crate) epochs: Epochs,
    /// Frames of pages touched while in flight, with the epoch of what they carry.
    pub(crate) displaced: BTreeMap<u64, (Frame, u64)>,
    /// Frames whose write has ended while a copy from them is being made; freed when that is
    /// published.
    pub(crate) parked: BTreeMap<u64, Frame>,
    /// Pages of which only some bytes are here.
    pub(crate) partials: BTreeMap<u64, Partial>,
    /// Pages of a shared file that are ours in part only.
    pub(crate) exact: BTreeMap<u64, Box<Exact>>,
    /// Those pages that are at the device in the frames they have.
    pub(crate) sending_exact: Range<u64>,
    /// Counts what may make a look at the file's size out of date.
    pub(crate) look: Look,
    /// Frames that are being read into and are not the page's own, by fill and page.
    pub(crate) arriving: BTreeMap<(u32, u64), Frame>,
    /// Epochs of pages whose write failed while a copy over it was being made: what is published
    /// stands for both.
    pub(crate) owed: BTreeMap<u64, u64>,
    pub(crate) flights: Flights,
    pub(crate) tickets: Tickets,
    /// What is being discarded.
    pub(crate) fences: Vec<Fence>,
    /// Pages dirty, being written or being copied into.
    pub(crate) charged: u64,
    /// Who reads on from where.
    pub(crate) streams: Streams,
    /// Pages here, or on their way, for a reader who has not come yet.
    pub(crate) unread: u64,
    /// Where background writeback goes on.
    pub(crate) cursor: u64,
    /// Something was sent in the sweep that is under way.
    pub(crate) swept: bool,
    /// Nothing new is sent, so that the end of the file can be written with nothing else in flight.
    pub(crate) draining: bool,
    /// The epoch that became too old, while it is being written out.
    pub(crate) overdue: Option<u64>,
    /// Those who wait to drop what is dirty: nothing new is started.
    pub(crate) discarding: u64,
    pub(crate) space: Space,
    /// Writes under way whose space was allocated before.
    pub(crate) allocated_writes: u64,
    /// Pages were refused for lack of space: one request at a time until one succeeds.
    pub(crate) is_alone: bool,
    /// The request of pages in flight was sent alone, so its refusal counts.
    pub(crate) was_sent_alone: bool,
    /// The next release gives back short stretches, too.
    pub(crate) gives_back_all: bool,
    /// Up to here there may be space from an allocation that failed on its way.
    pub(crate) littered: u64,
    /// Space beyond the end could not be given back: the next open does.
    pub(crate) leaves_space: bool,
    /// The file system allocates stretches of so many bytes for it; zero where it was not told to.
    pub(crate) extent_hint: u64,
    pub(crate) growth: Growth,
    pub(crate) gaps: Gaps,
    /// The longest gap written along.
    pub(crate) gap_pages: u64,
    pub(crate) reserving: Reserving,
    /// Runs still to be sent before it is worth looking again whether the file is becoming dense.
    pub(crate) reserve_pause: u64,
    pub(crate) free_bytes: u64,
    /// Bytes that one reservation asks for at most.
    pub(crate) reserve_most: u64,
    pub(crate) entry: Entry,
    /// Written or cut since the last good flush; true at first, for what was there before us.
    pub(crate) unflushed: bool,
    pub(crate) poisoned: Option<Errno>,
    pub(crate) failing_pages: u64,
    pub(crate) unwritable_pages: u64,
    pub(crate) write_error: Option<(u64, Errno)>,
    pub(crate) error_sequence: u64,
    /// Pages that could not be read, until somebody is told; forgotten when the page has content
    /// again.
    pub(crate) fill_errors: BTreeMap<u64, Errno>,
}

impl CachedFile {
    /// Creates the cache of a file that was just opened. `target` is its number at the device.
    #[must_use]
    pub fn new(target: Target, origin: Origin, liberties: Liberties) -> Self {
        let (size, entry) = match origin {
            Origin::Empty { entry } => (0, entry),
            Origin::Existing(size) | Origin::Device(size) => (size, Entry::Old),
        };
        let holes = match (origin, liberties) {
            (Origin::Empty { .. }, Liberties::Exclusive) => Holes::of_empty_file(),
            _ => Holes::unknown(),
        };
        let mut file = Self {
            target,
            liberties,
            breaking: None,
            kept: Kept::of_a_file(size > 0),
            size,
            disk_size: size,
            is_device: matches!(origin, Origin::Device(_)),
            origin_pages: size.div_ceil(PAGE),
            index: Index::default(),
            holes,
            epochs: Epochs::default(),
            displaced: BTreeMap::new(),
            parked: BTreeMap::new(),
            partials: BTreeMap::new(),
            exact: BTreeMap::new(),
            sending_exact: 0..0,
            look: Look::default(),
            arriving: BTreeMap::new(),
            owed: BTreeMap::new(),
            flights: Flights::default(),
            tickets: Tickets::default(),
            fences: Vec::new(),
            charged: 0,
            streams: Streams::default(),
            unread: 0,
            cursor: 0,
            swept: false,
            draining: false,
            overdue: None,
            discarding: 0,
            space: Space::default(),
            allocated_writes: 0,
            is_alone: false,
            was_sent_alone: false,
            gives_back_all: false,
            littered: 0,
            leaves_space: false,
            extent_hint: 0,
            growth: Growth::default(),
            gaps: Gaps::OverHoles,
            gap_pages: GAP_PAGES,
            reserving: Reserving::Adaptive,
            reserve_pause: 0,
            free_bytes: 0,
            reserve_most: u64::MAX,
            entry,
            unflushed: true,
            poisoned: None,
            failing_pages: 0,
            unwritable_pages: 0,
            write_error: None,
            error_sequence: 0,
            fill_errors: BTreeMap::new(),
        };
        if let Origin::Existing(_) = origin {
            // Nobody here knows what was written before and not flushed: a flush that fails is a
            // failure.
            file.note_unkept();
        }
        file
    }

    /// Sets whether the directory entry must be made durable, for a file that this engine created
    /// and closed without a sync.
    pub fn set_entry(&mut self, entry: Entry) {
        self.entry = entry;
    }

    /// Returns whether the directory entry must still be made durable.
    #[must_use]
    pub fn entry(&self) -> Entry {
        self.entry
    }

    /// Returns its number at the device.
    #[must_use]
    pub fn target(&self) -> Target {
        self.target
    }

    /// Returns the size in bytes that the program sees.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the size in bytes in the file system, as far as this engine knows.
    #[must_use]
    pub fn disk_size(&self) -> u64 {
        self.disk_size
    }

    /// Returns the number of pages that are dirty or being written.
    #[must_use]
    pub fn dirty_pages(&self) -> u64 {
        self.charged
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
        std::mem::take(&mut self.tickets.lost)
    }

    /// Records that space for a range was allocated before its bytes were accepted. It counts as
    /// written from here on, so that a release does not give it back.
    pub fn note_allocated(&mut self, bytes: Range<u64>) {
        self.holes.mark_written(bytes.start / PAGE..bytes.end.div_ceil(PAGE));
        self.space.add(bytes);
    }

    /// Begins a write whose space is allocated already. Space beyond the end stays until
    /// [`CachedFile::end_allocated_write`].
    pub fn begin_allocated_write(&mut self) {
        self.allocated_writes += 1;
    }

    /// Ends a write for which space was allocated before, whether it was accepted or not.
    pub fn end_allocated_write(&mut self) {
        self.allocated_writes -= 1;
    }

    /// Records that an allocation up to this byte failed and may have left space behind, which a
    /// release gives back.
    pub fn note_litter(&mut self, end: u64) {
        self.littered = self.littered.max(end);
    }

    /// Returns whether writing this range certainly needs no new space.
    #[must_use]
    pub fn is_allocated(&self, bytes: &Range<u64>) -> bool {
        let pages = bytes.start / PAGE..bytes.end.div_ceil(PAGE);
        self.space.covers(&(pages.start * PAGE..pages.end * PAGE))
            || self.holes.are_known() && pages.clone().all(|page| !self.holes.is_zero(page))
    }

    /// Returns whether the file is exclusive and no longer than when it was opened, so that most
    /// writes are overwrites.
    #[must_use]
    pub fn has_not_grown(&self) -> bool {
        self.liberties == Liberties::Exclusive
            && self.size <= self.origin_pages.saturating_mul(PAGE)
    }

    /// Returns whether a bio writes only ranges that the file had when it was opened, so that it
    /// probably needs no new space.
    #[must_use]
    pub fn is_overwrite(&self, bio: &Bio) -> bool {
        bio.operation == Operation::Write
            && self.liberties == Liberties::Exclusive
            && bio.offset + bio.length <= self.origin_pages.saturating_mul(PAGE).min(self.disk_size)
    }

    /// Sets whether space may be reserved ahead.
    pub fn set_reserving(&mut self, reserving: Reserving) {
        self.reserving = reserving;
    }

    /// Sets whether space may be reserved ahead, unless it is [`Reserving::Off`].
    pub fn change_reserving(&mut self, reserving: Reserving) {
        if self.reserving != Reserving::Off {
            self.reserving = reserving;
        }
    }

    /// Sets which gaps may be filled with zeroes, and their maximum length in pages.
    pub fn set_gaps(&mut self, gaps: Gaps, longest: u64) {
        self.gaps = gaps;
        self.gap_pages = longest.min(MOST_GAP_PAGES);
    }

    /// Sets the free bytes of the file system, which limit the space reserved beyond the end.
    pub fn set_free_bytes(&mut self, free_bytes: u64) {
        self.free_bytes = free_bytes;
    }

    /// Returns the bytes reserved beyond the end of the file now.
    #[must_use]
    pub fn reserved_beyond_end(&self) -> u64 {
        self.space.end().max(self.littered).saturating_sub(self.disk_size)
    }

    /// Returns whether space reserved by this engine remains beyond the end, for the next open to
    /// give back.
    #[must_use]
    pub fn leaves_space(&self) -> bool {
        self.leaves_space || self.reserved_beyond_end() > 0
    }

    /// Returns a mark to take before asking the file system for the size without the lock.
    #[must_use]
    pub fn look(&self) -> Look {
        self.look
    }

    /// Records the size in the file system of a shared file, read after `look` was taken. Other
    /// programs may have moved the end. A larger size is adopted at once. A smaller size is adopted
    /// only if nothing of ours could have made the file longer since, and no unwritten data will.
    pub fn observe_disk_size(&mut self, disk_size: u64, look: Look, settled: &mut Settled) {
        let is_cut = look.cuts != self.look.cuts || self.is_being_cut();
        if self.liberties == Liberties::Exclusive || is_cut {
            return;
        }
        let is_settled =
            look.writes == self.look.writes && !self.is_dirty() && self.flights.is_empty();
        if disk_size >= self.size || is_settled && self.may_follow_cut(disk_size, settled) {
            self.size = disk_size;
            self.disk_size = disk_size;
        }
    }

    /// Returns whether a change of length is requested or in flight.
    #[must_use]
    pub fn is_being_cut(&self) -> bool {
        self.tickets.first_set_length().is_some()
    }

    /// Returns the offset and error of a failed page write that a handle has not reported yet.
    /// `seen` is the mark of that handle.
    pub fn untold_error(&mut self, seen: &mut u64) -> Option<(u64, Errno)> {
        let untold = *seen < self.error_sequence;
        *seen = self.error_sequence;
        if untold { self.write_error } else { None }
    }

    /// Returns the offset and error of pages that could not be written, while there are any.
    #[must_use]
    pub fn failing(&self) -> Option<(u64, Errno)> {
        if self.failing_pages > 0 { self.write_error } else { None }
    }

    /// Returns the number of pages that stay dirty because they could not be written, or because
    /// the rest of a partly written page could not be read.
    #[must_use]
    pub fn failing_pages(&self) -> u64 {
        self.failing_pages
    }

    /// Returns the number of pages whose last write failed. Unlike
    /// [`CachedFile::failing_pages`] it includes pages that are being retried.
    #[must_use]
    pub fn unwritable_pages(&self) -> u64 {
        self.unwritable_pages
    }

    /// Returns the offset and error of the last page write that failed.
    #[must_use]
    pub fn write_error(&self) -> Option<(u64, Errno)> {
        self.write_error
    }

    /// Returns the error of the failed flush that makes every sync of this file fail, if there was
    /// one.
    #[must_use]
    pub fn poisoned(&self) -> Option<Errno> {
        self.poisoned
    }

    /// Drops every page; dirty data is lost. Nothing may be in flight and no handle may be left.
    /// `settled` lists the frames to free.
    pub fn discard(&mut self, settled: &mut Settled) {
        assert!(self.flights.is_empty(), "frames in flight outlive everything");
        self.drop_pages(0..u64::MAX, settled);
        debug_assert_eq!(self.unread, 0, "nothing is left to be read");
        // Whoever asks for a release late is told that there is nothing to do: the file is not at
        // the device any more.
        self.space = Space::default();
        self.kept = Kept::default();
        // Nor for a flush: one whose lease is broken at this moment is asked for both.
        self.unflushed = false;
        self.entry = Entry::Old;
    }

    /// The page that contains the end of the file, if the end is inside a page. A device has none:
    /// its last page is written direct like the others, as long as it is.
    /// Nor has a shared file: only the written bytes of its last page are sent (`exact.rs`).
    pub(crate) fn tail_page(&self) -> Option<u64> {
        let has_end = !self.is_device && self.liberties == Liberties::Exclusive;
        (has_end && !self.size.is_multiple_of(PAGE)).then_some(self.size / PAGE)
    }

    /// Pages below this one do not move the end of the file when they are written.
    pub(crate) fn inner_pages(&self) -> u64 {
        if self.is_device { self.size.div_ceil(PAGE) } else { self.disk_size / PAGE }
    }

    /// Bytes that go over the line for these pages: whole ones, but for the last of a device.
    pub(crate) fn bytes_of(&self, pages: &Range<u64>) -> u64 {
        let end = pages.end * PAGE;
        (if self.is_device { end.min(self.size) } else { end }) - pages.start * PAGE
    }

    /// Whether a page that is not here is zero for sure.
    pub(crate) fn absent_is_zero(&self, page: u64) -> bool {
        self.liberties == Liberties::Exclusive
            && (self.holes.is_zero(page) || page * PAGE >= self.disk_size)
    }

    /// Drops the pages of a range, whatever is in them; nobody uses them.
    pub(crate) fn drop_pages(&mut self, pages: Range<u64>, settled: &mut Settled) {
        // Most are clean and used by nobody: they go by the chunk. At a close that is a whole
        // cache, under locks.
        self.drop_clean_in(&pages, settled);
        for page in self.index.pages_in(&pages) {
            self.drop_page(page, settled);
        }
        self.fill_errors.retain(|page, _| !pages.contains(page));
    }

    /// Drops one page, whose content is lost if it is dirty.
    pub(crate) fn drop_page(&mut self, page: u64, settled: &mut Settled) {
        let (chunk, slot) = self.index.get_mut(page).expect("a page that is here has a chunk");
        let bit = 1 << slot;
        let (was_dirty, epoch) = (chunk.dirty & bit != 0, chunk.epoch(slot));
        self.failing_pages -= u64::from(chunk.failing & bit != 0);
        self.unwritable_pages -= u64::from(chunk.unwritable & bit != 0);
        chunk.present &= !bit;
        chunk.partial &= !bit;
        chunk.failing &= !bit;
        chunk.unwritable &= !bit;
        self.unread -= u64::from(chunk.uses.forget(bit));
        settled.freed.extend(chunk.take_frame(slot));
        self.disown(page);
        if was_dirty {
            self.index.clear_dirty(page);
            self.epochs.remove(epoch, 1);
        }
        if self.unkeep(page) || was_dirty {
            self.charged -= 1;
            settled.uncharged += 1;
        }
        if let Some(Rest::OnDevice(spare) | Rest::Here(spare, _)) =
            self.partials.remove(&page).map(|partial| partial.rest)
        {
            settled.freed.push(spare);
        }
        self.index.tidy(page);
    }
}
