//! Fills: requests that read missing pages into frames, for a reader or ahead of one.

use std::ops::Range;

use forebay_block::{Bio, Class, Operation};

use crate::bits::{bits, parts};
use crate::file::CachedFile;
use crate::frames::{FrameRun, FrameRuns};
use crate::limits::{FILL_PAGES, PAGE};
use crate::partial::{Partial, Rest};
use crate::read::{ReadStop, Reader};
use crate::readahead::ReadaheadRoom;
use crate::uses::Caching;
use crate::writeback::flight::Flight;
use crate::writeback::segments::Segments;

impl CachedFile {
    pub(crate) fn is_absent(&self, page: u64) -> bool {
        self.index.get(page).is_none_or(|(chunk, slot)| chunk.here() & (1 << slot) == 0)
    }

    pub(crate) fn begin_fill(
        &mut self,
        wanted: Range<u64>,
        reader: Reader,
        stash: &mut FrameRuns,
    ) -> ReadStop {
        self.streams.missed(wanted.start);
        if let Some(errno) = self.errors.take_unreadable(wanted.start) {
            self.index.tidy(wanted.start);
            return ReadStop::Failed(errno);
        }
        if !self.may_fill() {
            return ReadStop::Busy;
        }
        match self.send_fill(wanted.clone(), Class::Waited, reader.caching, stash) {
            Some(bio) => ReadStop::Fill(Box::new(bio)),
            None => {
                self.index.tidy(wanted.start);
                ReadStop::NoFrames
            }
        }
    }

    /// Returns the pages to read ahead of a read of `bytes` with at most `frames` frames, and the
    /// page where the read continues an earlier one.
    pub fn advise(&mut self, bytes: Range<u64>, frames: u64) -> (Range<u64>, Option<u64>) {
        // Pages read ahead would hide the writes of other programs.
        if self.lease.is_shared() || bytes.is_empty() {
            return (0..0, None);
        }
        let room = ReadaheadRoom {
            end: self.sizes.size().min(self.sizes.disk_size()).div_ceil(PAGE),
            pages: frames,
        };
        let page = bytes.start / PAGE;
        let advice = self.streams.read(bytes, room);
        (advice.ahead, advice.is_same_page.then_some(page))
    }

    /// Returns how many of these pages are neither in memory nor being read. Pages known to be zero
    /// may be counted.
    #[must_use]
    pub fn missing(&self, pages: Range<u64>) -> u64 {
        let here = |(page, slot, count)| {
            self.index
                .get(page)
                .map_or(0, |(chunk, _)| (chunk.here() & bits(slot, count)).count_ones())
        };
        let count = pages.end.saturating_sub(pages.start);
        count - parts(pages).map(|part| u64::from(here(part))).sum::<u64>()
    }

    /// Returns bios that read the missing ones of these pages, as far as the frames go. The pages
    /// come from [`CachedFile::advise`], or are being read by a caller. Submit the bios in order.
    pub fn fill_ahead(
        &mut self,
        pages: Range<u64>,
        class: Class,
        caching: Caching,
        stash: &mut FrameRuns,
        bios: &mut Vec<Bio>,
    ) {
        let end = pages.end.min(pages.start.saturating_add(self.fences.unfenced_from(pages.start)));
        let mut page = pages.start;
        while page < end && self.may_fill() && !self.is_frozen() {
            if !self.is_absent(page) || self.absent_is_zero(page) {
                page += 1;
                continue;
            }
            // A page that could not be read is left to its next reader.
            if self.errors.is_unreadable(page) {
                break;
            }
            let Some(bio) = self.send_fill(page..end, class, caching, stash) else { break };
            page += bio.length / PAGE;
            bios.push(bio);
        }
        if page < pages.end && class == Class::Background {
            self.streams.cut(&pages, page);
        }
    }

    /// Returns whether a read may be sent: no request waits to be alone at the device, or is. The
    /// request path keeps such requests apart, but a caller's own requests do not pass through it.
    fn may_fill(&self) -> bool {
        !self.sweep.is_draining() && !self.flights.are_alone()
    }

    /// Sends one fill of absent pages, from the first wanted one on, or returns `None` without
    /// frames.
    fn send_fill(
        &mut self,
        wanted: Range<u64>,
        class: Class,
        caching: Caching,
        stash: &mut FrameRuns,
    ) -> Option<Bio> {
        let wanted = wanted.start..wanted.end.min(wanted.start + FILL_PAGES);
        let fills = |page: &u64| {
            self.is_absent(*page) && (*page == wanted.start || !self.absent_is_zero(*page))
        };
        let most = wanted.clone().take_while(fills).count() as u32;
        let mut segments = Segments::default();
        let mut page = wanted.start;
        while let left @ 1.. = most - (page - wanted.start) as u32
            && let Some(run) = stash.take_run(left)
        {
            let mut first = run.first;
            for (page, slot, count) in parts(page..page + u64::from(run.count)) {
                let (chunk, _) = self.index.chunk_for(page, count);
                debug_assert_eq!(chunk.here() & bits(slot, count), 0, "a page here is not read");
                chunk.set_frames(slot, FrameRun { first, count });
                chunk.filling |= bits(slot, count);
                chunk.uses.bring(bits(slot, count), caching);
                first.0 += count;
            }
            segments.push_frames(run);
            page += u64::from(run.count);
        }
        if page == wanted.start {
            return None;
        }
        self.counts.bring(page - wanted.start);
        Some(self.fill(wanted.start..page, segments, class))
    }

    /// A reader needs missing bytes of a partial page.
    pub(crate) fn begin_fill_of_partial(&mut self, page: u64) -> ReadStop {
        if let Some(errno) = self.errors.take_unreadable(page) {
            return ReadStop::Failed(errno);
        }
        if !self.may_fill() {
            return ReadStop::Busy;
        }
        let bio = self.send_fill_of_partial(page, Class::Waited);
        bio.map_or(ReadStop::Busy, |bio| ReadStop::Fill(Box::new(bio)))
    }

    /// Sends a fill of the missing bytes of a partial page and its neighbours, or returns `None` if
    /// they are being read.
    pub(crate) fn send_fill_of_partial(&mut self, page: u64, class: Class) -> Option<Bio> {
        let wanted = |page: u64| match self.odd.partial(page).map(Partial::rest) {
            // A page in flight is being discarded.
            Some(Rest::OnDevice(spare)) if !self.is_page_in_flight(page) => Some(spare),
            _ => None,
        };
        let mut spares = Vec::new();
        while (spares.len() as u64) < FILL_PAGES
            && let Some(spare) = wanted(page + spares.len() as u64)
        {
            spares.push(spare);
        }
        if spares.is_empty() {
            return None;
        }
        let mut segments = Segments::default();
        spares.iter().for_each(|spare| segments.push_frame(*spare));
        let pages = page..page + spares.len() as u64;
        let bio = self.fill(pages.clone(), segments, class);
        let (_, flight) = Self::flight_of(&bio);
        for (page, spare) in pages.zip(spares) {
            self.odd.begin_arriving(flight, page, spare);
            self.odd.partial_mut(page).expect("looked at").send(flight);
        }
        Some(bio)
    }

    fn fill(&mut self, pages: Range<u64>, segments: Segments, class: Class) -> Bio {
        let flight = self
            .flights
            .start(Flight::Fill { pages: pages.clone(), waited: class == Class::Waited });
        if self.lease.is_shared() {
            let number = self.flights.last_fill();
            for (page, slot, count) in parts(pages.clone()) {
                self.index.chunk_mut(page).0.set_fill(slot, count, number);
            }
        }
        let length = self.bytes_of(&pages);
        let segments = segments.cut_to(length);
        self.bio(Operation::Read, pages.start * PAGE, length, segments, class, flight)
    }
}

#[cfg(test)]
mod tests {
    use forebay_block::{Frame, Target};

    use super::*;
    use crate::file::{Liberties, Origin};
    use crate::settled::Settled;
    use crate::ticket::TicketKind;
    use crate::writeback::reason::Reason;

    #[test]
    fn contract_15_a_page_that_is_being_discarded_is_not_read_with_its_neighbours() {
        let mut settled = Settled::default();
        let origin = Origin::Existing(10 * PAGE);
        let mut file = CachedFile::new(Target(0), origin, Liberties::Exclusive);
        let mut stash = FrameRuns::default();
        stash.extend((0..10).map(Frame));
        for page in 0..3 {
            let mut copies = Vec::new();
            file.begin_write(page * PAGE, 10, &mut stash, &mut copies);
            file.publish(&copies, Caching::Cached, &mut settled);
        }
        file.ask(TicketKind::Discard { first: 1, pages: 1 });
        let discard = file.next_bio(Reason::Sync).expect("nothing is in its way");
        assert_eq!(discard.operation, Operation::Discard);
        let reader = Reader { caching: Caching::Cached, again: None, first_fill: 0 };
        let (_, stop) = file.begin_read(100, 10, reader, &mut stash, &mut Vec::new());
        let ReadStop::Fill(fill) = stop else { panic!("{stop:?}") };
        assert_eq!((fill.offset, fill.length), (0, PAGE));
    }
}
