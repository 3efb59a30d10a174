//! Requests of a context in flight to one file system, their limit, and the dirty files there.
//!
//! Each file system (device number) has its own, so that a slow one delays no other: it has a
//! flight of its own, and its files take turns among themselves.
//!
//! A reservation of space ahead of data counts as in flight from the beginning, so its file is
//! neither closed nor handed over. The aside prepares it, because a file system may block there:
//!
//! ```text
//! cache: Allocate --> aside: enough space? set the mark --Prepared--> queue --> backend
//!                                                   \--> refused: ends here
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use forebay_block::{Bio, Class, Ended, Errno, Moment, Operation, Target};
use forebay_cache::writeback::pace::{Bound, Pace};

use crate::core::context::Writeback;
use crate::core::context::senders::{Message, Unreserved};
use crate::core::inode::Inode;
use crate::core::limits::{DIRTIEST_OF, FLIGHT};
use crate::core::space::prepare_reservation;
use crate::core::space::volume::Volume;
use crate::core::stats::Counters;

/// Interval at which the meter of a file system gets the work that has ended: a part of its window.
const NOTED_EACH: Duration = Duration::from_millis(20);

/// Flight of a context to one file system.
#[derive(Debug)]
pub(crate) struct Flight {
    /// Number of the context.
    context: usize,
    pub(crate) volume: Arc<Volume>,
    pub(crate) pace: Pace,
    /// Dirty files; the first one is written next.
    pub(crate) dirty: VecDeque<Arc<Inode>>,
    /// Whether the first dirty file is in the middle of its sweep.
    pub(crate) in_turn: bool,
    /// Whether the file system counts this context as writing.
    is_reported: bool,
    /// When its meter last had the work that has ended.
    noted: Moment,
    /// The flush that is timed, and when it was sent; of one that has ended, the time alone.
    timed: Option<(Target, Moment)>,
    flushed: Option<Moment>,
}

impl Flight {
    pub(crate) fn new(context: usize, volume: Arc<Volume>, bound: Bound) -> Self {
        let (pace, dirty) = (Pace::new(bound), VecDeque::new());
        let noted = Moment::default();
        Self {
            context,
            volume,
            pace,
            dirty,
            in_turn: false,
            is_reported: false,
            noted,
            timed: None,
            flushed: None,
        }
    }

    /// Moves the file to write next to the front: the one with the most dirty pages, which is the
    /// densest. Files with few dirty pages continue to gather until their age.
    pub(crate) fn bring_dirtiest_forward(&mut self) {
        let pages =
            |inode: &Arc<Inode>| inode.catch(|| inode.lock().cache.dirty_pages()).unwrap_or(0);
        let weights = self.dirty.iter().take(DIRTIEST_OF).map(pages).enumerate();
        if let Some((at, _)) = weights.max_by_key(|(_, pages)| *pages) {
            self.dirty.swap(0, at);
        }
    }

    /// Counts a bio that goes to the queue. One that moves no bytes is not counted: a flush does
    /// not show the rate of the device.
    pub(crate) fn sent(&mut self, bio: &Bio, now: impl FnOnce() -> Moment) {
        if bio.operation.moves_bytes() {
            self.pace.sent(bio.class, bio.length, now);
        } else if bio.operation == Operation::FlushData && self.timed.is_none() {
            self.timed = Some((bio.target, now()));
        }
    }

    /// Updates the rate and the price after a run of completions.
    pub(crate) fn look(&mut self, now: Moment) {
        let has_learned = self.pace.look(now);
        if let Some(begin) = self.flushed.take() {
            self.volume.note_flush(now.since(begin), now);
        }
        if now.since(self.noted) >= NOTED_EACH {
            self.noted = now;
            let work = self.pace.take_work();
            if work.requests > 0 {
                self.volume.note_work(work, now);
            }
        }
        if has_learned && let Some(rate) = self.pace.pages_per_second() {
            self.volume.share.set_rate(self.context, rate);
        }
    }

    /// Updates whether this context writes to the file system: it has dirty files or requests
    /// there. Returns whether that changed.
    pub(crate) fn report_written(&mut self) -> bool {
        let is_written = !self.dirty.is_empty() || self.pace.requests() > 0;
        let is_new = std::mem::replace(&mut self.is_reported, is_written) != is_written;
        if is_new {
            self.volume.share.set_written(self.context, is_written);
        }
        is_new
    }

    /// Counts a completed bio.
    pub(crate) fn ended(&mut self, Ended { bio, result }: &Ended) {
        if bio.operation.moves_bytes() {
            let is_written = bio.operation != Operation::Read && result.is_ok();
            self.pace.ended(bio.class, bio.length, if is_written { bio.length } else { 0 });
        } else if bio.operation == Operation::FlushData
            && let Some((_, begin)) = self.timed.take_if(|(target, _)| *target == bio.target)
        {
            self.flushed = result.is_ok().then_some(begin);
        }
    }
}

/// Returns the number of slots of a class that no flight uses.
pub(crate) fn free_slots(flights: &[Flight], class: Class) -> usize {
    FLIGHT.saturating_sub(flights.iter().map(|flight| flight.pace.requests_of(class)).sum())
}

/// Reservations that are being prepared.
#[derive(Debug, Default)]
pub(super) struct Reservations {
    /// Made under a file's lock in this pass; passed to the aside once no lock is held.
    made: Vec<(Arc<Inode>, Bio)>,
    /// Number of reservations at the aside.
    aside: usize,
    /// Prepared, and waiting for room in the queue.
    prepared: VecDeque<(Arc<Inode>, Bio)>,
}

impl Reservations {
    pub(super) fn is_idle(&self) -> bool {
        self.made.is_empty() && self.aside == 0 && self.prepared.is_empty()
    }

    pub(super) fn make(&mut self, inode: &Arc<Inode>, bio: Bio) {
        debug_assert_eq!(bio.operation, Operation::Allocate, "the aside allocates nothing else");
        self.made.push((Arc::clone(inode), bio));
    }
}

impl Writeback {
    /// Has the reservations of this pass prepared. No lock is held.
    pub(super) fn prepare_reservations(&mut self) {
        for (inode, bio) in self.reservations.made.drain(..) {
            self.reservations.aside += 1;
            let (shared, number) = (Arc::clone(&self.shared), self.number);
            let aside = Arc::clone(&inode.volume.aside);
            aside.run(move || {
                let prepared = inode.catch(|| prepare_reservation(&inode, &shared, &bio));
                let prepared = prepared.unwrap_or(Err(Unreserved::Interrupted));
                shared.contexts.send_to(number, Message::Prepared(inode, bio, prepared));
            });
        }
    }

    /// Takes a reservation back from the aside.
    pub(super) fn prepared(
        &mut self,
        inode: Arc<Inode>,
        bio: Bio,
        prepared: Result<(), Unreserved>,
    ) {
        assert!(self.reservations.aside > 0, "a reservation comes back once");
        self.reservations.aside -= 1;
        let counters = &self.shared.counters;
        let (counter, errno) = match prepared {
            Ok(()) => return self.reservations.prepared.push_back((inode, bio)),
            Err(Unreserved::Scarce) => (Some(&counters.unreserved_scarce), Errno::WOULD_BLOCK),
            Err(Unreserved::Unmarked) => (Some(&counters.unreserved_unmarked), Errno::UNSUPPORTED),
            Err(Unreserved::Interrupted) => (None, Errno::WOULD_BLOCK),
        };
        counter.inspect(|counter| Counters::add(counter, 1));
        self.ended.push(Ended { bio, result: Err(errno) });
    }

    /// Submits prepared reservations.
    pub(super) fn serve_reservations(&mut self) {
        while self.queue.room() > 0
            && let Some((inode, bio)) = self.reservations.prepared.pop_front()
        {
            let reservation = inode.catch(|| {
                let state = inode.lock();
                let reservation = || {
                    let reservation = state.cache.reserves_for(&bio);
                    reservation.expect("a bio that allocates has a reservation")
                };
                (!state.failures.is_interrupted()).then(reservation)
            });
            let Some((purpose, _)) = reservation.flatten() else {
                self.ended.push(Ended { bio, result: Err(Errno::WOULD_BLOCK) });
                continue;
            };
            self.shared.counters.add_reserved(purpose, bio.length);
            self.submit(inode.volume.number(), bio);
        }
    }
}
