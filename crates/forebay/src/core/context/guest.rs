//! Lending: an idle context submits overwrites of another context's file.
//!
//! One file has one context. A file that is overwritten at the full rate of its device may be more
//! than one thread can submit. An overwrite needs no allocation, so it has no allocation group to
//! respect and causes no fragments. If its own context has no room for it, it may go through the
//! ring of an idle context.
//!
//! ```text
//! the file's context: gathers under the file's lock --Lent--> the idle one: its ring, its pace
//!                     settles in order, as its own  <---Returned-- when it has ended
//! ```
//!
//! The file's own context counts the bio as in flight, so the file is neither handed over nor
//! closed before the bio is back. By then the guest has removed the file from its ring.

use std::collections::VecDeque;
use std::sync::Arc;

use forebay_block::{Bio, Class, Device, Ended};
use forebay_cache::Reason;

use super::Writeback;
use crate::core::counters::Counters;
use crate::core::inode::{Inode, State};
use crate::core::limits::DIRECT_LEAVES;
use crate::core::message::Message;

/// File of another context with bios in this one.
#[derive(Debug)]
pub(super) struct Guest {
    inode: Arc<Inode>,
    in_flight: u32,
}

/// Lent bios of a context.
#[derive(Debug, Default)]
pub(super) struct Guests {
    /// Files of other contexts, by the number of their target.
    files: Vec<Option<Guest>>,
    /// Bios of other contexts that wait for room in the queue.
    pending: VecDeque<(Arc<Inode>, Bio)>,
    /// Bios lent in this pass, by the number of the borrowing context. They are sent when no file
    /// is locked.
    to_lend: Vec<(usize, Message)>,
    /// Own bios that have ended elsewhere.
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
    /// Lends overwrites of a file to idle contexts, because this one has no room. Returns the
    /// number of lent bios.
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
                // It fills a page first, or writes the end of the file. It is sent here, one beyond
                // the room.
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

    /// Sends lent bios, and publishes whether this context can take lent bios.
    pub(super) fn end_lending(&mut self) {
        for (guest, message) in self.guests.to_lend.drain(..) {
            self.shared.contexts.send_to(guest, message);
        }
        let is_idle = !self.stop && self.flights.iter().all(|flight| flight.dirty.is_empty());
        self.shared.contexts.set_idle(self.number, is_idle);
    }

    /// Submits lent bios of other contexts, within the same limits as its own.
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

    /// Returns whether these bios are lent ones. If so, sends them back to their context.
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
            // Before the messages: afterwards its own context may close the file, or hand it over
            // to this one.
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

    /// Settles own bios that were lent and have ended.
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
