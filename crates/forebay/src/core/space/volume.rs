//! The free space and other properties of a file system that has files of the engine.
//!
//! A cache accepts bytes before they have space. That is sound while there is plenty. Near the end,
//! space is allocated before a write is accepted. A query per write would cost a system call each
//! time. So the bytes accepted since the last query are subtracted from its result.
//!
//! A write accepted while there was plenty is a pledge: its space is not allocated yet. Before the
//! first allocation near the end, pledges are redeemed by writing them out. Otherwise allocations
//! would take their space.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use forebay_block::Moment;
use forebay_cache::limits::{GAP_PAGES, GATHER_PAGES, PAGE};
use forebay_cache::meter::{Meter, Work};
use forebay_cache::price::Price;
use forebay_cache::{CachedFile, Gaps, space};

use crate::core::share::Failing;
use crate::core::share::Share;
use crate::core::share::subtract;
use crate::core::threads::Workers;
use crate::platform::clock;
use crate::platform::sync::{Mutex, OnceLock};
use crate::platform::{Extents, Geometry, OpenFile, Rewrite};

/// Factor between free space and unwritten bytes.
const TIMES: u64 = 4;

/// Additional free bytes for a write without allocated space: a file system reserves space for
/// metadata while it allocates. XFS takes up to 8 blocks per request until the request has ended.
/// It refuses requests that find less, although there is space for their data.
const SLACK: u64 = forebay_block::limits::TAGS as u64 * 8 * PAGE;

/// The same factor if each page may add a gap of the longest length.
const TIMES_WITH_GAPS: u64 = TIMES + GAP_PAGES;

const _: () = assert!(TIMES_WITH_GAPS <= 20, "gaps need a bounded multiple of the free space");

/// Small syncs count as going on for this long after the last one, in nanoseconds.
const SYNCS_GO_ON: u64 = 100_000_000;

/// Most pages of a request beside small syncs while the price is unknown, and of one that moves the
/// end of a file. A file has one of these in flight at a time, so with smaller ones a few files
/// that grow would never fill the flight, and the price would stay unknown.
const FIRST_REQUEST_PAGES: u64 = 32;
const FIRST_EXTENDING_PAGES: u64 = GATHER_PAGES;

/// Part of the free space that may be accepted before the next query (one in N).
const LOOK_AFTER: u64 = 64;

/// Whether a write can be accepted without an allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    /// There is plenty of space.
    Plenty,
    /// Space has to be allocated first.
    Scarce,
}

/// A file system.
#[derive(Debug, Default)]
pub(crate) struct Volume {
    number: usize,
    /// Thread for calls that may block on it.
    pub(crate) aside: Arc<Workers>,
    /// Whether a context has requested a query of the free space that has not been made yet.
    is_look_due: AtomicBool,
    pub(crate) share: Share,
    free: AtomicU64,
    accepted: AtomicU64,
    /// Bytes of reservations, from the check of their room to the next query of the free space.
    reserving: AtomicU64,
    /// Bytes of pledged writes in progress. A part of them counts as dirty already. A query of the
    /// file system would forget the rest.
    promised: AtomicU64,
    /// Pledges are given in rounds, so that a write changes no counter of them. Rounds that are
    /// ended, the last one with a pledge, and the last one whose pledges are written out; counted
    /// from 1.
    ended_rounds: AtomicU64,
    pledged: AtomicU64,
    redeemed: AtomicU64,
    /// When a caller last synced a few pages, in nanoseconds; zero before the first time.
    synced: AtomicU64,
    /// Pages that cannot be written there.
    pub(crate) failing: Failing,
    /// Its allocation groups, once looked up.
    geometry: OnceLock<Option<Geometry>>,
    /// The space that a second write of a page needs, once looked up.
    rewrite: OnceLock<Rewrite>,
    /// Typical size in bytes of the pieces of its free space; zero if it is not known to be
    /// fragmented.
    piece: AtomicU64,
    meter: Mutex<Meter>,
    /// Longest gap that is worth filling, in pages.
    gap_pages: AtomicU64,
    /// Most pages of a request while callers sync few pages at a time; zero while unknown.
    request_pages: AtomicU64,
    /// Time that a flight beside syncs is longer by, in nanoseconds.
    flush: AtomicU64,
}

/// Write in progress that was accepted without allocated space.
#[derive(Debug)]
pub(crate) struct Pledge<'a> {
    volume: &'a Volume,
    bytes: u64,
}

impl Drop for Pledge<'_> {
    fn drop(&mut self) {
        self.volume.unpromise(self.bytes);
        // Noted again: a write-out meanwhile covered only a part of it.
        self.volume.note_pledge();
    }
}

impl Volume {
    /// Creates a file system. Its number is unique in the engine, counted from zero.
    pub(crate) fn new(number: usize, aside: Arc<Workers>) -> Self {
        Self { number, aside, gap_pages: AtomicU64::new(GAP_PAGES), ..Self::default() }
    }

    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// Notes that a caller syncs a few pages.
    pub(crate) fn note_small_sync(&self) {
        self.synced.store(clock::now().nanoseconds().max(1), Ordering::Relaxed);
    }

    /// Returns whether callers sync few pages at a time now: one did so not long ago.
    pub(crate) fn has_small_syncs(&self) -> bool {
        let synced = self.synced.load(Ordering::Relaxed);
        synced > 0 && clock::now().nanoseconds().saturating_sub(synced) < SYNCS_GO_ON
    }

    /// Returns its allocation groups, if it has some. Looked up once, by a file on it.
    pub(crate) fn geometry(&self, file: &OpenFile) -> Option<Geometry> {
        *self.geometry.get_or_init(|| file.geometry())
    }

    /// Returns the number of its allocation groups; `usize::MAX` if it does not report them.
    pub(crate) fn groups(&self) -> usize {
        let geometry = self.geometry.get().copied().flatten();
        geometry.map_or(usize::MAX, |geometry| geometry.groups as usize)
    }

    /// Returns the space that a second write of a page needs. Looked up once, by a file on it.
    pub(crate) fn rewrite(&self, file: &OpenFile) -> Rewrite {
        *self.rewrite.get_or_init(|| file.rewrite())
    }

    /// Looks up the properties that do not change. The thread that opens a file calls this, so that
    /// contexts never have to.
    pub(crate) fn learn(&self, file: &OpenFile) {
        let _ = (self.geometry(file), self.rewrite(file));
    }

    /// Notes the extents of newly reserved space.
    pub(crate) fn note_pieces(&self, found: Extents) {
        let before = self.piece_bytes();
        let now = space::piece_bytes(before, found.count, found.bytes);
        // If two contexts note at once, either result is right.
        self.piece.store(now.unwrap_or(0), Ordering::Relaxed);
        if before.is_none() && now.is_some() {
            tracing::debug!(?found, "free space is fragmented; space is reserved in smaller parts");
        }
    }

    fn piece_bytes(&self) -> Option<u64> {
        Some(self.piece.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }

    /// Notes work that its disk has done.
    pub(crate) fn note_work(&self, work: Work, now: Moment) {
        let mut meter = self.meter.lock();
        if meter.add(work, now) {
            self.gap_pages.store(meter.gap_pages(), Ordering::Relaxed);
            self.request_pages.store(meter.request_pages(), Ordering::Relaxed);
        }
    }

    /// Notes the duration of a flush of one file.
    pub(crate) fn note_flush(&self, took: Duration, now: Moment) {
        let mut meter = self.meter.lock();
        meter.add_flush(took, now);
        let flush = meter.beside_flush().as_nanos() as u64;
        self.flush.store(flush, Ordering::Relaxed);
    }

    /// Returns the time that a flight beside syncs is longer by: that of a flush, less what the
    /// disk may lose. Zero while it is unknown.
    pub(crate) fn beside_flush(&self) -> Duration {
        Duration::from_nanos(self.flush.load(Ordering::Relaxed))
    }

    /// Returns the price of its disk, as far as it is known.
    pub(crate) fn price(&self) -> Price {
        self.meter.lock().price()
    }

    /// Sets the limits of reservations, gaps and requests in the cache of a file.
    pub(crate) fn configure(&self, cache: &mut CachedFile) {
        cache.set_gap_pages(self.gap_pages.load(Ordering::Relaxed));
        cache.set_rewrites_in_place(self.rewrite.get() == Some(&Rewrite::InPlace));
        let is_awaited = self.has_small_syncs();
        let (most, extending) = match self.request_pages.load(Ordering::Relaxed) {
            _ if !is_awaited => (u64::MAX, u64::MAX),
            0 => (FIRST_REQUEST_PAGES, FIRST_EXTENDING_PAGES),
            known => (known, known),
        };
        cache.set_request_pages(most, extending);
        cache.set_free_bytes(self.free_bytes());
        cache.set_reserve_most(space::at_most(self.piece_bytes()));
    }

    /// Returns the free bytes of the last query, without those accepted or being reserved since
    /// then.
    pub(crate) fn free_bytes(&self) -> u64 {
        let taken = [&self.accepted, &self.reserving].map(|bytes| bytes.load(Ordering::Acquire));
        self.free.load(Ordering::Relaxed).saturating_sub(taken.iter().sum())
    }

    /// Begins a reservation. Its bytes count as taken until [`Volume::end_reserving`], because the
    /// file system may have allocated them before the next query.
    pub(crate) fn begin_reserving(&self, bytes: u64) {
        self.reserving.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Ends a reservation, after its refusal or the next query.
    pub(crate) fn end_reserving(&self, bytes: u64) {
        subtract(&self.reserving, bytes, Ordering::AcqRel, "a reservation ends once");
    }

    /// Accepts a write of `length` bytes without an allocation, if there is plenty beside the
    /// `unwritten` bytes accepted before.
    pub(crate) fn pledge(
        &self,
        file: &OpenFile,
        length: u64,
        unwritten: u64,
    ) -> Option<Pledge<'_>> {
        let accepted = self.accepted.load(Ordering::Relaxed).saturating_add(length);
        if accepted >= self.free.load(Ordering::Relaxed) / LOOK_AFTER {
            self.look(file);
        }
        // Promised before the check: of two concurrent writes, one counts the other.
        self.promised.fetch_add(length, Ordering::AcqRel);
        if self.room_beside(SLACK / TIMES, unwritten) == Room::Scarce {
            self.unpromise(length);
            return None;
        }
        self.note_pledge();
        Some(Pledge { volume: self, bytes: length })
    }

    fn unpromise(&self, bytes: u64) {
        subtract(&self.promised, bytes, Ordering::AcqRel, "a pledge ends once");
    }

    /// Returns whether a page that is dirty may be written again without an allocation. The page
    /// is among the `unwritten` bytes and has its pledge, so it needs no other.
    pub(crate) fn has_plenty(&self, unwritten: u64) -> bool {
        self.room_beside(SLACK / TIMES, unwritten) == Room::Plenty
    }

    /// Counts bytes accepted since the last query. Their pages are dirty from now on, and were not
    /// before: a page that is dirty already needs no other space.
    pub(crate) fn accept(&self, bytes: u64) {
        if bytes > 0 {
            self.accepted.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Notes that there is a pledge of the round that is not ended. A write that is noted here in
    /// an ended round has published its pages before that end, so the write-out after it covers
    /// them.
    fn note_pledge(&self) {
        let round = self.ended_rounds.load(Ordering::Acquire) + 1;
        if self.pledged.load(Ordering::Relaxed) < round {
            self.pledged.fetch_max(round, Ordering::AcqRel);
        }
    }

    /// Decides whether `length` bytes can be reserved beside the `unwritten` bytes accepted before.
    /// A part of the reservation may never be written.
    pub(crate) fn room_ahead(&self, file: &OpenFile, length: u64, unwritten: u64) -> Room {
        self.look(file);
        self.room_beside(length, unwritten)
    }

    /// Returns whether free space is at least [`TIMES`] the promised, unwritten and requested
    /// bytes.
    fn room_beside(&self, length: u64, unwritten: u64) -> Room {
        let promised = self.promised.load(Ordering::Acquire);
        let needed = unwritten.saturating_add(promised).saturating_add(length);
        if self.free_bytes() >= needed.saturating_mul(TIMES) { Room::Plenty } else { Room::Scarce }
    }

    /// Returns the last round with pledges that may not be written out, if any. Ends it: later
    /// pledges are of the next one.
    pub(crate) fn unredeemed(&self) -> Option<u64> {
        let pledged = self.pledged.load(Ordering::Acquire);
        if pledged <= self.redeemed.load(Ordering::Acquire) {
            return None;
        }
        self.ended_rounds.fetch_max(pledged, Ordering::AcqRel);
        Some(pledged)
    }

    /// Notes that everything up to the pledges of this round is written out.
    pub(crate) fn redeem(&self, file: &OpenFile, pledged: u64) {
        assert!(
            pledged <= self.pledged.load(Ordering::Acquire),
            "a round is redeemed before it had a pledge"
        );
        self.redeemed.fetch_max(pledged, Ordering::AcqRel);
        self.look(file);
    }

    /// Decides where gaps between dirty pages may be written, too: only over reserved space, unless
    /// all dirty pages have room with their gaps. Uses the last query of the free space. If that
    /// was close, and much was accepted since, the aside repeats it for the next decision.
    pub(crate) fn gaps(self: &Arc<Self>, file: &Arc<OpenFile>, unwritten: u64) -> Gaps {
        let needed = unwritten.saturating_mul(TIMES_WITH_GAPS);
        let (free, found) = (self.free_bytes(), self.free.load(Ordering::Relaxed));
        if free < needed.saturating_mul(2)
            && found - free.min(found) >= found / LOOK_AFTER
            && !self.is_look_due.swap(true, Ordering::AcqRel)
        {
            let (volume, file) = (Arc::clone(self), Arc::clone(file));
            self.aside.run(move || {
                volume.is_look_due.store(false, Ordering::Release);
                volume.look(&file);
            });
        }
        if free >= needed { Gaps::OverHoles } else { Gaps::OverReserved }
    }

    /// Queries the free space again, after an allocation or enough accepted bytes. It may block; no
    /// context calls this.
    pub(crate) fn look(&self, file: &OpenFile) {
        // Without an answer the file system counts as full: the allocation will show whether it is.
        let free = file.free_bytes().unwrap_or(0);
        self.accepted.store(0, Ordering::Relaxed);
        self.free.store(free, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contract_09_a_pledge_that_outlasts_a_write_out_is_written_out_again() {
        let volume = Volume::default();
        assert_eq!(volume.unredeemed(), None);
        volume.note_pledge();
        volume.promised.store(1, Ordering::Relaxed);
        let pledge = Pledge { volume: &volume, bytes: 1 };
        let round = volume.unredeemed().expect("a pledge");
        assert_eq!(volume.unredeemed(), Some(round), "until it is redeemed");
        volume.redeemed.store(round, Ordering::Relaxed);
        assert_eq!(volume.unredeemed(), None);
        drop(pledge);
        assert_eq!(volume.unredeemed(), Some(round + 1));
        volume.note_pledge();
        assert_eq!(volume.unredeemed(), Some(round + 2));
    }
}
