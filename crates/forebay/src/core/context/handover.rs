//! Files of a context, and their handover to another context. No write in flight is lost.
//!
//! ```text
//! old context: stops sending its bios -> all have ended -> Attach -> forwards late messages
//! new context:                                            Attach -> looks at the file
//! ```
//!
//! A file with a replaced descriptor is handed over to its own context in the same way. The ring
//! removes the old descriptor when no request uses it, and registers the new one.
//!
//! The file is locked while `Attach` is sent and its placement changes. (This is the only message
//! that is sent, and may wake a thread, under a file's lock.) So a sender that reads the new
//! placement sends after the `Attach`. The new context takes the lock to look at the file, and
//! finds the new placement.
//!
//! Messages only name files to look at, and bios of callers are independent of each other: a page
//! has one bio in flight at a time. So a forwarded message may arrive after later ones.

use std::sync::Arc;

use forebay_block::{Bio, Ended, Operation, Target};

use super::Writeback;
use super::agenda::AgendaReason;
use crate::core::context::flight::Flight;
use crate::core::context::placement::Affinity;
use crate::core::context::senders::Message;
use crate::core::inode::Inode;
use crate::core::lease::holds_lease;
use crate::core::limits::{GROUP_LOOK_BYTES, MESSAGES_PER_PASS};
use crate::core::table::AnyInode;

/// File that belongs to a context.
#[derive(Debug)]
pub(super) struct ContextFile {
    pub(super) inode: Arc<Inode>,
    /// Bios in flight.
    pub(super) in_flight: u32,
    /// Bytes written since the allocation group was last looked up.
    unlooked: u64,
    written_at: u64,
    /// The context that it moves to, if it belongs to another one.
    leaves_to: Option<usize>,
    /// Whether its descriptor was replaced, so that it is handed over even to the same context.
    is_renewing: bool,
    /// Bios of callers that arrived since then.
    waiting: Vec<Bio>,
}

impl ContextFile {
    fn new(inode: Arc<Inode>) -> Self {
        // The first write of a file without known blocks is looked up. The first after each
        // handover is not: a file in two groups would move with every run.
        let unlooked = if inode.placement.is_seen() { 0 } else { GROUP_LOOK_BYTES };
        Self {
            inode,
            in_flight: 0,
            unlooked,
            written_at: 0,
            leaves_to: None,
            is_renewing: false,
            waiting: Vec::new(),
        }
    }

    /// Returns the context that gets the file once nothing of it is in flight.
    fn goes_to(&self, here: usize) -> Option<usize> {
        self.leaves_to.or(self.is_renewing.then_some(here))
    }

    /// Counts completed bios.
    pub(super) fn end(&mut self, ended: &[Ended]) {
        let count = u32::try_from(ended.len()).expect("a file has fewer bios in flight than that");
        assert!(self.in_flight >= count, "a bio ends once");
        self.in_flight -= count;
        for Ended { bio, result } in ended {
            if let (Operation::Write | Operation::WriteFua | Operation::WriteBuffered, Ok(_)) =
                (bio.operation, result)
            {
                self.unlooked = self.unlooked.saturating_add(bio.length);
                self.written_at = bio.offset;
            }
        }
    }
}

impl Writeback {
    /// Adds a file to this context.
    pub(super) fn attach(&mut self, inode: Arc<Inode>) {
        if !inode.catch(|| inode.lock().service.attach()).unwrap_or(true) {
            return;
        }
        let number = inode.target.0 as usize;
        if self.files.len() <= number {
            self.files.resize_with(number + 1, || None);
        }
        // Checked in every build: otherwise ends of one file's bios would settle another one.
        assert!(self.files[number].is_none(), "a file is attached once");
        self.know_volume(&inode);
        // Looked at before: a descriptor that is replaced later is not the one registered here.
        let is_renewing = inode.catch(|| inode.lock().service.is_renewing()).unwrap_or_default();
        self.hold(&inode);
        // Opened, or handed over, while files were spread anew.
        self.place(&inode);
        let changed = inode.catch(|| {
            self.shared.change(&inode, |file| {
                if is_renewing {
                    file.service.end_renewing();
                    file.wake();
                }
                (file.cache.is_overdue(), file.cache.kept_pages() > 0)
            })
        });
        let (is_overdue, keeps) = changed.unwrap_or_default();
        if is_overdue {
            self.agenda.push(AgendaReason::Overdue, &inode);
        }
        if keeps {
            self.agenda.push(AgendaReason::Keeping, &inode);
        }
        self.look_at(inode);
    }

    /// Has the file's requests made here.
    fn hold(&mut self, inode: &Arc<Inode>) {
        self.backend.attach(inode.target, Arc::clone(&inode.file));
        self.files[inode.target.0 as usize] = Some(ContextFile::new(Arc::clone(inode)));
    }

    /// Returns the number of a file's file system, and makes sure that it has a flight.
    pub(super) fn know_volume(&mut self, inode: &Inode) -> usize {
        let volume = inode.volume.number();
        while self.flights.len() <= volume {
            self.flights.push(Flight::new(self.number, Arc::clone(&inode.volume), self.bound()));
        }
        // File systems may appear in another order than their numbers.
        self.flights[volume].volume = Arc::clone(&inode.volume);
        volume
    }

    /// Returns whether this context has the file.
    pub(super) fn has(&self, inode: &Arc<Inode>) -> bool {
        has(&self.files, inode)
    }

    /// Returns whether the file is to be handed over, so that nothing more of it is sent here. A
    /// flush of pages that it keeps is sent: callers may wait for their memory, and the file stays
    /// until requests in flight have ended in any case.
    pub(super) fn is_leaving(&self, inode: &Inode) -> bool {
        let held = self.files.get(inode.target.0 as usize).and_then(Option::as_ref);
        held.is_some_and(|held| held.goes_to(self.number).is_some())
    }

    /// Counts a bio of a file as in flight.
    pub(super) fn begin_bio(&mut self, target: Target) {
        let held =
            self.files[target.0 as usize].as_mut().expect("a file is attached while it is served");
        held.in_flight += 1;
    }

    /// Submits a bio of a caller. It waits if its file is being handed over, and is forwarded if
    /// the file has moved.
    pub(super) fn submit_or_hold(&mut self, inode: Arc<Inode>, bio: Bio) {
        if inode.is_interrupted() {
            // No caller waits for it, and its file may be closed with such bios pending.
            drop(bio);
        } else if !self.has(&inode) {
            // Also if the file has come back and its `Attach` is still among the messages: then the
            // bio goes behind that.
            self.shared.send(Message::Submit(inode, bio));
        } else if self.is_leaving(&inode) {
            let held = self.files[inode.target.0 as usize].as_mut().expect("it has it");
            held.waiting.push(bio);
        } else {
            self.begin_bio(inode.target);
            if bio.operation == Operation::Allocate {
                return self.reservations.make(&inode, bio);
            }
            let holds_lease = || holds_lease(&inode, &inode.lock());
            if Self::gives_back(&bio) && !inode.catch(holds_lease).unwrap_or(false) {
                return self.refuse(bio);
            }
            self.submit(inode.volume.number(), bio);
        }
    }

    /// Forwards a message about a file that is not here. The file may be closed, or belong to
    /// another context. Or it has come back, and its `Attach` will have it looked at.
    pub(super) fn send_on(&self, inode: Arc<Inode>, message: impl FnOnce(Arc<Inode>) -> Message) {
        debug_assert!(!self.has(&inode), "nobody would look at the file");
        let context = inode.placement.context();
        if context != self.number {
            self.shared.contexts.send_to(context, message(inode));
        }
    }

    /// Notes that the descriptor of a file was replaced.
    pub(super) fn renew(&mut self, inode: &Arc<Inode>) {
        let held = self.files[inode.target.0 as usize].as_mut().expect("it has it");
        held.is_renewing = true;
        self.agenda.push(AgendaReason::Moving, inode);
    }

    /// Finds the context of each file again, because files are spread anew.
    pub(super) fn place_all(&mut self) {
        self.set_bound();
        let inodes: Vec<_> =
            self.files.iter().flatten().map(|held| Arc::clone(&held.inode)).collect();
        inodes.iter().for_each(|inode| self.place(inode));
    }

    /// Finds the context that a file belongs to.
    pub(super) fn place(&mut self, inode: &Arc<Inode>) {
        let to = self.shared.contexts.place(&inode.placement, &inode.volume);
        let held = self.files[inode.target.0 as usize]
            .as_mut()
            .expect("a file is attached while it is placed");
        let to = (to != self.number).then_some(to);
        if std::mem::replace(&mut held.leaves_to, to).is_none() && to.is_some() {
            self.agenda.push(AgendaReason::Moving, inode);
        }
    }

    /// Has the allocation group of a file looked up again, once enough was written.
    pub(super) fn look_where_it_goes(&mut self, inode: &Arc<Inode>) {
        let contexts = &self.shared.contexts;
        let held = self.files[inode.target.0 as usize]
            .as_mut()
            .expect("a file is attached while it is served");
        if held.unlooked < GROUP_LOOK_BYTES
            || contexts.active() == 1
            || contexts.affinity() != Affinity::Group
        {
            return;
        }
        held.unlooked = 0;
        let offset = held.written_at;
        let (shared, inode) = (Arc::clone(&self.shared), Arc::clone(inode));
        let aside = Arc::clone(&inode.aside);
        aside.run(move || {
            if inode.placement.look(&inode.file, &inode.volume, offset) {
                shared.send(Message::Moved(inode));
            }
        });
    }

    /// Hands over files that belong elsewhere and have nothing in flight. Returns whether more is
    /// to be done at once.
    pub(super) fn hand_over(&mut self) -> bool {
        // While stopping, no other context may be left to take a file.
        if self.agenda.is_empty(AgendaReason::Moving) || self.stop {
            return false;
        }
        let (mut gone, mut stay, mut more) = (Vec::new(), Vec::new(), false);
        let mut moving = self.agenda.take(AgendaReason::Moving);
        moving.retain(|inode| {
            let held = self.files[inode.target.0 as usize]
                .as_mut()
                .expect("a file that moves is not closed here");
            match held.goes_to(self.number) {
                None => {
                    let waiting = held.waiting.drain(..).map(|bio| (Arc::clone(inode), bio));
                    self.pending.extend(waiting);
                    stay.push(Arc::clone(inode));
                    false
                }
                Some(_) if held.in_flight > 0 => true,
                Some(_) if gone.len() == MESSAGES_PER_PASS => {
                    more = true;
                    true
                }
                Some(to) => {
                    gone.push((Arc::clone(inode), to, std::mem::take(&mut held.waiting)));
                    self.files[inode.target.0 as usize] = None;
                    false
                }
            }
        });
        self.agenda.put_back(AgendaReason::Moving, moving);
        // A close may have been put off because they were to go.
        more |= !stay.is_empty();
        stay.iter().for_each(|inode| self.agenda.push(AgendaReason::Leaving, inode));
        if !gone.is_empty() {
            self.unlist_files_elsewhere();
        }
        for (inode, to, waiting) in gone {
            drop(self.backend.detach(inode.target));
            let contexts = &self.shared.contexts;
            let mut is_sent = false;
            let _ = inode.catch(|| {
                let mut state = inode.lock();
                state.service.unlist();
                contexts.send_to(to, Message::Attach(AnyInode::Cached(Arc::clone(&inode))));
                is_sent = true;
                inode.placement.set_context(to);
            });
            if !is_sent {
                // It stays, and is abandoned here. No caller waits for its bios.
                self.hold(&inode);
                continue;
            }
            for bio in waiting {
                self.shared.contexts.send_to(to, Message::Submit(Arc::clone(&inode), bio));
            }
            if to != self.number {
                crate::core::stats::Counters::add(&self.shared.counters.handovers, 1);
            }
        }
        self.share_out();
        more
    }

    /// Removes a file from the agenda, and from the dirty files if `is_listed`.
    pub(super) fn unlist(&mut self, inode: &Arc<Inode>, is_listed: bool) {
        if is_listed {
            self.flights[inode.volume.number()].dirty.retain(|listed| !Arc::ptr_eq(listed, inode));
        }
        self.agenda.remove(inode);
    }

    /// Removes files that this context does not have from the agenda and from the dirty files.
    pub(super) fn unlist_files_elsewhere(&mut self) {
        let Self { files, flights, agenda, .. } = self;
        let has = |inode: &Arc<Inode>| has(files, inode);
        for flight in flights {
            flight.in_turn = false;
            flight.dirty.retain(has);
        }
        agenda.retain_all(has);
    }
}

fn has(files: &[Option<ContextFile>], inode: &Arc<Inode>) -> bool {
    let held = files.get(inode.target.0 as usize).and_then(Option::as_ref);
    held.is_some_and(|held| Arc::ptr_eq(&held.inode, inode))
}
