//! Order of the bios that a context sends: callers' own bios, syncs and other waits, pages that are
//! too old, background writeback.

use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_block::{Bio, Class, Device, Ended, Errno, Operation};
use forebay_cache::Reason;
use forebay_cache::limits::{PAGE, UNCACHED_PAGES};

use super::Writeback;
use super::agenda::AgendaReason;
use crate::core::context::flight::{Flight, free_slots};
use crate::core::direct::turns::Room;
use crate::core::inode::state::State;
use crate::core::inode::{Inode, Locked};
use crate::core::lease::{begin_break, holds_lease};
use crate::core::limits::{CLEAN_TICKS, DIRECT_LEAVES, FEW_ONE_IN, RUN_PER_FILE, TICKS_PER_AGE};
use crate::core::stats::Counters;
use crate::core::user_code;
use crate::platform::clock;

impl Writeback {
    /// Submits bios made by callers.
    pub(super) fn serve_callers(&mut self) {
        while self.queue.room() > 0
            && let Some((inode, bio)) = self.pending.pop_front()
        {
            self.submit_or_hold(inode, bio);
        }
        while self.queue.room() > 0 {
            let room = if self.queue.room() > DIRECT_LEAVES { Room::ForAll } else { Room::ForFew };
            let Some(bio) = self.direct.next_bio(room) else { break };
            self.queue.submit(bio);
        }
    }

    /// Serves files with waiting callers. The file with the fewest dirty pages comes first, so that
    /// a small sync beside a bulk one stays short.
    pub(super) fn serve_waited(&mut self) {
        let mut waited = self.agenda.take(AgendaReason::Waited);
        waited.sort_by_cached_key(|inode| inode.catch(|| inode.lock().cache.dirty_pages()));
        waited.retain(|inode| {
            let waits = self.step(inode, false, |context| context.serve_sync(inode));
            if !waits {
                self.agenda.push(AgendaReason::Leaving, inode);
            }
            waits
        });
        self.agenda.put_back(AgendaReason::Waited, waited);
        self.shared.finish(&mut self.after);
    }

    /// Sends bios that a file's tickets wait for, as far as there is room. Returns whether a ticket
    /// still waits.
    fn serve_sync(&mut self, inode: &Arc<Inode>) -> bool {
        let is_leaving = self.is_leaving(inode);
        let mut state = self.lock_to_serve(inode);
        if state.syncing.is_led() {
            // The leader sends a message if the context has to do the rest.
            return false;
        }
        // Each file has at least one bio in flight, however much the others have to write.
        let volume = inode.volume.number();
        while !is_leaving
            && self.shared.may_change(&state)
            && self.queue.room() > 0
            && (!state.cache.in_flight() || self.has_room(volume, Class::Waited))
        {
            let Some(bio) = state.cache.next_bio(Reason::Sync) else { break };
            self.send(inode, &mut state, bio);
        }
        // Wakes callers whose tickets have ended.
        inode.change_locked(&self.shared, &mut state, &mut self.after, |_| ());
        state.cache.has_tickets()
    }

    /// Writes pages that are too old. Checks for them a few times per `dirty_age`.
    pub(super) fn tick(&mut self) {
        let is_clean = self.flights.iter().all(|flight| flight.dirty.is_empty());
        if !is_clean {
            self.clean_ticks = 0;
        } else if self.next_tick.is_none() || self.clean_ticks == CLEAN_TICKS {
            self.next_tick = None;
            return;
        }
        let now = clock::instant();
        let tick = self.knobs.dirty_age / TICKS_PER_AGE;
        if now >= *self.next_tick.get_or_insert(now + tick) {
            self.next_tick = Some(now + tick);
            self.attach_all();
            self.clean_ticks += u32::from(is_clean);
            self.age(now, self.knobs.dirty_age);
        }
        self.serve_overdue();
    }

    /// Sends overdue pages as far as there is room. Looks at no more files than that: it is called
    /// for each end of a request, and many files may be overdue.
    fn serve_overdue(&mut self) {
        let mut left = Vec::new();
        for _ in 0..self.agenda.count(AgendaReason::Overdue) {
            let Some(inode) = self.agenda.pop(AgendaReason::Overdue) else { break };
            let has_room = self.has_room(inode.volume.number(), Class::Background);
            let is_overdue = !has_room
                || self.step(&inode, false, |context| {
                    let mut state = context.lock_to_serve(&inode);
                    context.serve(&inode, &mut state, Reason::Periodic, usize::MAX);
                    state.cache.is_overdue()
                });
            if is_overdue {
                left.push(inode);
            }
            if !has_room && !self.has_room_anywhere() {
                break;
            }
        }
        self.agenda.put_first(AgendaReason::Overdue, left);
    }

    /// Writes uncached pages at any level, so that they take little memory.
    pub(super) fn serve_uncached(&mut self) {
        let mut uncached = self.agenda.take(AgendaReason::Uncached);
        uncached.retain(|inode| {
            self.step(inode, false, |context| {
                let mut state = context.lock_to_serve(inode);
                while state.cache.unsent_pages() >= UNCACHED_PAGES / 2
                    && context.serve(inode, &mut state, Reason::Uncached, 1) > 0
                {}
                // With requests in flight, the file is looked at again when they have ended.
                state.cache.unsent_pages() >= UNCACHED_PAGES / 2 && state.cache.in_flight()
            })
        });
        self.agenda.put_back(AgendaReason::Uncached, uncached);
    }

    /// Makes files overdue that have been dirty for `age`.
    fn age(&mut self, now: Instant, age: Duration) {
        for volume in 0..self.flights.len() {
            let mut dirty = std::mem::take(&mut self.flights[volume].dirty);
            dirty.retain(|inode| {
                self.step(inode, false, |context| context.age_file(inode, now, age))
            });
            debug_assert!(
                self.flights[volume].dirty.is_empty(),
                "nothing becomes dirty by its age"
            );
            self.flights[volume].dirty = dirty;
        }
    }

    /// Makes one file overdue if it has been dirty for `age`. Returns whether it is dirty.
    fn age_file(&mut self, inode: &Arc<Inode>, now: Instant, age: Duration) -> bool {
        let mut state = inode.lock();
        if !state.cache.is_dirty() {
            state.service.became_clean();
            inode.change_locked(&self.shared, &mut state, &mut self.after, |file| {
                file.give_back_unused();
            });
            return false;
        }
        if state.service.is_overdue(now, age) {
            state.cache.age();
            self.agenda.push(AgendaReason::Overdue, inode);
        }
        true
    }

    /// Writes pages out while there are more than the background level.
    pub(super) fn serve_background(&mut self) {
        let mut wakers = Vec::new();
        self.shared.level.take_back(|| self.backend.now(), &mut wakers);
        user_code::wake_all(wakers);
        for volume in 0..self.flights.len() {
            self.serve_volume(volume);
        }
        let awaited = self.shared.level.has_waiters() || self.shared.pool.has_waiting();
        if awaited && self.is_at_rest() {
            // Nothing is in flight, and yet callers wait. Either idle files hold unused credit, or
            // all dirty pages are ends of files, which otherwise wait for their age.
            self.shared.collect_unused();
            self.age(clock::instant(), Duration::ZERO);
            self.serve_overdue();
        }
    }

    /// Writes pages of one file system, from one file after the other.
    fn serve_volume(&mut self, volume: usize) {
        // A file returns `None` once at the end of a sweep, so each is asked twice before all count
        // as idle.
        let mut idle = 0;
        // Most dirty pages of a file that waits for something in flight.
        let mut waiting = 0;
        while idle < 2 * self.flights[volume].dirty.len()
            && self.shared.level.wants_writeback(&self.flights[volume].volume)
            && self.has_room(volume, Class::Background)
        {
            if idle == 0 && !self.flights[volume].in_turn {
                self.flights[volume].bring_dirtiest_forward();
            }
            let Some(inode) = self.flights[volume].dirty.pop_front() else { break };
            let (sent, is_dirty) = self.step(&inode, (0, false), |context| {
                let mut state = context.lock_to_serve(&inode);
                let pages = state.cache.dirty_pages();
                if pages * FEW_ONE_IN < waiting && !context.is_at_rest() {
                    return (0, true);
                }
                let sent = context.serve(&inode, &mut state, Reason::Background, RUN_PER_FILE);
                waiting = if sent > 0 { 0 } else { waiting.max(pages) };
                let is_dirty = state.cache.is_dirty();
                if !is_dirty {
                    state.service.became_clean();
                }
                (sent, is_dirty)
            });
            idle = if sent > 0 { 0 } else { idle + 1 };
            // Its turn continues: a file swept in one go is as dense as possible.
            let in_turn =
                is_dirty && (sent == RUN_PER_FILE || !self.has_room(volume, Class::Background));
            let flight = &mut self.flights[volume];
            flight.in_turn = in_turn;
            match (is_dirty, in_turn) {
                (true, true) => flight.dirty.push_front(inode),
                (true, false) => flight.dirty.push_back(inode),
                (false, _) => {}
            }
        }
    }

    /// Returns whether nothing is under way whose end would let this context do more.
    fn is_at_rest(&self) -> bool {
        self.queue.on_their_way() == 0 && self.reservations.is_idle()
    }

    /// Sends up to `most` bios of a file, as far as there is room. Returns their number.
    fn serve(
        &mut self,
        inode: &Arc<Inode>,
        state: &mut State,
        reason: Reason,
        most: usize,
    ) -> usize {
        if self.is_leaving(inode) || !self.shared.may_change(state) {
            return 0;
        }
        let mut sent = 0;
        while self.has_room(inode.volume.number(), Class::Background) {
            let Some(bio) = self.next_bio(inode, state, reason) else { return sent };
            self.send(inode, state, bio);
            sent += 1;
            if sent == most {
                return sent;
            }
        }
        sent
    }

    /// Returns the next bio of a file for background work. Tickets may end meanwhile, such as one
    /// to extend a shared file, and their callers continue.
    pub(super) fn next_bio(
        &mut self,
        inode: &Arc<Inode>,
        state: &mut State,
        reason: Reason,
    ) -> Option<Bio> {
        let finished = state.cache.finished_tickets();
        let bio = state.cache.next_bio(reason);
        if state.cache.finished_tickets() != finished {
            inode.change_locked(&self.shared, state, &mut self.after, |_| ());
        }
        bio
    }

    /// Locks a file to send bios of it, and sets the limits of its cache. Zeroes over holes take
    /// space, which may be promised to others on a nearly full file system.
    fn lock_to_serve<'a>(&self, inode: &'a Inode) -> Locked<'a> {
        let gaps = inode.volume.gaps(&inode.file, self.shared.level.dirty() * PAGE);
        let mut state = inode.lock();
        state.cache.set_gaps(gaps);
        inode.volume.configure(&mut state.cache);
        state
    }

    /// Returns whether more requests of a class may be in flight to a file system.
    pub(super) fn has_room(&mut self, volume: usize, class: Class) -> bool {
        let free = free_slots(&self.flights, class);
        let flight = &mut self.flights[volume];
        let syncs = flight.volume.has_small_syncs().then(|| flight.volume.beside_flush());
        flight.pace.set_syncs(syncs);
        self.queue.room() > 0 && flight.pace.has_room(class, free)
    }

    /// Returns whether background requests may be sent to some file system.
    fn has_room_anywhere(&self) -> bool {
        let free = free_slots(&self.flights, Class::Background);
        let has_room = |flight: &Flight| flight.pace.would_have_room(Class::Background, free);
        self.queue.room() > 0 && self.flights.iter().any(has_room)
    }

    /// Returns whether a caller that waits for room or frames could let this context do more now.
    /// It has dirty files, and room in a flight to them or no request in flight that would wake
    /// it; or files that it has not attached; or pages to flush, and nothing in flight.
    pub(super) fn could_make_room(&self) -> bool {
        let free = free_slots(&self.flights, Class::Background);
        let is_idle = self.queue.on_their_way() == 0;
        let keeps = is_idle && !self.agenda.is_empty(AgendaReason::Keeping);
        keeps
            || !self.young.is_empty()
            || self.flights.iter().any(|Flight { dirty, pace, .. }| {
                !dirty.is_empty()
                    && (pace.requests() == 0 || pace.would_have_room(Class::Background, free))
            })
    }

    /// Sends a bio that the cache of a file has made.
    pub(super) fn send(&mut self, inode: &Arc<Inode>, state: &mut State, bio: Bio) {
        // Checked in every build: otherwise bytes of another file would be overwritten.
        assert_eq!(bio.target, inode.target, "a bio goes to the file that made it");
        let (writes_more, clean_pages) = state.cache.writes_more(&bio);
        if writes_more && !holds_lease(inode, state) {
            // Another program may have written there.
            inode.change_locked(&self.shared, state, &mut self.after, |file| {
                file.apply(|cache, settled| cache.take_back(&bio, settled));
                begin_break(file);
            });
            return;
        }
        if clean_pages > 0 {
            Counters::add(&self.shared.counters.clean_bytes, clean_pages * PAGE);
        }
        self.begin_bio(bio.target);
        if bio.operation == Operation::Allocate {
            return self.reservations.make(inode, bio);
        }
        if Self::gives_back(&bio) && !holds_lease(inode, state) {
            return self.refuse(bio);
        }
        if matches!(bio.operation, Operation::FlushData | Operation::FlushAll) {
            Counters::add(&self.shared.counters.flushes, 1);
            state.samples.flush_begins();
        }
        let State { cache, account, .. } = &mut *state;
        account.report_sent(cache, &bio);
        self.submit(inode.volume.number(), bio);
    }

    /// Returns whether a bio gives space back that only we may have used, which takes the lease.
    pub(super) fn gives_back(bio: &Bio) -> bool {
        bio.operation == Operation::Punch
            || bio.operation == Operation::SetLength && bio.class == Class::Background
    }

    /// Ends a bio that gives space back without the lease: other programs may have written there.
    pub(super) fn refuse(&mut self, bio: Bio) {
        self.ended.push(Ended { bio, result: Err(Errno(libc::EAGAIN)) });
    }

    pub(super) fn submit(&mut self, volume: usize, bio: Bio) {
        assert!(!self.is_submitting, "a bio would go to the device before an earlier one");
        self.is_submitting = true;
        let flight = &mut self.flights[volume];
        flight.sent(&bio, || self.backend.now());
        self.shared.counters.note_flight(flight.pace.requests_of(Class::Background));
        self.queue.submit(bio);
        self.is_submitting = false;
    }
}
