//! Gathering of dirty pages in offset order into large writes.
//!
//! A file is swept from start to end, and from the start again, so that a region is as dense as it
//! gets before its turn comes. Between two dirty runs a short gap is written along: one request
//! instead of two. Known holes are written as zeroes, which also makes one extent instead of many.
//! Clean pages in memory are written once more, if that certainly needs no space. While they are at
//! the device, nobody writes into them; if the device refuses them, they are dirty.
//!
//! ```text
//!  pages     . D D . . D C D . . . . . . . . . . . . . . . . . D D D W D
//!            [ one request ]             gap too long          [   ] written data we do not hold: stop
//! ```
//!
//! # The end of the file
//! One request that moves `disk_size` is in flight at a time. Where the pages beyond it are dense
//! (a stream) it is the first of them and large, so that what is on disk stays a prefix. Where they
//! are sparse (random writes into a new file) it is the *last* run: then all others are below the
//! size, and go out in parallel.

use forebay_block::{Bio, Class, Errno, Operation, Segment, Source};

use crate::bits::bits;
use crate::file::{CachedFile, Entry};
use crate::frames::FrameRun;
use crate::index::{CHUNK_PAGES, Chunk, place};
use crate::limits::{EXTENDING_PAGES, GATHER_PAGES, GATHER_SEGMENTS, PAGE};
use crate::partial::{Partial, Rest};
use crate::space::Reservation;
use crate::ticket::{Failure, TicketId, TicketKind};
use crate::writeback::flight::{Carries, Flight, FlushStep, Pages};
use crate::writeback::reason::Reason;
use crate::writeback::segments::Segments;

impl CachedFile {
    /// Returns the next bio of this file for a reason, or `None` if there is nothing to do before
    /// something in flight ends. For [`Reason::Sync`] it serves only tickets.
    pub fn next_bio(&mut self, reason: Reason) -> Option<Bio> {
        if self.flights.is_held() || self.fences.is_held() {
            return None;
        }
        // Drained: the end of the file is sent now, or is no longer due.
        if self.flights.is_empty() {
            self.sweep.end_drain();
        }
        while let Some((ticket, request)) = self.tickets.first_set_length() {
            if !self.flights.is_empty() || !self.index.is_quiet() {
                return None;
            }
            match request {
                TicketKind::Extend(length) if self.sizes.size() >= length => {
                    self.tickets.finish(ticket, Ok(()));
                }
                TicketKind::Extend(_) if self.lease.is_shared() => {
                    let refused = Failure::SetLength(Errno::WOULD_BLOCK);
                    self.tickets.refuse(ticket, refused);
                }
                TicketKind::Extend(length) | TicketKind::SetLength(length) => {
                    return Some(self.send_set_length(ticket, length));
                }
                _ => unreachable!("no other ticket changes the length"),
            }
        }
        match reason {
            Reason::Sync => self.next_for_tickets(),
            Reason::Periodic => {
                self.sweep.overdue().and_then(|epoch| self.next_write_out(epoch, reason))
            }
            Reason::Background | Reason::Uncached if self.sweep.is_draining() => None,
            Reason::Background | Reason::Uncached => {
                if let Some(bio) = self.next_fill(None, reason.class()) {
                    return Some(bio);
                }
                if self.writes_through() {
                    return self.next_exact(None, reason.class());
                }
                match self.sweep() {
                    Some(first) => Some(self.send_run(first, reason.class())),
                    None => self.next_exact(None, reason.class()),
                }
            }
            Reason::Reclaim => self.next_reclaim(),
        }
    }

    /// Returns whether a bio of this file writes more than dirty pages, and how many clean ones.
    /// That takes the lease: another program may have written there.
    #[must_use]
    pub fn writes_more(&self, bio: &Bio) -> (bool, u64) {
        match self.flights.get(Self::flight_of(bio).1) {
            Flight::Pages(run) => (run.has_more(), run.clean()),
            _ => (false, 0),
        }
    }

    /// Marks all pages that are dirty now for writeback with [`Reason::Periodic`].
    pub fn age(&mut self) {
        // A release that failed ends when nothing is left but failed pages, so those stay as they
        // are.
        if self.sweep.overdue().is_none() && self.is_dirty() && !self.tickets.has_failed() {
            self.retry_failing();
            self.sweep.set_overdue(self.epochs.close());
        }
    }

    /// Returns whether pages marked by [`CachedFile::age`] are still dirty.
    #[must_use]
    pub fn is_overdue(&mut self) -> bool {
        if self.sweep.overdue().is_some_and(|epoch| self.epochs.is_written(epoch)) {
            self.sweep.end_overdue();
        }
        self.sweep.overdue().is_some()
    }

    /// Returns whether something waits to be sent until requests in flight have ended.
    #[must_use]
    pub fn holds_back(&self) -> bool {
        self.sweep.is_draining() || self.sweep.overdue().is_some() || self.is_frozen()
    }

    /// Returns whether the file waits to become quiet, for a change of length or for dropping dirty
    /// pages: no caller may start anything.
    pub(crate) fn is_frozen(&self) -> bool {
        self.fences.is_held() || self.tickets.first_set_length().is_some()
    }

    /// Returns the next bio that writes pages of epoch `covers` or before.
    fn next_write_out(&mut self, covers: u64, reason: Reason) -> Option<Bio> {
        if let Some(bio) = self.next_fill(Some(covers), reason.class()) {
            return Some(bio);
        }
        if self.writes_through() {
            return self.next_exact(Some(covers), reason.class());
        }
        if let Some(first) = self.pick(Some(covers)) {
            return Some(self.send_run(first, reason.class()));
        }
        if self.lease.is_shared() {
            return self.next_exact(Some(covers), reason.class());
        }
        let page = self.dirty_tail(covers)?;
        if self.sweep.drain(self.flights.is_empty()) {
            return None;
        }
        Some(self.send_tail(page, reason.class()))
    }

    /// A partial page has to be read before it is sent whole.
    fn next_fill(&mut self, covers: Option<u64>, class: Class) -> Option<Bio> {
        if self.sweep.is_draining() || !self.odd.has_partials() || self.lease.is_shared() {
            return None;
        }
        let is_due = |page: u64, partial: &Partial| {
            let (chunk, slot) = self.index.get(page).expect("a partial page has a chunk");
            matches!(partial.rest(), Rest::OnDevice(_))
                && chunk.dirty & !(chunk.failing | chunk.flight) & (1 << slot) != 0
                && covers.is_none_or(|covers| chunk.epoch(slot) <= covers)
        };
        let (page, _) = self.odd.partials().find(|(page, partial)| is_due(*page, partial))?;
        self.send_fill_of_partial(page, class)
    }

    // Picking

    /// The first page of the next run: on from where the sweep has got to, then what moves the end
    /// of the file, then from the start.
    fn pick(&self, covers: Option<u64>) -> Option<u64> {
        if self.sweep.is_draining() || self.sweep.is_alone() && !self.flights.is_empty() {
            return None;
        }
        let which = |first: u64, chunk: &Chunk| {
            let sendable = self.sendable(first, chunk);
            match covers {
                Some(covers) => chunk.not_after(sendable, covers),
                None => sendable,
            }
        };
        let whole = self.sizes.inner_pages();
        let cursor = self.sweep.cursor().min(whole);
        let find = |from, below| self.index.next_dirty(from, below, which);
        let extending = || {
            if self.flights.is_extending() {
                return None;
            }
            let first = find(whole, u64::MAX)?;
            let last = self.index.last_dirty(first, which)?;
            let is_dense = self.index.count_dirty(first..u64::MAX) * 2 > last - first;
            Some(if is_dense { first } else { self.start_of_run(last) })
        };
        find(cursor, whole).or_else(extending).or_else(|| find(0, cursor))
    }

    /// The pages of a chunk that may be sent direct; `first` is the number of its first one.
    fn sendable(&self, first: u64, chunk: &Chunk) -> u64 {
        let tail = self
            .tail_page()
            .and_then(|tail| tail.checked_sub(first))
            .filter(|slot| *slot < CHUNK_PAGES);
        chunk.sendable() & !tail.map_or(0, |slot| 1 << slot)
    }

    /// The next run of background writeback; `None` also once at the end of each sweep, for other
    /// files' sake: by the time it is swept again, this one is denser.
    fn sweep(&mut self) -> Option<u64> {
        let first = self.pick(None)?;
        (!self.sweep.ends_before(first)).then_some(first)
    }

    /// The first page of the run of eligible pages that ends in `last`.
    fn start_of_run(&self, last: u64) -> u64 {
        let (mut first, most) = (last, self.ahead.request_pages(GATHER_PAGES, true));
        while first > 0 && last - first + 1 < most && self.is_eligible(first - 1) {
            first -= 1;
        }
        first
    }

    fn is_eligible(&self, page: u64) -> bool {
        self.eligible_from(page) > 0
    }

    /// How many pages from `page` on, in its chunk, may be sent.
    fn eligible_from(&self, page: u64) -> u64 {
        self.index.get(page).map_or(0, |(chunk, slot)| {
            u64::from((self.sendable(page - slot as u64, chunk) >> slot).trailing_ones())
        })
    }

    fn dirty_tail(&self, covers: u64) -> Option<u64> {
        let page = self.tail_page()?;
        let (chunk, slot) = self.index.get(page)?;
        let is_sendable = chunk.sendable() & (1 << slot) != 0;
        (is_sendable && chunk.epoch(slot) <= covers).then_some(page)
    }

    /// Pages of a gap that may be written along, from `page` on; `None` when the next run is too
    /// far.
    fn gap_before_next_run(&self, page: u64, end: u64) -> Option<u64> {
        if !self.ahead.fills_gaps() {
            return None;
        }
        let mut clean = 0;
        let takes_holes = self.ahead.takes_holes(self.sizes.size());
        for gap in 0..=self.ahead.gap_pages() {
            let page = page + gap;
            if page >= end {
                return None;
            }
            if self.is_eligible(page) {
                return Some(gap);
            }
            if clean < self.ahead.clean_pages() && self.goes_along(page) {
                clean += 1;
                continue;
            }
            let in_flight =
                self.index.get(page).is_some_and(|(chunk, slot)| chunk.flight & (1 << slot) != 0);
            if in_flight || self.lease.is_shared() || !self.holes.is_zero(page) {
                return None;
            }
            if !takes_holes && !self.reserved.ranges().covers(&(page * PAGE..(page + 1) * PAGE)) {
                return None;
            }
        }
        None
    }

    /// Returns whether a page is clean and may be written once more. Not while the device refuses
    /// others: it might not get this one back.
    fn goes_along(&self, page: u64) -> bool {
        let (chunk, slot) = match self.index.get(page) {
            Some(found) if self.lease.is_exclusive() && self.counts.failing() == 0 => found,
            _ => return false,
        };
        let bytes = page * PAGE..(page + 1) * PAGE;
        chunk.idle_clean() & 1 << slot != 0
            && self.is_allocated(&bytes, self.ahead.rewrites_in_place())
    }

    // Sending

    fn send_run(&mut self, first: u64, class: Class) -> Bio {
        match self.reservation(first, class) {
            Some(reservation) => self.send_allocate(reservation, class),
            None => self.send_pages(first, class),
        }
    }

    fn send_pages(&mut self, first: u64, class: Class) -> Bio {
        let mut run = Pages::starting_at(first);
        let mut segments = Segments::default();
        let whole = self.sizes.inner_pages();
        run.extending = first >= whole;
        let (end, most) =
            if run.extending { (u64::MAX, EXTENDING_PAGES) } else { (whole, GATHER_PAGES) };
        let end = end.min(first + self.ahead.request_pages(most, run.extending));
        let mut page = first;
        while page < end && segments.count() + 2 < GATHER_SEGMENTS {
            let data = self.eligible_from(page).min(end - page);
            if data > 0 {
                let most = GATHER_SEGMENTS - segments.count() - 1;
                let data = self.send_data(page, data as u32, most, &mut segments);
                run.push(data, Carries::Data);
                page += data;
                continue;
            }
            let Some(gap) = self.gap_before_next_run(page, end) else { break };
            if segments.count() + gap as usize + 1 >= GATHER_SEGMENTS {
                break;
            }
            for page in page..page + gap {
                run.push(1, self.send_along(page, &mut segments));
            }
            page += gap;
        }
        self.sweep.move_to(page);
        let length = self.bytes_of(&(first..first + run.count));
        self.sweep.note_sent();
        let flight = self.flights.start(Flight::Pages(run));
        self.bio(Operation::Write, first * PAGE, length, segments.cut_to(length), class, flight)
    }

    /// Sends one page of a gap.
    fn send_along(&mut self, page: u64, segments: &mut Segments) -> Carries {
        let is_clean = self.goes_along(page);
        let (chunk, slot) = self.index.chunk_mut(page);
        chunk.flight |= 1 << slot;
        if !is_clean {
            segments.push_zeroes(1);
            return Carries::Zeroes;
        }
        let pinned = chunk.pin(slot, 1);
        debug_assert_eq!(pinned, 1, "a page that nobody uses has room for a pin");
        segments.push_frame(chunk.frame(slot).expect("a clean page has a frame"));
        Carries::Clean
    }

    /// Sends up to `most` pages of a chunk as at most `most_segments` segments. Returns how many.
    pub(crate) fn send_data(
        &mut self,
        page: u64,
        most: u32,
        most_segments: usize,
        segments: &mut Segments,
    ) -> u64 {
        let (mut sent, mut bare, enough) = (0, 0, segments.count() + most_segments);
        self.index.change(page, |chunk| {
            let slot = place(page).1;
            while sent < most && segments.count() < enough {
                let count = chunk.frames_in_a_row(slot + sent as usize, most - sent);
                let first =
                    chunk.frame(slot + sent as usize).expect("a page that is sent has a frame");
                segments.push_frames(FrameRun { first, count });
                sent += count;
            }
            let mask = bits(slot, sent);
            debug_assert_eq!(mask & !chunk.sendable(), 0, "a page that must wait is sent");
            bare = mask & !chunk.logged;
            chunk.dirty &= !mask;
            chunk.flight |= mask;
            chunk.sending |= mask;
        });
        if bare != 0 {
            self.flushes.note_bare();
        }
        self.holes.mark_written(page..page + u64::from(sent));
        u64::from(sent)
    }

    fn send_tail(&mut self, page: u64, class: Class) -> Bio {
        debug_assert!(self.flights.is_empty(), "the end of a file is alone at the device");
        let length = self.sizes.size() - page * PAGE;
        let mut segments = Segments::default();
        self.send_data(page, 1, 1, &mut segments);
        let segments = segments.cut_to(length);
        self.sweep.note_sent();
        let flight = self.flights.start(Flight::Tail { page, length });
        self.bio(Operation::WriteBuffered, page * PAGE, length, segments, class, flight)
    }

    fn send_allocate(&mut self, reservation: Reservation, class: Class) -> Bio {
        let bytes = reservation.bytes.clone();
        let flight = self.flights.start(Flight::Allocate(reservation));
        self.bio(
            Operation::Allocate,
            bytes.start,
            bytes.end - bytes.start,
            Vec::new(),
            class,
            flight,
        )
    }

    fn send_set_length(&mut self, ticket: TicketId, length: u64) -> Bio {
        let flight = self.flights.start(Flight::SetLength { ticket, length });
        self.bio(Operation::SetLength, length, 0, Vec::new(), Class::Waited, flight)
    }

    pub(crate) fn bio(
        &self,
        operation: Operation,
        offset: u64,
        length: u64,
        segments: Vec<Segment>,
        class: Class,
        flight: u32,
    ) -> Bio {
        let (target, source, segments) = (self.target, Source(self.target.0), segments.into());
        Bio { operation, target, offset, length, segments, class, source, owner: u64::from(flight) }
    }

    // Serving tickets

    fn next_for_tickets(&mut self) -> Option<Bio> {
        if let Some(bio) = self.next_discard() {
            return Some(bio);
        }
        // Tickets are served in order: a stream of syncs cannot keep the first from ending.
        if let Some(bio) = self.next_for_written() {
            return Some(bio);
        }
        let waits = self.tickets.covers();
        let oldest = waits.clone().find(|covers| !self.epochs.is_written(*covers))?;
        let youngest = waits.max()?;
        let next = self.next_write_out(oldest, Reason::Sync);
        let next = next.or_else(|| self.next_write_out(youngest, Reason::Sync));
        if next.is_none() && self.flights.is_empty() {
            self.tickets.end_failed();
        }
        next
    }

    /// Returns the next bio for tickets whose pages are written.
    fn next_for_written(&mut self) -> Option<Bio> {
        let written = self.tickets.written(|covers| self.epochs.is_written(covers));
        for id in ids_of(&written, |request| request == TicketKind::WriteOut) {
            self.tickets.finish(id, Ok(()));
        }
        let mut releases = ids_of(&written, |request| request == TicketKind::Release);
        releases.retain(|id| self.lease.is_exclusive() || !self.tickets.has_flush_before(*id));
        if !releases.is_empty()
            && let Some(bio) = self.next_for_release(&releases)
        {
            return Some(bio);
        }
        let serves = ids_of(&written, TicketKind::flushes);
        if serves.is_empty() || self.is_flushing() {
            return None;
        }
        if self.flushes.entry() == Entry::New {
            return Some(self.send_flush(
                Operation::FlushDirectory,
                Vec::new(),
                FlushStep::Directory,
            ));
        }
        let all = written.iter().any(|(_, request)| *request == TicketKind::FlushAll);
        if !self.flushes.is_unflushed() && !all {
            for id in serves {
                self.tickets.finish(id, Ok(()));
            }
            // A release may have waited for that.
            return if self.lease.is_shared() { self.next_for_written() } else { None };
        }
        self.begin_flush();
        let operation = if all { Operation::FlushAll } else { Operation::FlushData };
        Some(self.send_flush(operation, serves, FlushStep::File))
    }

    pub(crate) fn send_flush(
        &mut self,
        operation: Operation,
        serves: Vec<TicketId>,
        step: FlushStep,
    ) -> Bio {
        let flight = self.flights.start(Flight::Flush { serves, step });
        self.bio(operation, 0, 0, Vec::new(), Class::Waited, flight)
    }

    /// Gives back what was reserved and never used: first beyond the end, then below it, from the
    /// last stretch to the first. Only under the lease. Space beyond the end stays while writes
    /// that were accepted since, or are under way, rely on it: a later release gives it back.
    fn next_for_release(&mut self, tickets: &[TicketId]) -> Option<Bio> {
        let is_relied_on =
            self.sizes.size() > self.sizes.disk_size() || self.reserved.is_relied_on();
        let has_beyond = self.lease.may_give_back() && self.reserved_beyond_end() > 0;
        let gives_back = has_beyond && !is_relied_on;
        if has_beyond && is_relied_on {
            // The ranges are forgotten below, but this space must not be.
            self.reserved.keep_litter();
        }
        if !self.flights.is_empty() {
            // Another program waits for the lease, so nothing new is sent before it can be given
            // up.
            if gives_back && self.is_breaking() {
                self.sweep.begin_drain();
            }
            return None;
        }
        let class = Class::Background;
        if gives_back {
            let bytes = self.reserved.give_back(self.sizes.disk_size());
            let flight = self.flights.start(Flight::GiveBack { bytes });
            return Some(self.bio(
                Operation::SetLength,
                self.sizes.disk_size(),
                0,
                Vec::new(),
                class,
                flight,
            ));
        }
        if self.lease.is_exclusive()
            && let Some(unused) = self.last_unused()
        {
            self.reserved.punch(unused.start);
            let flight = self.flights.start(Flight::Punch);
            let length = unused.end - unused.start;
            return Some(self.bio(
                Operation::Punch,
                unused.start,
                length,
                Vec::new(),
                class,
                flight,
            ));
        }
        // On a shared file: the next open that has the lease gives it back.
        if !has_beyond && self.reserved_beyond_end() > 0 {
            self.reserved.leave();
        }
        self.reserved.end_release();
        for id in tickets {
            self.tickets.finish(*id, Ok(()));
        }
        None
    }
}

fn ids_of(tickets: &[(TicketId, TicketKind)], which: impl Fn(TicketKind) -> bool) -> Vec<TicketId> {
    tickets.iter().filter(|(_, request)| which(*request)).map(|(id, _)| *id).collect()
}
