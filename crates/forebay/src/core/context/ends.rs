//! Completions, which files settle in runs, and the closing of files without handles.
//!
//! Writes that are completed and held (`completion=delay`): the hold ends as soon as somebody waits
//! for one of them.
//!
//! Waiting for a held write are: a sync, a program that opens the file of a lease, a caller that
//! waits for a page or for the close, and a file that moves to another context. Writers that wait
//! for memory, for the dirty limit or for the pace of an uncached file wait for no page. They wait
//! for the hold, as the kernel's writers do.
//!
//! To remove the hold, remove its function, `State::is_held` and `State::awaits_pages`.
//!
//! Interrupted files: a panic ended a change of their state (contract 21). The context continues
//! without them.
//!
//! A step that serves one file runs in [`Writeback::step`]. A panic under that file's lock ends the
//! step and takes that file out of service. Any other panic continues and ends the engine. That
//! includes a panic while a request was passed to the queue, because all files share the queue.
//!
//! The file stays attached until its requests have ended and its last handle is closed.

use std::sync::Arc;

use forebay_block::knobs::Holding;
use forebay_block::{Device, Ended, Moment};

use crate::core::context::Writeback;
use crate::core::context::agenda::AgendaReason;
use crate::core::context::flight::Flight;
use crate::core::inode::Inode;
use crate::core::inode::change::After;
use crate::core::inode::settle::{Heard, Left, give_up, settle};
use crate::core::limits::{HELD_ONE_IN, HELD_PAGES, HOLD};
use crate::core::open::close::{detached, finish_closing};
use crate::core::space::look_after_allocations;

impl Writeback {
    /// Ends completed bios in order, and wakes their callers once. The room of a bio at the device
    /// is free when it is reaped; its pages are when it ends.
    pub(super) fn end_run(&mut self) {
        let reaped = self.queue.reap(&mut self.backend);
        for of_file in reaped.chunk_by(|one, next| one.bio.target == next.bio.target) {
            let target = of_file[0].bio.target;
            if !self.direct.owns(target) {
                let held = self.files[target.0 as usize].as_ref();
                let volume = &held.expect("a file in flight is attached").inode.volume;
                let flight = &mut self.flights[volume.number()];
                of_file.iter().for_each(|reaped| flight.ended(reaped));
            }
        }
        let is_reaped = !reaped.is_empty();
        self.queue.end(&mut self.ended);
        if !is_reaped && self.ended.is_empty() {
            return;
        }
        let now = self.backend.now();
        for flight in &mut self.flights {
            flight.look(now);
        }
        if self.ended.is_empty() {
            return;
        }
        let mut ended = std::mem::take(&mut self.ended);
        for of_file in ended.chunk_by(|one, next| one.bio.target == next.bio.target) {
            let target = of_file[0].bio.target;
            if self.direct.owns(target) {
                of_file
                    .iter()
                    .for_each(|ended| self.direct.end(ended, &mut self.backend, &self.shared));
                continue;
            }
            let inode = self.settle(of_file, now);
            self.look_where_it_goes(&inode);
        }
        assert!(self.ended.is_empty(), "ends of bios would be forgotten");
        ended.clear();
        self.ended = ended;
        self.share_out();
        self.shared.counters.set_queue(self.number, self.queue.counters(), self.queue.held());
        self.shared.load.note(self.number, now, &mut self.next_note);
        self.shared.follow_load(now, &self.running);
        self.direct.wake();
        self.shared.finish(&mut self.after);
    }

    /// Settles completed bios of a file of this context.
    pub(super) fn settle(&mut self, of_file: &[Ended], now: Moment) -> Arc<Inode> {
        let target = of_file[0].bio.target;
        debug_assert!(
            of_file.iter().all(|ended| ended.bio.target == target),
            "bios of several files"
        );
        let held = self.files[target.0 as usize].as_mut().expect("a file in flight is attached");
        held.end(of_file);
        let inode = Arc::clone(&held.inode);
        let left = self.step(&inode, Left::NOTHING, |context| {
            look_after_allocations(&inode, &context.shared, of_file);
            settle(&inode, &context.shared, of_file, now, &mut context.after)
        });
        self.agenda.push(AgendaReason::Leaving, &inode);
        self.note_left(&inode, left);
        inode
    }

    /// Reports failures that no caller waits for, and closes files without handles.
    pub(super) fn release(&mut self) {
        for inode in self.agenda.take(AgendaReason::Leaving) {
            let looked = inode.catch(|| {
                let mut state = inode.lock();
                (state.cache.take_lost(), state.is_busy())
            });
            // An interrupted file is abandoned first, and comes here again.
            let Some((lost, busy)) = looked else { continue };
            for failure in lost {
                self.shared.report(&inode.failure(failure));
            }
            if !busy && !self.awaits_interrupted(&inode) {
                self.close_unused(&inode);
            }
        }
    }

    /// Detaches a file without handles and has it closed by the aside, because a file system may
    /// block there. Meanwhile the table marks the file as being closed, and opens of the same file
    /// wait.
    fn close_unused(&mut self, inode: &Arc<Inode>) {
        if self.is_leaving(inode) {
            // Its next context checks it.
            return;
        }
        let mut table = self.shared.table();
        if self.shared.is_left() {
            // Its unwritten data is not lost: the keeper writes it.
            return;
        }
        // The last handle may have asked for something between the first check and the drop.
        let is_busy = inode.catch(|| inode.lock().is_busy());
        if is_busy.unwrap_or(true) || !table.begin_closing(inode) {
            return;
        }
        let look = || {
            let state = inode.lock();
            (state.cache.entry(), state.account.generation(), state.service.is_listed())
        };
        // It is closed in any case; a panic leaves these three as they are.
        let (entry, generation, is_listed) = inode.catch(look).unwrap_or_else(look);
        table.keep_entry(inode.identity, entry);
        drop(table);
        drop(self.backend.detach(inode.target));
        let held = self.files[inode.target.0 as usize].take();
        // Checked in every build: otherwise the device would use memory that others have by then.
        assert!(held.is_some_and(|held| held.in_flight == 0), "closed with bios in flight");
        detached(inode, &self.shared, &mut After::default());
        self.unlist(inode, is_listed);
        let (shared, closing) = (Arc::clone(&self.shared), Arc::clone(inode));
        inode.aside.run(move || finish_closing(&closing, &shared, generation));
    }
}

impl Writeback {
    /// Decides whether completed writes are held, if that depends on the writers
    /// (`completion=throttled`): each end frees room for few of those that wait for the dirty
    /// limit, and costs wakes.
    pub(super) fn hold_if_throttled(&mut self) {
        if self.knobs.queue.holding == Holding::Throttled {
            let most = self.shared.level.limit() / HELD_ONE_IN;
            let is_fast = |flight: &Flight| {
                let per_hold = |rate: u64| rate / (1_000_000 / HOLD.as_micros() as u64);
                let pages = flight.volume.share.rate().map_or(0, per_hold);
                (HELD_PAGES..=most).contains(&pages)
            };
            let holds = self.shared.level.has_waiters() && self.flights.iter().any(is_fast);
            self.queue.set_holding(if holds { Holding::Delay(HOLD) } else { Holding::Immediate });
        }
    }

    /// Ends the hold if somebody waits for a held write. Marks the files of held writes, so that a
    /// caller that waits for their pages from now on wakes this context.
    pub(super) fn end_awaited_hold(&mut self) {
        let held = self.queue.held_bios();
        if held.is_empty() {
            return;
        }
        let mut is_awaited = self.stop || self.shared.is_left();
        for of_file in held.chunk_by(|one, next| one.bio.target == next.bio.target) {
            let file = self.files[of_file[0].bio.target.0 as usize].as_ref();
            let inode = &file.expect("a file in flight is attached").inode;
            let awaits = inode.catch(|| {
                let mut state = inode.lock();
                state.service.hold();
                state.awaits_settling() || inode.is_close_awaited()
            });
            is_awaited |= awaits.unwrap_or(true) || self.is_leaving(inode);
        }
        if is_awaited {
            self.queue.end_hold();
        }
    }
}

impl Writeback {
    /// Runs a step of one file. Returns its result, or `otherwise` if a panic under the file's lock
    /// ended it.
    pub(super) fn step<T>(
        &mut self,
        inode: &Inode,
        otherwise: T,
        run: impl FnOnce(&mut Self) -> T,
    ) -> T {
        // Effects of other files' steps are set aside: they are complete. Both keep their memory,
        // so nothing is allocated here.
        std::mem::swap(&mut self.after, &mut self.after_others);
        let ran = inode.catch(|| run(self));
        assert!(!self.is_submitting, "a panic interrupted a change of the queue");
        std::mem::swap(&mut self.after, &mut self.after_others);
        if ran.is_none() {
            self.after_others.forget_frames();
        }
        self.after.append(&mut self.after_others);
        ran.unwrap_or(otherwise)
    }

    /// Takes an interrupted file out of service: gives up its counts, wakes its callers, and
    /// reports it if none of them waits for a sync.
    pub(super) fn abandon(&mut self, inode: &Arc<Inode>) {
        let heard = give_up(inode, &self.shared, &mut self.after);
        if heard.is_some() {
            self.unlist(inode, true);
            if self.is_leaving(inode) {
                // Its next context closes it.
                self.agenda.push(AgendaReason::Moving, inode);
            }
            // The file counts as shared from now on: nothing is written under the lease.
            inode.file.release_lease();
        }
        self.shared.finish(&mut self.after);
        if heard == Some(Heard::No) {
            self.shared.report(&inode.interrupted());
        }
        self.agenda.push(AgendaReason::Leaving, inode);
    }

    /// Returns whether requests of an interrupted file are still at the device.
    pub(super) fn awaits_interrupted(&self, inode: &Inode) -> bool {
        let held = self.files.get(inode.target.0 as usize).and_then(Option::as_ref);
        inode.is_interrupted() && held.is_some_and(|held| held.in_flight > 0)
    }
}
