//! What the end of a bio does to its pages and to those who wait.
//!
//! Settling only collects: freed frames, levels, what has to be zeroed. The context hands all of it on once per
//! run, so that a run of completions costs one lock of the free frames and wakes each waiter once.

use forebay_block::{Bio, Errno, Frame, Operation};

use crate::file::{CachedFile, Entry, Liberties, Reserving};
use crate::limits::PAGE;
use crate::ticket::{Failure, TicketId};
use crate::writeback::flight::{Carries, Flight, FlushStep, Pages};

/// What a run of completions changed.
#[derive(Debug, Default)]
pub struct Settled {
    /// Frames that are free again.
    pub freed: Vec<Frame>,
    /// Frames that stay, and whose content the device has now.
    pub written: Vec<Frame>,
    /// Pages that no longer count as dirty.
    pub uncharged: u64,
    /// Frames of which the bytes from here on have to be zeroed, before anybody sees them: under the same lock.
    pub zero: Vec<(Frame, usize)>,
}

/// Whether written pages stay as clean ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    /// There is room for them.
    Clean,
    /// There is not.
    Nothing,
}

impl CachedFile {
    /// A bio of this file has ended.
    pub fn settle(&mut self, bio: &Bio, result: Result<u64, Errno>, keep: Keep, settled: &mut Settled) {
        let (target, flight) = Self::flight_of(bio);
        assert_eq!(target, self.target, "a bio comes back to its file");
        let keep = if self.liberties == Liberties::Exclusive { keep } else { Keep::Nothing };
        // A write that ended short was sent again by the request path; less than all of it here is a failure.
        let result = match result {
            Ok(moved)
                if bio.operation.moves_bytes() && bio.operation != Operation::Read && moved < bio.length =>
            {
                Err(Errno(5))
            }
            other => other,
        };
        match self.flights.end(flight) {
            Flight::Pages(run) => self.settle_pages(&run, result, keep, settled),
            Flight::Tail { page, length } => {
                let mut run = Pages::starting_at(page);
                run.push(Carries::Data);
                if result.is_ok() {
                    self.disk_size = self.disk_size.max(page * PAGE + length);
                }
                self.draining = false;
                // The page that is appended to next stays, whatever else has to go.
                let keep = if self.liberties == Liberties::Exclusive { Keep::Clean } else { keep };
                self.settle_run(&run, result, keep, settled);
            }
            Flight::Fill { pages } => self.settle_fill(pages.start..pages.end, result, settled),
            Flight::Allocate { bytes } => match result {
                Ok(_) => self.space.add(bytes),
                // Data can still be written without; whether there is room for it, the write will tell.
                Err(_) => self.reserving = Reserving::Off,
            },
            // Space that could not be given back is given back by the next open.
            Flight::Punch | Flight::GiveBack => {}
            Flight::Flush { serves, step } => self.settle_flush(&serves, step, result),
            Flight::SetLength { ticket, length } => {
                if result.is_ok() {
                    self.cut_or_grow(length, settled);
                }
                let told = result.map(|_| ()).map_err(Failure::SetLength);
                self.tickets.finish(ticket, told);
            }
        }
        if !self.has_tickets() && self.overdue.is_none() {
            // Nobody wants the end of the file any more: who was held up for it goes on, and is woken by this.
            self.draining = false;
        }
    }

    /// How many tickets have ended since the file was opened: changes exactly when somebody can fetch a result.
    #[must_use]
    pub fn finished_tickets(&self) -> u64 {
        self.tickets.finished()
    }

    pub(crate) fn retry_failing(&mut self) {
        if self.failing_pages > 0 {
            for (_, chunk) in self.index.chunks_mut() {
                chunk.failing = 0;
            }
            self.failing_pages = 0;
        }
    }

    fn settle_pages(&mut self, run: &Pages, result: Result<u64, Errno>, keep: Keep, settled: &mut Settled) {
        if result.is_ok() {
            self.disk_size = self.disk_size.max((run.first + run.count) * PAGE);
        }
        self.settle_run(run, result, keep, settled);
    }

    fn settle_run(&mut self, run: &Pages, result: Result<u64, Errno>, keep: Keep, settled: &mut Settled) {
        self.unflushed = true;
        for (page, carries) in run.pages() {
            let (chunk, slot) = self.index.get_mut(page).expect("a page in flight has a chunk");
            chunk.flight &= !(1 << slot);
            if carries == Carries::Data {
                match result {
                    Ok(_) => self.settle_written(page, keep, settled),
                    Err(_) => self.settle_failed(page, settled),
                }
            }
            self.index.tidy(page);
        }
        if let Err(errno) = result {
            let offset = run.first * PAGE;
            self.write_error = Some((offset, errno));
            self.error_sequence += 1;
            self.tickets.fail_pages(Failure::Write { offset, errno });
            // Not again until somebody asks, or time has passed.
            self.overdue = None;
        }
    }

    fn settle_written(&mut self, page: u64, keep: Keep, settled: &mut Settled) {
        self.charged -= 1;
        settled.uncharged += 1;
        if let Some((frame, epoch)) = self.displaced.remove(&page) {
            self.epochs.remove(epoch);
            self.free_displaced(page, frame, settled);
            return;
        }
        let (chunk, slot) = self.index.get_mut(page).expect("a page in flight has a chunk");
        chunk.sending &= !(1 << slot);
        self.epochs.remove(chunk.epoch(slot));
        if keep == Keep::Nothing && chunk.is_idle_clean(slot) {
            chunk.present &= !(1 << slot);
            settled.freed.extend(chunk.take_frame(slot));
        } else {
            settled.written.extend(chunk.frame(slot));
            self.list_clean(page);
        }
    }

    fn settle_failed(&mut self, page: u64, settled: &mut Settled) {
        let displaced = self.displaced.remove(&page);
        if let Some((frame, _)) = displaced {
            self.free_displaced(page, frame, settled);
            self.charged -= 1;
            settled.uncharged += 1;
        }
        let (chunk, slot) = self.index.get_mut(page).expect("a page in flight has a chunk");
        let bit = 1 << slot;
        if let Some((_, epoch)) = displaced {
            // What failed is superseded; the page as it is now stands for both.
            if chunk.dirty & bit != 0 {
                self.epochs.remove(chunk.epoch(slot));
                chunk.set_epoch(slot, epoch);
            } else {
                // Its newer content is being copied right now, and will be published as of this older epoch: until
                // then a sync that covers it has to wait.
                self.owed.insert(page, epoch);
            }
            return;
        }
        chunk.sending &= !bit;
        chunk.failing |= bit;
        self.failing_pages += 1;
        self.index.mark_dirty(page);
    }

    /// A copy from the old frame may be under way; then it stays until that is published.
    fn free_displaced(&mut self, page: u64, frame: Frame, settled: &mut Settled) {
        let (chunk, slot) = self.index.get_mut(page).expect("a page in flight has a chunk");
        if chunk.busy & (1 << slot) != 0 {
            self.parked.insert(page, frame);
        } else {
            settled.freed.push(frame);
        }
    }

    fn settle_fill(
        &mut self,
        pages: std::ops::Range<u64>,
        result: Result<u64, Errno>,
        settled: &mut Settled,
    ) {
        for page in pages.clone() {
            let (chunk, slot) = self.index.get_mut(page).expect("a page being filled has a chunk");
            chunk.filling &= !(1 << slot);
            match result {
                Ok(moved) => {
                    chunk.present |= 1 << slot;
                    self.fill_errors.remove(&page);
                    let filled = moved.saturating_sub((page - pages.start) * PAGE).min(PAGE);
                    if filled < PAGE {
                        let frame = chunk.frame(slot).expect("a filled page has a frame");
                        settled.zero.push((frame, filled as usize));
                    }
                    self.list_clean(page);
                }
                Err(errno) => {
                    settled.freed.extend(chunk.take_frame(slot));
                    if page == pages.start {
                        self.fill_errors.insert(page, errno);
                    }
                    self.index.tidy(page);
                }
            }
        }
    }

    fn settle_flush(&mut self, serves: &[TicketId], step: FlushStep, result: Result<u64, Errno>) {
        match (result, step) {
            (Ok(_), FlushStep::Directory) => self.entry = Entry::Old,
            (Ok(_), FlushStep::File) => {
                for id in serves {
                    self.tickets.finish(*id, Ok(()));
                }
            }
            // Of a directory too: the kernel tells a failed flush once, and the next one ends well without the entry.
            (Err(errno), FlushStep::Directory | FlushStep::File) => {
                self.poisoned = Some(errno);
                self.tickets.fail_flushes(Failure::Flush(errno));
            }
        }
    }

    fn cut_or_grow(&mut self, length: u64, settled: &mut Settled) {
        if length < self.size {
            self.drop_pages_from(length.div_ceil(PAGE), settled);
            if !length.is_multiple_of(PAGE)
                && let Some((chunk, slot)) = self.index.get(length / PAGE)
                && let Some(frame) = chunk.frame(slot)
            {
                settled.zero.push((frame, (length % PAGE) as usize));
            }
            self.space.cut(length);
            self.holes.cut(length.div_ceil(PAGE));
            self.origin_pages = self.origin_pages.min(length.div_ceil(PAGE));
        }
        self.size = length;
        self.disk_size = length;
        self.unflushed = true;
    }
}
