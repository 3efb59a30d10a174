//! A file system that files of an engine lie on: how much room it has.
//!
//! A cache accepts bytes before it has space for them. While there is plenty that is sound; near
//! the end space is allocated before a write is accepted. Asking the file system each time would
//! cost a system call per write, so what was accepted since the last look is taken off what was
//! seen then.
//!
//! What was accepted while there was plenty is a pledge: its space is not allocated yet. Before the
//! first allocation near the end, pledges are redeemed by writing them out; else the allocations
//! would take their space away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, Ordering};

use forebay_cache::limits::{MOST_GAP_PAGES, PAGE};
use forebay_cache::{CachedFile, Gaps, space};

use crate::core::aside::Aside;
use crate::core::failing::Failing;
use crate::core::share::Share;
use crate::platform::sync::OnceLock;
use crate::platform::{Extents, File, Geometry};

/// Free space must be this many times what is not yet written.
const TIMES: u64 = 4;

/// Free bytes beside that for a write without space of its own: a file system holds space back for
/// its metadata while it allocates. XFS takes up to 8 blocks per request until the request has
/// ended, and refuses requests that find less, though there is space for their data.
const SLACK: u64 = forebay_block::limits::TAGS as u64 * 8 * PAGE;

/// The same where each page may bring a gap of so many along.
const fn times_with_gaps(longest: u64) -> u64 {
    TIMES + longest
}

const _: () =
    assert!(times_with_gaps(MOST_GAP_PAGES) <= 20, "gaps are for file systems with room for them");

/// The file system is looked at again after this part of its free space was accepted.
const LOOK_AFTER: u64 = 64;

/// Whether a write can be accepted without more ado.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    /// It can.
    Plenty,
    /// Space for it has to be allocated first.
    Scarce,
}

/// One file system.
#[derive(Debug, Default)]
pub(crate) struct Volume {
    number: usize,
    /// The thread for calls that may block on it.
    pub(crate) aside: Arc<Aside>,
    /// A context has asked for a look at the free space, and it was not made yet.
    is_look_due: AtomicBool,
    /// Callers that wait for a change of a page of its files.
    waiting: AtomicIsize,
    pub(crate) share: Share,
    free: AtomicU64,
    accepted: AtomicU64,
    /// Bytes of reservations from the check of their room to the look at the space that is left.
    reserving: AtomicU64,
    /// Bytes of pledged writes under way. Some count as dirty already; the others would be
    /// forgotten whenever the file system is looked at.
    promised: AtomicU64,
    /// Pledges given, and up to which of them everything is written out.
    pledged: AtomicU64,
    redeemed: AtomicU64,
    /// What cannot be written there.
    pub(crate) failing: Failing,
    /// How it divides its space, once somebody has looked.
    geometry: OnceLock<Option<Geometry>>,
    /// Whether it overwrites in place, in the same way.
    in_place: OnceLock<bool>,
    /// Bytes of the pieces that its free space comes in; zero where it was not found to be in
    /// pieces.
    piece: AtomicU64,
}

/// A write accepted without space of its own, while it is under way.
#[derive(Debug)]
pub(crate) struct Pledge<'a> {
    volume: &'a Volume,
    bytes: u64,
}

impl Drop for Pledge<'_> {
    fn drop(&mut self) {
        let was = self.volume.promised.fetch_sub(self.bytes, Ordering::AcqRel);
        debug_assert!(was >= self.bytes, "a pledge ends once");
        // Once more: who wrote out meanwhile wrote a part of it.
        self.volume.pledged.fetch_add(1, Ordering::Release);
    }
}

impl Volume {
    /// A file system; its number is its own within an engine, counted from zero.
    pub(crate) fn new(number: usize, aside: Arc<Aside>) -> Self {
        Self { number, aside, ..Self::default() }
    }

    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// How many places there are to write to at a time without a fight for a lock; no bound where
    /// that is not told.
    pub(crate) fn groups(&self) -> usize {
        self.geometry
            .get()
            .copied()
            .flatten()
            .map_or(usize::MAX, |geometry| geometry.groups as usize)
    }

    /// Its allocation groups, where it has some; asked once, by a file on it.
    pub(crate) fn geometry(&self, file: &File) -> Option<Geometry> {
        *self.geometry.get_or_init(|| file.geometry())
    }

    /// Asks the file system what never changes, by a file on it. For the thread that opens a file:
    /// a context finds it known, and never asks.
    pub(crate) fn learn(&self, file: &File) {
        let _ = self.geometry(file);
        self.in_place.get_or_init(|| file.overwrites_in_place());
    }

    /// Whether it is known to overwrite in place.
    pub(crate) fn overwrites_in_place(&self) -> bool {
        self.in_place.get().copied().unwrap_or(false)
    }

    /// Space was reserved in it, which lies in these pieces.
    pub(crate) fn note_pieces(&self, found: Extents) {
        let before = self.piece_bytes();
        let now = space::piece_bytes(before, found.count, found.bytes);
        // Of two contexts that note at once, either is right.
        self.piece.store(now.unwrap_or(0), Ordering::Relaxed);
        if before.is_none() && now.is_some() {
            tracing::debug!(?found, "free space is in pieces: it is reserved in parts");
        }
    }

    fn piece_bytes(&self) -> Option<u64> {
        Some(self.piece.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }

    /// Tells a file of it what its reservations depend on.
    pub(crate) fn tell(&self, cache: &mut CachedFile) {
        cache.set_free_bytes(self.free_bytes());
        cache.set_reserve_most(space::at_most(self.piece_bytes()));
    }

    /// So many callers more wait for a change of a page of its files, or fewer.
    pub(crate) fn waits(&self, more: isize) {
        let was = self.waiting.fetch_add(more, Ordering::Relaxed);
        debug_assert!(was + more >= 0, "more callers stop waiting than wait");
    }

    /// Whether callers wait for a change of a page of its files.
    pub(crate) fn has_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Bytes free, as last seen, without those that were accepted or are being reserved since.
    pub(crate) fn free_bytes(&self) -> u64 {
        let taken = [&self.accepted, &self.reserving].map(|bytes| bytes.load(Ordering::Acquire));
        self.free.load(Ordering::Relaxed).saturating_sub(taken.iter().sum())
    }

    /// A reservation is asked for. Its bytes count as taken until [`Volume::end_reserving`],
    /// because the file system may have them before it is looked at again.
    pub(crate) fn begin_reserving(&self, bytes: u64) {
        self.reserving.fetch_add(bytes, Ordering::AcqRel);
    }

    /// A reservation was refused, or the space that is left was looked at after it.
    pub(crate) fn end_reserving(&self, bytes: u64) {
        let was = self.reserving.fetch_sub(bytes, Ordering::AcqRel);
        debug_assert!(was >= bytes, "a reservation ends once");
    }

    /// Accepts a write of `length` bytes without space of its own, if there is plenty beside the
    /// `unwritten` bytes accepted before.
    pub(crate) fn pledge(&self, file: &File, length: u64, unwritten: u64) -> Option<Pledge<'_>> {
        let accepted = self.accepted.fetch_add(length, Ordering::Relaxed) + length;
        if accepted >= self.free.load(Ordering::Relaxed) / LOOK_AFTER {
            self.look(file);
        }
        // Promised before it is looked at: of two writes that ask at once, one counts the other.
        self.promised.fetch_add(length, Ordering::AcqRel);
        if self.room_beside(SLACK / TIMES, unwritten) == Room::Scarce {
            self.promised.fetch_sub(length, Ordering::AcqRel);
            return None;
        }
        self.pledged.fetch_add(1, Ordering::Release);
        Some(Pledge { volume: self, bytes: length })
    }

    /// Is there room for reserving `length` bytes, some of which may never be written, beside the
    /// `unwritten` bytes accepted before?
    pub(crate) fn room_ahead(&self, file: &File, length: u64, unwritten: u64) -> Room {
        self.look(file);
        self.room_beside(length, unwritten)
    }

    /// Whether free space is [`TIMES`] what is promised, unwritten, and asked for.
    fn room_beside(&self, length: u64, unwritten: u64) -> Room {
        let promised = self.promised.load(Ordering::Acquire);
        let needed = unwritten.saturating_add(promised).saturating_add(length);
        if self.free_bytes() >= needed.saturating_mul(TIMES) { Room::Plenty } else { Room::Scarce }
    }

    /// The last pledge that may not be written out, if there is one.
    pub(crate) fn unredeemed(&self) -> Option<u64> {
        let pledged = self.pledged.load(Ordering::Acquire);
        (pledged > self.redeemed.load(Ordering::Acquire)).then_some(pledged)
    }

    /// Everything pledged up to this one is written out.
    pub(crate) fn redeem(&self, file: &File, pledged: u64) {
        debug_assert!(
            pledged <= self.pledged.load(Ordering::Acquire),
            "redeemed before it is given"
        );
        self.redeemed.fetch_max(pledged, Ordering::AcqRel);
        self.look(file);
    }

    /// Where gaps of so many pages between dirty ones may be written along: only over reserved
    /// space, unless all that is dirty has room with its gaps too. Decided by the last look
    /// at the free space. If that was close, the aside looks again, for the next decision.
    pub(crate) fn gaps(self: &Arc<Self>, file: &Arc<File>, unwritten: u64, longest: u64) -> Gaps {
        let needed = unwritten.saturating_mul(times_with_gaps(longest));
        if self.free_bytes() < needed.saturating_mul(2)
            && !self.is_look_due.swap(true, Ordering::AcqRel)
        {
            let (volume, file) = (Arc::clone(self), Arc::clone(file));
            self.aside.run(move || {
                volume.is_look_due.store(false, Ordering::Release);
                volume.look(&file);
            });
        }
        if self.free_bytes() >= needed { Gaps::OverHoles } else { Gaps::OverReserved }
    }

    /// Asks the file system anew: space was allocated, or enough was accepted since. It may block;
    /// no context calls this.
    pub(crate) fn look(&self, file: &File) {
        // A file system that does not tell counts as full: the allocation will tell.
        let free = file.free_bytes().unwrap_or(0);
        self.accepted.store(0, Ordering::Relaxed);
        self.free.store(free, Ordering::Relaxed);
    }
}
