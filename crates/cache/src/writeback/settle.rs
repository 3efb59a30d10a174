//! End of a bio: new states of its pages, and results for waiting callers.
//!
//! Settling only collects: freed frames, levels, bytes to be zeroed. The context applies all of it
//! once per run, so that a run of completions takes the lock of the free frames once and wakes each
//! waiter once.

use std::ops::Range;

use forebay_block::{Bio, Errno, Frame, Operation};

use crate::bits::{bits, parts, runs, slots};
use crate::file::{CachedFile, Entry};
use crate::limits::PAGE;
use crate::partial::{Partial, Rest};
pub use crate::settled::{Keep, Settled};
use crate::space::NO_SPACE;
use crate::ticket::{Failure, TicketId};
use crate::writeback::flight::{Carries, Flight, FlushStep, Pages};

/// Whether pages are sent again by themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Failing {
    /// Only when somebody asks, or time has passed: the device refused them.
    Yes,
    /// They are.
    No,
}

/// State of a clean page after a write of it that has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum IfClean {
    /// It is dirty: the device may have lost it.
    IsDirty,
    /// It stays clean.
    Stays,
}

impl CachedFile {
    /// Handles the end of a bio of this file.
    pub fn settle(
        &mut self,
        bio: &Bio,
        result: Result<u64, Errno>,
        keep: Keep,
        settled: &mut Settled,
    ) {
        let (target, flight) = Self::flight_of(bio);
        assert_eq!(target, self.target, "a bio comes back to its file");
        self.sizes.note_ended();
        // The request path sends the rest of a short request again, so a short result here is a
        // failure. A read may have reached the end of the file, which another program may have
        // moved. A device that ends before its end has shrunk.
        let is_whole = bio.operation.moves_bytes()
            && (bio.operation != Operation::Read || self.sizes.is_device());
        let result = match result {
            Ok(moved) if is_whole && moved < bio.length => Err(Errno::IO),
            other => other,
        };
        match self.flights.end(flight) {
            Flight::Pages(run) => self.settle_pages(&run, result, keep, settled),
            Flight::Tail { page, length } => {
                let mut run = Pages::starting_at(page);
                run.push(1, Carries::Data);
                if result.is_ok() {
                    self.sizes.note_written(page * PAGE + length);
                }
                self.sweep.end_drain();
                // The page that is appended to next stays, also if other pages are dropped.
                self.settle_run(&run, result, Keep::All, settled);
            }
            Flight::Exact { bytes } => self.settle_exact(&bytes, result, settled),
            Flight::Fill { pages, waited } => {
                self.settle_fill(flight, (pages, waited), result, settled);
            }
            Flight::Allocate(reservation) => match result {
                Ok(_) => self.reserved.add(reservation.bytes),
                Err(errno) => self.settle_unreserved(&reservation, errno),
            },
            Flight::Bypass => unreachable!("a caller's own write has no bio"),
            // Space that could not be given back is given back by the next open.
            Flight::GiveBack { .. } if result.is_err() => self.reserved.leave(),
            Flight::GiveBack { .. } | Flight::Punch => {}
            Flight::Flush { serves, step } => self.settle_flush(&serves, step, result, settled),
            Flight::Discard { ticket, pages } => {
                self.settle_discard(ticket, pages, result, settled);
            }
            Flight::SetLength { ticket, length } => {
                if result.is_ok() {
                    self.cut_or_grow(length, settled);
                }
                let reported = result.map(|_| ()).map_err(Failure::SetLength);
                self.tickets.finish(ticket, reported);
            }
        }
        if !self.has_tickets() && self.sweep.overdue().is_none() {
            // No ticket needs the end of the file. Callers that waited for it continue: the end of
            // this bio wakes them.
            self.sweep.end_drain();
        }
        self.verify_change();
    }

    /// Takes back a write of pages that was made and is not sent: the pages are dirty as before.
    ///
    /// # Panics
    /// If `bio` is no such write.
    pub fn take_back(&mut self, bio: &Bio, settled: &mut Settled) {
        let Flight::Pages(run) = self.flights.end(Self::flight_of(bio).1) else {
            panic!("only writes of pages are taken back: {bio:?}")
        };
        // Clean pages stay clean: nothing of them was sent.
        self.settle_unwritten(&run, Failing::No, IfClean::Stays, settled);
        self.verify_change();
    }

    /// Returns the number of tickets that have ended since the file was opened. It changes exactly
    /// when a new result can be fetched.
    #[must_use]
    pub fn finished_tickets(&self) -> u64 {
        self.tickets.finished()
    }

    pub(crate) fn retry_failing(&mut self) {
        if self.counts.failing() > 0 {
            for (_, chunk) in self.index.chunks_mut() {
                chunk.failing = 0;
            }
            self.counts.retry_failing();
        }
    }

    fn settle_pages(
        &mut self,
        run: &Pages,
        result: Result<u64, Errno>,
        keep: Keep,
        settled: &mut Settled,
    ) {
        if result.is_ok() {
            self.sizes.note_written((run.first + run.count) * PAGE);
        }
        if result.is_ok() && self.is_rewriting() {
            // It was on its way when a flush failed.
            self.flushes.note_direct();
            self.settle_unwritten(run, Failing::No, IfClean::IsDirty, settled);
        } else {
            self.settle_run(run, result, keep, settled);
        }
    }

    fn settle_run(
        &mut self,
        run: &Pages,
        result: Result<u64, Errno>,
        keep: Keep,
        settled: &mut Settled,
    ) {
        self.flushes.note_written();
        let was_alone = self.sweep.note_ended();
        if let Err(errno) = result {
            // On a nearly full file system requests in flight hold space for metadata that they do
            // not use in the end. A request that finds none beside others is sent again alone.
            let is_refused_beside_others = errno == NO_SPACE && !was_alone;
            if is_refused_beside_others {
                self.sweep.begin_alone();
                return self.settle_unwritten(run, Failing::No, IfClean::IsDirty, settled);
            }
            self.settle_unwritten(run, Failing::Yes, IfClean::IsDirty, settled);
            self.report_failure(run.first * PAGE, errno);
            return;
        }
        self.sweep.end_alone();
        if self.lease.is_exclusive() {
            self.flushes.note_unkept();
        }
        for (pages, carries) in run.parts() {
            for (page, slot, count) in parts(pages.clone()) {
                let (chunk, _) = self.index.get_mut(page).expect("a page in flight has a chunk");
                chunk.flight &= !bits(slot, count);
                match carries {
                    Carries::Data => self.settle_written(page, slot, count, keep, settled),
                    Carries::Clean => chunk.unpin(slot, count),
                    Carries::Zeroes => {}
                }
                self.index.tidy(page);
            }
        }
    }

    /// Pages that were sent must be sent again.
    fn settle_unwritten(
        &mut self,
        run: &Pages,
        failing: Failing,
        if_clean: IfClean,
        settled: &mut Settled,
    ) {
        self.flushes.note_written();
        for (pages, carries) in run.parts() {
            for page in pages.clone() {
                let (chunk, slot) = self.index.get_mut(page).expect("a page in flight has a chunk");
                chunk.flight &= !(1 << slot);
                match carries {
                    Carries::Data => self.settle_failed(page, failing, settled),
                    Carries::Clean => {
                        chunk.unpin(slot, 1);
                        if if_clean == IfClean::IsDirty {
                            self.dirty_again(page, failing, settled);
                        }
                    }
                    Carries::Zeroes => {}
                }
                self.index.tidy(page);
            }
        }
    }

    /// The device may have lost the bytes of a clean page. Under the lease memory still has them.
    fn dirty_again(&mut self, page: u64, failing: Failing, settled: &mut Settled) {
        if self.lease.is_shared() {
            return;
        }
        let epoch = self.epochs.current();
        let (chunk, slot) = self.index.get_mut(page).expect("a page in flight has a chunk");
        chunk.set_epoch(slot, epoch);
        chunk.logged &= !(1 << slot);
        settled.dirty_again.push((page, chunk.frame(slot).expect("a clean page has a frame")));
        self.index.mark_dirty(page);
        self.epochs.add(epoch, 1);
        self.counts.charge(1);
        settled.charged += 1;
        if failing == Failing::Yes {
            self.mark_failing(page);
        }
    }

    pub(crate) fn report_failure(&mut self, offset: u64, errno: Errno) {
        self.errors.note_write(offset, errno);
        self.tickets.fail_pages(Failure::Write { offset, errno });
        // Not again until somebody asks, or time has passed.
        self.sweep.end_overdue();
    }

    /// Pages of one chunk were written.
    fn settle_written(
        &mut self,
        page: u64,
        slot: usize,
        count: u32,
        keep: Keep,
        settled: &mut Settled,
    ) {
        let (chunk, _) = self.index.get_mut(page).expect("a page in flight has a chunk");
        let mask = bits(slot, count);
        let (own, touched) = (mask & chunk.sending, mask & !chunk.sending);
        let busy = chunk.busy;
        let is_shared = self.lease.is_shared();
        // Pages kept for a flush stay charged until then.
        let uncharged = if is_shared { touched } else { mask };
        self.counts.uncharge(uncharged.count_ones());
        settled.uncharged += u64::from(uncharged.count_ones());
        debug_assert_eq!(own & chunk.dirty, 0, "the version at the device is dirty");
        chunk.sending &= !mask;
        self.counts.end_unwritable((chunk.unwritable & mask).count_ones());
        chunk.unwritable &= !mask;
        for (slot, count) in runs(own) {
            let mut done = 0;
            while done < count {
                let (epoch, pages) = chunk.epochs_in_a_row(slot + done as usize, count - done);
                self.epochs.remove(epoch, pages as usize);
                done += pages;
            }
        }
        let first = page - slot as u64;
        if is_shared {
            settled.written.extend(chunk.frames_of(own));
            self.keep(first, mask);
            slots(own).for_each(|slot| self.keep_exact(first + slot as u64, false));
            slots(touched).for_each(|slot| self.keep_exact(first + slot as u64, true));
        } else {
            let goes = match keep {
                Keep::Nothing => own,
                Keep::Clean => chunk.uses.passing(own),
                Keep::All => 0,
            };
            let dropped = goes & chunk.idle_clean();
            let clean = own & !dropped;
            settled.written.extend(chunk.frames_of(clean));
            self.list_clean(first, clean, settled);
            self.drop_clean(first, dropped, settled);
        }
        for slot in slots(touched) {
            let page = first + slot as u64;
            let (frame, epoch) =
                self.odd.end_displaced(page).expect("a touched page has another frame");
            self.epochs.remove(epoch, 1);
            self.free_displaced(page, frame, busy & (1 << slot) != 0, settled);
        }
    }

    fn settle_failed(&mut self, page: u64, failing: Failing, settled: &mut Settled) {
        let displaced = self.odd.end_displaced(page);
        if let Some((frame, _)) = displaced {
            let (chunk, slot) = self.index.get(page).expect("a page in flight has a chunk");
            self.free_displaced(page, frame, chunk.busy & (1 << slot) != 0, settled);
            self.counts.uncharge(1);
            settled.uncharged += 1;
        }
        if displaced.is_some() {
            self.own_all(page);
        }
        let (chunk, slot) = self.index.get_mut(page).expect("a page in flight has a chunk");
        let bit = 1 << slot;
        if let Some((_, epoch)) = displaced {
            // The failed version is superseded. The current one stands for both.
            if chunk.dirty & bit != 0 {
                self.epochs.remove(chunk.epoch(slot), 1);
                chunk.set_epoch(slot, epoch);
            } else {
                // Its newer content is being copied right now, and will be published as of this
                // older epoch: until then a sync that covers it has to wait.
                self.odd.owe(page, epoch);
            }
            return;
        }
        debug_assert!(chunk.sending & bit != 0, "a page that was not sent has failed");
        chunk.sending &= !bit;
        if failing == Failing::Yes {
            self.mark_failing(page);
        }
        self.index.mark_dirty(page);
        if self.lease.is_shared() {
            // It may have been sent under the lease.
            self.claim(page);
        }
    }

    /// A page stays dirty that was to be written.
    pub(crate) fn mark_failing(&mut self, page: u64) {
        let (chunk, slot) = self.index.get_mut(page).expect("a dirty page has a chunk");
        let bit = 1 << slot;
        self.counts.fail(chunk.failing & bit != 0, chunk.unwritable & bit != 0);
        chunk.failing |= bit;
        chunk.unwritable |= bit;
    }

    /// Records that no dirty byte of a page is left that could not be written.
    pub(crate) fn end_failure(&mut self, page: u64) {
        let (chunk, slot) = self.index.get_mut(page).expect("a page that failed has a chunk");
        let bit = 1 << slot;
        self.counts.end_failing(u32::from(chunk.failing & bit != 0));
        self.counts.end_unwritable(u32::from(chunk.unwritable & bit != 0));
        chunk.failing &= !bit;
        chunk.unwritable &= !bit;
    }

    /// A copy from the old frame may be under way; then it stays until that is published.
    fn free_displaced(&mut self, page: u64, frame: Frame, is_busy: bool, settled: &mut Settled) {
        if is_busy {
            self.odd.park(page, frame);
        } else {
            settled.freed.push(frame);
        }
    }

    fn settle_fill(
        &mut self,
        flight: u32,
        (pages, waited): (Range<u64>, bool),
        result: Result<u64, Errno>,
        settled: &mut Settled,
    ) {
        let moved = |page: u64| {
            result.map(|moved| moved.saturating_sub((page - pages.start) * PAGE).min(PAGE))
        };
        let failing_before = self.counts.failing();
        for (page, slot, count) in parts(pages.clone()) {
            let first = page - slot as u64;
            let mut own = bits(slot, count);
            let apart = if self.odd.has_arriving() { own } else { 0 };
            for slot in slots(apart) {
                let page = first + slot as u64;
                if let Some(frame) = self.odd.end_arriving(flight, page) {
                    own &= !(1 << slot);
                    self.settle_arrived(flight, page, frame, moved(page), settled);
                }
            }
            if own == 0 {
                continue;
            }
            let (chunk, _) = self.index.get_mut(page).expect("a page being filled has a chunk");
            chunk.filling &= !own;
            match result {
                Ok(_) => {
                    chunk.present |= own;
                    for slot in slots(own) {
                        let page = first + slot as u64;
                        self.errors.take_unreadable(page);
                        if let Ok(filled @ ..PAGE) = moved(page) {
                            let frame = chunk.frame(slot).expect("a filled page has a frame");
                            settled.zero.push((frame, filled as usize));
                        }
                    }
                    let stale = self.lease.is_shared() && !waited;
                    let dropped = if stale { chunk.idle_clean() & own } else { 0 };
                    self.list_clean(first, own & !dropped, settled);
                    // Others may have written since, and nobody waits for it.
                    self.drop_clean(first, dropped, settled);
                }
                Err(errno) => {
                    settled.freed.extend(chunk.take_frames(own));
                    self.counts.end_unread(chunk.uses.forget(own));
                    // No reader waits for pages read ahead. The next reader reads them again, and
                    // gets the error then.
                    if page == pages.start && own & 1 << slot != 0 && waited {
                        self.errors.note_unreadable(page, errno);
                    }
                    self.index.tidy(page);
                }
            }
        }
        if let Err(errno) = result
            && self.counts.failing() > failing_before
        {
            self.report_failure(pages.start * PAGE, errno);
        }
    }

    /// The missing bytes of a page have arrived in a frame of their own.
    fn settle_arrived(
        &mut self,
        flight: u32,
        page: u64,
        frame: Frame,
        filled: Result<u64, Errno>,
        settled: &mut Settled,
    ) {
        let waits = |partial: &&mut Partial| partial.rest() == Rest::OnTheWay(flight);
        let Some(partial) = self.odd.partial_mut(page).filter(waits) else {
            // It was written in whole meanwhile.
            settled.freed.push(frame);
            return;
        };
        match filled {
            Ok(filled) => {
                self.errors.take_unreadable(page);
                let (chunk, slot) = self.index.get(page).expect("a partial page has a chunk");
                if chunk.busy & (1 << slot) != 0 {
                    partial.arrive(frame, filled as usize);
                } else {
                    self.make_whole(page, frame, filled as usize, settled);
                    let (chunk, slot) = self.index.get(page).expect("a whole page has a chunk");
                    // Kept for a flush that has ended meanwhile: the evictor does not know it.
                    let clean = chunk.idle_clean() & (1 << slot);
                    self.drop_clean(page - slot as u64, clean, settled);
                }
            }
            Err(errno) => {
                partial.fail(frame);
                self.errors.note_unreadable(page, errno);
                let (chunk, slot) = self.index.get(page).expect("a partial page has a chunk");
                // One that is being copied into for the first time is not dirty yet; of a shared
                // file what was written can be sent without the rest.
                if chunk.dirty & (1 << slot) != 0 && self.lease.is_exclusive() {
                    self.mark_failing(page);
                }
            }
        }
    }

    /// Begins a flush of the directory for several files together. Until it is settled, the file
    /// sends none: of two flushes of one descriptor the kernel reports an error to one. Returns
    /// false if the file needs none, or has begun one.
    pub fn begin_directory(&mut self) -> bool {
        let begins = self.flushes.entry() == Entry::New && !self.is_flushing();
        if begins {
            self.flushes.await_entry(true);
        }
        begins
    }

    /// Returns whether a flush of the file, or one of its directory, is in progress.
    pub(crate) fn is_flushing(&self) -> bool {
        self.flights.is_flushing() || self.flushes.is_entry_awaited()
    }

    /// Settles that flush; `None` if it was not made.
    pub fn settle_directory(&mut self, result: Option<Result<(), Errno>>, settled: &mut Settled) {
        self.flushes.await_entry(false);
        if let Some(result) = result
            && self.flushes.entry() == Entry::New
        {
            self.settle_flush(&[], FlushStep::Directory, result.map(|()| 0), settled);
        }
    }

    fn settle_flush(
        &mut self,
        serves: &[TicketId],
        step: FlushStep,
        result: Result<u64, Errno>,
        settled: &mut Settled,
    ) {
        match (result, step) {
            (Ok(_), FlushStep::Directory) => self.flushes.set_entry(Entry::Old),
            (Ok(_), FlushStep::File) => {
                self.end_flush(settled);
                for id in serves {
                    self.tickets.finish(*id, Ok(()));
                }
            }
            // Its tickets wait for the next flush.
            (Err(errno), FlushStep::File) if self.rewrite_kept(errno, settled) => {}
            // Also for a directory: the kernel reports a failed flush once, and the next one ends
            // well without the entry.
            (Err(errno), FlushStep::Directory | FlushStep::File) => self.poison(errno, settled),
        }
    }

    /// The file ends within a page from now on.
    fn cut_page(&mut self, page: u64, from: usize, settled: &mut Settled) {
        let Some((chunk, slot)) = self.index.get(page) else { return };
        let Some(frame) = chunk.frame(slot) else { return };
        if let Some(partial) = self.odd.partial_mut(page)
            && !partial.cut(from, self.lease.is_exclusive())
        {
            // No written byte is left.
            return self.drop_page(page, settled);
        }
        settled.zero.push((frame, from));
    }

    fn cut_or_grow(&mut self, length: u64, settled: &mut Settled) {
        if length < self.sizes.size() {
            self.drop_pages(length.div_ceil(PAGE)..u64::MAX, settled);
            if !length.is_multiple_of(PAGE) {
                self.cut_page(length / PAGE, (length % PAGE) as usize, settled);
            }
            // Space allocated for a write since the cut was made is there still.
            self.reserved.cut(length);
            self.holes.cut(length.div_ceil(PAGE));
        }
        let is_cut = length < self.sizes.size() && !length.is_multiple_of(PAGE);
        self.sizes.set_length(length);
        self.flushes.note_change();
        if is_cut {
            self.cut_exact(length / PAGE, settled);
        }
    }
}
