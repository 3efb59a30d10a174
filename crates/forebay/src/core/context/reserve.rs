//! Reservation of space ahead of data. The aside first checks the free space and sets a mark,
//! because a file system may block there.
//!
//! ```text
//! cache: Allocate --> aside: enough space? set the mark --Prepared--> queue --> backend
//!                                                   \--> refused: ends here
//! ```
//!
//! The bio counts as in flight meanwhile, so its file is neither closed nor handed over.

use std::collections::VecDeque;
use std::sync::Arc;

use forebay_block::{Bio, Ended, Errno, Operation};

use crate::core::context::Writeback;
use crate::core::context::senders::{Message, Unreserved};
use crate::core::inode::Inode;
use crate::core::space::prepare_reservation;
use crate::core::stats::Counters;

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
        debug_assert_eq!(bio.operation, Operation::Allocate);
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
