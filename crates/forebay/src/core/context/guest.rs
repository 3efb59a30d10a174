//! Idle contexts take ranges of others' files: overwrites only.
//!
//! One file has one context, and a file that is overwritten as fast as its device takes it may be
//! more than one thread can submit. What needs no allocation has no group and no fragments to mind,
//! so an overwrite that its own context has no room for may go through another one's ring, where
//! that has nothing to do.
//!
//! ```text
//! the file's context: gathers under the file's lock -> lends --Lent--> the idle one: its ring, its device's pace
//!                     settles, in order, as its own  <-----Returned--- when it has ended
//! ```
//!
//! It stays a bio of the file's own context, which counts it as in flight: the file is neither
//! handed over nor closed before it is back. By then the guest has taken the file from its ring.

use std::collections::VecDeque;
use std::sync::Arc;

use forebay_block::{Bio, Class, Device, Ended};
use forebay_cache::Reason;

use super::Writeback;
use crate::core::counters::Counters;
use crate::core::inode::{Inode, State};
use crate::core::limits::DIRECT_LEAVES;
use crate::core::message::Message;

/// A file of another context that this one has something of.
#[derive(Debug)]
pub(super) struct Guest {
    inode: Arc<Inode>,
    in_flight: u32,
}

/// What a context does for others.
#[derive(Debug, Default)]
pub(super) struct Guests {
    /// By target's number.
    files: Vec<Option<Guest>>,
    /// Bios that the queue has had no room for yet.
    pending: VecDeque<(Arc<Inode>, Bio)>,
    /// What is lent in this pass, and to whom: sent when no file's lock is held.
    to_lend: Vec<(usize, Message)>,
    /// Own bios that have come back.
    returned: Vec<Ended>,
}

impl Guests {
    pub(super) fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.returned.is_empty()
    }

    pub(super) fn lent(&mut self, inode: Arc<Inode>, bio: Bio) {
        self.pending.push_back((inode, bio));
    }

    pub(super) fn returned(&mut self, ended: Ended) {
        self.returned.push(ended);
    }
}

impl Writeback {
    /// What this context has no room for goes to idle ones, as far as it is overwritten. How many
    /// bios.
    pub(super) fn lend(&mut self, inode: &Arc<Inode>, state: &mut State, most: usize) -> usize {
        let mut sent = 0;
        while sent < most
            && !self.stop
            && state.cache.has_not_grown()
            && self.queue.room() > DIRECT_LEAVES
        {
            let Some(guest) = self.shared.contexts.idle_beside(self.number) else { break };
            let Some(bio) = state.cache.next_bio(Reason::Background) else { break };
            if !state.cache.is_overwrite(&bio) || bio.zero_bytes() > 0 {
                // A page to be filled first, or the end: it goes the usual way, one beyond what
                // there is room for.
                self.send(inode, state, bio);
                break;
            }
            sent += 1;
            self.begin_bio(bio.target);
            self.shared.contexts.lend(guest);
            Counters::add(&self.shared.counters.lent, 1);
            self.guests.to_lend.push((guest, Message::Lent(Arc::clone(inode), bio)));
        }
        sent
    }

    /// Sends what is lent, and says whether others may lend it something.
    pub(super) fn end_lending(&mut self) {
        for (guest, message) in self.guests.to_lend.drain(..) {
            self.shared.contexts.send_to(guest, message);
        }
        let is_idle = !self.stop && self.flights.iter().all(|flight| flight.dirty.is_empty());
        self.shared.contexts.set_idle(self.number, is_idle);
    }

    /// Others' bios: no more at a time than this context would have in flight of its own.
    pub(super) fn serve_lent(&mut self) {
        while let Some((inode, bio)) = self.guests.pending.pop_front() {
            let volume = self.know_volume(&inode);
            if !self.has_room(volume, Class::Background) {
                self.guests.pending.push_front((inode, bio));
                return;
            }
            let number = inode.target.0 as usize;
            if self.guests.files.len() <= number {
                self.guests.files.resize_with(number + 1, || None);
            }
            if self.guests.files[number].is_none() {
                self.backend.attach(inode.target, Arc::clone(&inode.file));
            }
            let guest = self.guests.files[number].get_or_insert(Guest { inode, in_flight: 0 });
            guest.in_flight += 1;
            self.submit(volume, bio);
        }
    }

    /// Whether these have ended for another context, and go back to it.
    pub(super) fn give_back(&mut self, ended: &[Ended]) -> bool {
        let target = ended[0].bio.target;
        let Some(place) = self.guests.files.get_mut(target.0 as usize) else { return false };
        let Some(guest) = place else { return false };
        let inode = Arc::clone(&guest.inode);
        debug_assert!(guest.in_flight as usize >= ended.len(), "a bio ends once");
        guest.in_flight -= ended.len() as u32;
        let flight = &mut self.flights[inode.volume.number()];
        ended.iter().for_each(|ended| flight.ended(ended));
        if guest.in_flight == 0 {
            *place = None;
            // Before it is told: its own context may let go of the file then, or hand it over to
            // this one.
            drop(self.backend.detach(target));
        }
        for Ended { bio, result } in ended {
            self.shared.contexts.take_back(self.number);
            let ended = Ended { bio: bio.clone(), result: *result };
            let context = inode.home.context();
            self.shared.contexts.send_to(context, Message::Returned(Arc::clone(&inode), ended));
        }
        true
    }

    /// Settles what has come back.
    pub(super) fn settle_returned(&mut self) {
        if self.guests.returned.is_empty() {
            return;
        }
        let now = self.backend.now();
        let returned = std::mem::take(&mut self.guests.returned);
        for of_file in returned.chunk_by(|one, next| one.bio.target == next.bio.target) {
            self.settle(of_file, now);
        }
        self.share_out();
        self.shared.finish(&mut self.after);
    }
}
