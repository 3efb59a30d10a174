//! One cached file: its pages, its two sizes, what is in flight, who waits.
//!
//! Everything here happens under one lock, and nothing here takes long: bytes are copied outside of
//! it. Callers use [`begin_write`](CachedFile::begin_write) and
//! [`begin_read`](CachedFile::begin_read), copy, and publish; the context asks for the next bio and
//! tells how each one ended.
//!
//! # Two sizes
//! `size` is what the program sees: the largest end accepted or set. `disk_size` is what the file
//! system has. A write beyond `disk_size` moves it, and one such write is in flight at a time. The
//! page that contains the end of `size` is never written direct: its exact bytes go through the
//! kernel's cache, with nothing else of the file in flight.
//!
//! A device has one size, and its end does not move: nothing of this is for it.

use std::collections::BTreeMap;
use std::ops::Range;

use forebay_block::{Bio, Errno, Frame, Operation, Target};

use crate::epochs::Epochs;
use crate::fence::Fence;
use crate::growth::Growth;
use crate::holes::Holes;
use crate::index::Index;
use crate::kept::Kept;
use crate::limits::{GAP_PAGES, MOST_GAP_PAGES, PAGE};
use crate::partial::{Partial, Rest};
use crate::readahead::Streams;
use crate::space::Space;
use crate::ticket::{Failure, TicketId, Tickets};
use crate::writeback::flight::Flights;
use crate::writeback::settle::Settled;

/// What may be done to a file because nobody else has it open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Liberties {
    /// We hold its lease: zeroes may be written over known holes, clean pages kept, reserved space
    /// given back.
    Exclusive,
    /// Somebody else may have it open.
    Shared,
}

/// What the file was when it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// This open made it (or cut it to nothing under the lease): all of it is hole. `entry` tells
    /// whether its directory entry is new and has to be made durable too.
    Empty {
        /// Whether the directory entry is new.
        entry: Entry,
    },
    /// It was there, with this many bytes.
    Existing(u64),
    /// A device of this many bytes: it has them all, and never more or fewer.
    Device(u64),
}

/// Whether a directory entry has still to be made durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// Made by us, not yet durable.
    New,
    /// Durable, as far as we are concerned.
    Old,
}

/// Whether space may be reserved ahead of data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reserving {
    /// Where the file is becoming dense.
    Adaptive,
    /// The same, and so many bytes beyond the end of one that grows.
    Ahead(u64),
    /// By the file system: new files are given an extent-size hint of so many bytes. Where it takes
    /// none, as `Adaptive`.
    Hint(u64),
    /// Not now: nobody wants it.
    Paused,
    /// Never: nothing of it would be ours, or the file system refused.
    Off,
}

/// Where zeroes may be written along between two dirty runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gaps {
    /// Over known holes: that takes space.
    OverHoles,
    /// Over known holes for which space is reserved already.
    OverReserved,
}

/// One file in the cache.
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
    /// A file as it was opened; `target` names it to the device.
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

    /// Its directory entry has still to be made durable, though the file was there: it was made and
    /// closed without a sync.
    pub fn set_entry(&mut self, entry: Entry) {
        self.entry = entry;
    }

    /// Whether its directory entry has still to be made durable.
    #[must_use]
    pub fn entry(&self) -> Entry {
        self.entry
    }

    /// Its name at the device.
    #[must_use]
    pub fn target(&self) -> Target {
        self.target
    }

    /// Bytes in the file, as the program sees it.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Bytes in the file, as the file system has it by what we did.
    #[must_use]
    pub fn disk_size(&self) -> u64 {
        self.disk_size
    }

    /// Pages dirty or in flight.
    #[must_use]
    pub fn dirty_pages(&self) -> u64 {
        self.charged
    }

    /// Pages dirty, and not on their way.
    #[must_use]
    pub fn unsent_pages(&self) -> u64 {
        self.index.dirty_count()
    }

    /// Whether anything is dirty or in flight.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        !self.epochs.is_empty()
    }

    /// Whether anything of it is at the device.
    #[must_use]
    pub fn in_flight(&self) -> bool {
        !self.flights.is_empty()
    }

    /// Whether a page is being written, as it is now or as it was.
    #[must_use]
    pub fn is_page_in_flight(&self, page: u64) -> bool {
        self.index.get(page).is_some_and(|(chunk, slot)| chunk.flight & (1 << slot) != 0)
    }

    /// Where its own bytes in flight are told from those of other files: bios carry this.
    #[must_use]
    pub fn flight_of(bio: &Bio) -> (Target, u32) {
        (bio.target, bio.owner as u32)
    }

    /// Failures of tickets that nobody waits for.
    pub fn take_lost(&mut self) -> Vec<Failure> {
        std::mem::take(&mut self.tickets.lost)
    }

    /// Space for this range was allocated at the caller's wish, before its bytes were accepted.
    pub fn note_allocated(&mut self, bytes: Range<u64>) {
        self.space.add(bytes);
    }

    /// An allocation up to this byte failed, and may have left space behind: a release gives it
    /// back.
    pub fn note_litter(&mut self, end: u64) {
        self.littered = self.littered.max(end);
    }

    /// Whether writing this range needs no new space for sure.
    #[must_use]
    pub fn is_allocated(&self, bytes: &Range<u64>) -> bool {
        let pages = bytes.start / PAGE..bytes.end.div_ceil(PAGE);
        self.space.covers(&(pages.start * PAGE..pages.end * PAGE))
            || self.holes.are_known() && pages.clone().all(|page| !self.holes.is_zero(page))
    }

    /// Whether it is no longer than when it was opened, and ours alone: then most of what is
    /// written is written over.
    #[must_use]
    pub fn has_not_grown(&self) -> bool {
        self.liberties == Liberties::Exclusive
            && self.size <= self.origin_pages.saturating_mul(PAGE)
    }

    /// Whether a bio just made writes only what the file had when it was opened, so that it needs
    /// no new space as far as is known.
    #[must_use]
    pub fn is_overwrite(&self, bio: &Bio) -> bool {
        bio.operation == Operation::Write
            && self.liberties == Liberties::Exclusive
            && bio.offset + bio.length <= self.origin_pages.saturating_mul(PAGE).min(self.disk_size)
    }

    /// Whether space may be reserved ahead.
    pub fn set_reserving(&mut self, reserving: Reserving) {
        self.reserving = reserving;
    }

    /// The same, where it is not never.
    pub fn change_reserving(&mut self, reserving: Reserving) {
        if self.reserving != Reserving::Off {
            self.reserving = reserving;
        }
    }

    /// Where gaps may be written along from now on, and how long ones.
    pub fn set_gaps(&mut self, gaps: Gaps, longest: u64) {
        self.gaps = gaps;
        self.gap_pages = longest.min(MOST_GAP_PAGES);
    }

    /// Free bytes of its file system, as last seen: bounds what is reserved beyond the end.
    pub fn set_free_bytes(&mut self, free_bytes: u64) {
        self.free_bytes = free_bytes;
    }

    /// Bytes reserved beyond the end of the file now.
    #[must_use]
    pub fn reserved_beyond_end(&self) -> u64 {
        self.space.end().max(self.littered).saturating_sub(self.disk_size)
    }

    /// Whether there is space beyond the end that is not the user's, so that the next open has
    /// something to give back.
    #[must_use]
    pub fn leaves_space(&self) -> bool {
        self.leaves_space || self.reserved_beyond_end() > 0
    }

    /// The file system's size was looked at, on a shared file: others may have moved the end.
    pub fn observe_disk_size(&mut self, disk_size: u64, settled: &mut Settled) {
        let is_shared = self.liberties == Liberties::Shared;
        if is_shared
            && !self.is_dirty()
            && self.flights.is_empty()
            && self.may_follow_cut(disk_size, settled)
        {
            self.size = disk_size;
            self.disk_size = disk_size;
        }
    }

    /// An error of a page write that this handle has not been told: `seen` is the handle's own
    /// mark.
    pub fn untold_error(&mut self, seen: &mut u64) -> Option<(u64, Errno)> {
        let untold = *seen < self.error_sequence;
        *seen = self.error_sequence;
        if untold { self.write_error } else { None }
    }

    /// Why pages stay dirty that were to be written, while there are any.
    #[must_use]
    pub fn failing(&self) -> Option<(u64, Errno)> {
        if self.failing_pages > 0 { self.write_error } else { None }
    }

    /// Pages that stay dirty because they could not be written, or not be read where a part of them
    /// was written.
    #[must_use]
    pub fn failing_pages(&self) -> u64 {
        self.failing_pages
    }

    /// Pages of which the last write failed: unlike [`CachedFile::failing_pages`] also while it is
    /// tried again, so that what is bounded by it stays so.
    #[must_use]
    pub fn unwritable_pages(&self) -> u64 {
        self.unwritable_pages
    }

    /// Why a page could not be written, the last time one could not.
    #[must_use]
    pub fn write_error(&self) -> Option<(u64, Errno)> {
        self.write_error
    }

    /// Why no sync of this file succeeds any more.
    #[must_use]
    pub fn poisoned(&self) -> Option<Errno> {
        self.poisoned
    }

    /// Drops every page, written or not; returns what they were charged. Only when nothing is in
    /// flight and no handle is left: what was dirty is lost.
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
    pub(crate) fn tail_page(&self) -> Option<u64> {
        (!self.is_device && !self.size.is_multiple_of(PAGE)).then_some(self.size / PAGE)
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
