//! The caller's side of a write: plan copies under the lock, copy without it, publish under it.
//!
//! `begin_write` returns the copies to make and why it stopped. No other task reads, writes back or
//! drops these pages until they are published. So a slow copy (the source may fault) delays only
//! users of the same pages.

use std::ops::Range;

use forebay_block::Frame;

use crate::bits::{bits, ones, parts, runs, slots};
use crate::file::{CachedFile, Liberties};
use crate::frames::FrameRuns;
use crate::limits::{PAGE, STEP_PAGES};
use crate::partial::{Partial, Patch, Rest};
use crate::settled::Settled;
use crate::uses::Caching;

/// One copy from the buffer of a writer into a page, or into several whole pages that are
/// contiguous in the file and in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copy {
    /// First page written.
    pub page: u64,
    /// Frame of the first page.
    pub frame: Frame,
    /// First byte within the page.
    pub at: usize,
    /// Number of bytes.
    pub length: usize,
    /// How to fill the rest of the frame before the copy.
    pub prepare: Prepare,
}

impl Copy {
    /// Returns the pages written.
    #[must_use]
    pub fn pages(&self) -> Range<u64> {
        self.page..self.page + ((self.at + self.length) as u64).div_ceil(PAGE)
    }

    /// Returns the frames of these pages.
    pub fn frames(&self) -> impl Iterator<Item = Frame> + use<> {
        (self.frame.0..self.frame.0 + (self.at + self.length).div_ceil(PAGE as usize) as u32)
            .map(Frame)
    }
}

/// How to fill the rest of a frame that is written in part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prepare {
    /// Leave it: it is valid, or empty, or read later.
    Nothing,
    /// Fill it with zeroes.
    Zero,
    /// Copy it from this frame, which is in flight and does not change.
    From(Frame),
}

/// Reason why a step of a write ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WriteStop {
    /// The whole range, or the maximum of one step, is planned.
    Done,
    /// The stash of frames is empty.
    NoFrames,
    /// The next page is in use. Wait for a change of the file.
    Busy,
}

/// Result of [`CachedFile::publish`], for notifying the context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Published {
    /// Whether the file had no dirty page before.
    pub first: bool,
    /// Whether a caller waits for the file, perhaps for these pages.
    pub awaited: bool,
}

impl CachedFile {
    /// Plans the copies of one step of a write to `[offset, offset + length)`, with frames from
    /// `stash`. Returns the bytes planned, the frames newly counted as dirty, and why it stopped.
    pub fn begin_write(
        &mut self,
        offset: u64,
        length: usize,
        stash: &mut FrameRuns,
        copies: &mut impl Extend<Copy>,
    ) -> (usize, u64, WriteStop) {
        if self.in_place
            && let Some(copy) = self.begin_in_place(offset, length)
        {
            copies.extend([copy]);
            return (length, 0, WriteStop::Done);
        }
        let charged_before = self.counts.charged();
        let (mut planned, mut pages) = (0, 0);
        let stop = loop {
            if planned == length || pages >= STEP_PAGES {
                break WriteStop::Done;
            }
            let position = offset + planned as u64;
            let (page, at) = (position / PAGE, (position % PAGE) as usize);
            let left = length - planned;
            let unfenced = self.fences.unfenced_from(page).min(self.flights.unsent_from(page));
            if unfenced == 0 {
                break WriteStop::Busy;
            }
            let copy = if at == 0 && left >= PAGE as usize {
                let most = (left / PAGE as usize).min(STEP_PAGES - pages);
                self.begin_run(page, unfenced.min(most as u64), stash)
            } else {
                self.begin_part(page, at, left.min(PAGE as usize - at), stash)
            };
            match copy {
                Ok(copy) => {
                    planned += copy.length;
                    pages += (copy.pages().end - copy.page) as usize;
                    copies.extend([copy]);
                }
                Err(stop) => break stop,
            }
        };
        let charged = self.counts.charged() - charged_before;
        self.in_place = (planned, charged) == (PAGE as usize, 0);
        (planned, charged, stop)
    }

    /// Returns whether the last write planned was of one whole page that was dirty before.
    #[must_use]
    pub fn writes_in_place(&self) -> bool {
        self.in_place
    }

    /// Plans a write of one whole page that is dirty, as [`CachedFile::begin_write`] would. Such a
    /// write needs no frame and no new space. Returns `None` if the write is of another kind.
    #[inline]
    pub fn begin_in_place(&mut self, offset: u64, length: usize) -> Option<Copy> {
        let page = offset / PAGE;
        let is_page = offset.is_multiple_of(PAGE) && length == PAGE as usize;
        if !is_page
            || self.is_frozen()
            || self.fences.unfenced_from(page).min(self.flights.unsent_from(page)) == 0
        {
            return None;
        }
        let (chunk, slot) = self.index.get_mut(page)?;
        let usable = chunk.present & !(chunk.busy | chunk.pinned | chunk.sending);
        if usable & chunk.dirty & 1 << slot == 0 {
            return None;
        }
        chunk.begin_copy(slot, 1);
        let frame = chunk.frame(slot).expect("a present page has a frame");
        Some(Copy { page, frame, at: 0, length, prepare: Prepare::Nothing })
    }

    /// Plans a write of whole pages from `page` on: at most `most`, in the same state, with frames
    /// that are contiguous.
    #[inline]
    fn begin_run(
        &mut self,
        page: u64,
        most: u64,
        stash: &mut FrameRuns,
    ) -> Result<Copy, WriteStop> {
        if self.is_frozen() {
            return Err(WriteStop::Busy);
        }
        let most = most.min(64 - page % 64) as u32;
        let (chunk, slot) = self.index.chunk_for(page, most);
        let usable = !(chunk.busy | chunk.pinned);
        let alike = |mask: u64| (mask >> slot).trailing_ones().min(most);
        let is = |mask: u64| mask >> slot & 1 != 0;
        let here = usable & chunk.present & !chunk.sending;
        let absent = usable & !(chunk.present | chunk.partial | chunk.filling);
        let sending = usable & chunk.present & chunk.sending;
        let (frame, count) = if is(here) {
            let count = chunk.frames_in_a_row(slot, alike(here));
            self.counts.charge(ones(bits(slot, count) & !(chunk.dirty | chunk.held())));
            (chunk.frame(slot).expect("a present page has a frame"), count)
        } else if is(absent) {
            let Some(run) = stash.take_run(alike(absent)) else { return Err(WriteStop::NoFrames) };
            chunk.set_frames(slot, run);
            self.counts.charge(run.count);
            self.errors.forget_unreadable(&(page..page + u64::from(run.count)));
            (run.first, run.count)
        } else if is(sending) {
            let sending = alike(sending);
            let Some(run) = stash.take_run(sending) else { return Err(WriteStop::NoFrames) };
            for at in slot..slot + run.count as usize {
                let old = chunk.take_frame(at).expect("a page in flight has a frame");
                self.odd.displace(page + (at - slot) as u64, old, chunk.epoch(at));
            }
            chunk.sending &= !bits(slot, run.count);
            chunk.set_frames(slot, run);
            self.counts.charge(run.count);
            (run.first, run.count)
        } else if !is(usable) {
            return Err(WriteStop::Busy);
        } else {
            let frame = self.begin_over_incomplete(page, stash)?;
            let (chunk, slot) = self.index.chunk_mut(page);
            chunk.begin_copy(slot, 1);
            let length = PAGE as usize;
            return Ok(Copy { page, frame, at: 0, length, prepare: Prepare::Nothing });
        };
        chunk.begin_copy(slot, count);
        let length = (u64::from(count) * PAGE) as usize;
        Ok(Copy { page, frame, at: 0, length, prepare: Prepare::Nothing })
    }

    /// Plans a write of a whole page that is partial or being read. Its missing bytes are no longer
    /// needed.
    fn begin_over_incomplete(
        &mut self,
        page: u64,
        stash: &mut FrameRuns,
    ) -> Result<Frame, WriteStop> {
        let (chunk, slot) = self.index.chunk_mut(page);
        let bit = 1 << slot;
        if chunk.partial & bit != 0 {
            self.counts.charge(u32::from((chunk.dirty | chunk.held()) & bit == 0));
            chunk.partial &= !bit;
            self.errors.take_unreadable(page);
            let partial = self.odd.end_partial(page).expect("a page with the bit has a record");
            stash.extend(partial.spare());
            return Ok(chunk.frame(slot).expect("a partial page has a frame"));
        }
        let Some(frame) = stash.take() else { return Err(WriteStop::NoFrames) };
        // An earlier read may have failed.
        self.errors.take_unreadable(page);
        self.divert_fill(page, frame);
        Ok(frame)
    }

    /// Gives a page that is being read another frame. The fill goes on into the old one. Returns
    /// the number of the fill.
    fn divert_fill(&mut self, page: u64, frame: Frame) -> u32 {
        // An older fill for an earlier life of the page may still be in flight.
        let mut fills = self.flights.fills_of(page);
        let flight = fills.find(|flight| !self.odd.is_arriving(*flight, page));
        let flight = flight.expect("a page being filled has a fill");
        let (chunk, slot) = self.index.chunk_mut(page);
        debug_assert!(chunk.filling & 1 << slot != 0, "no fill to divert");
        chunk.filling &= !(1 << slot);
        let arriving = chunk.take_frame(slot).expect("a page being filled has a frame");
        self.odd.begin_arriving(flight, page, arriving);
        chunk.set_frame(slot, frame);
        self.counts.charge(1);
        flight
    }

    /// A part of one page.
    fn begin_part(
        &mut self,
        page: u64,
        at: usize,
        length: usize,
        stash: &mut FrameRuns,
    ) -> Result<Copy, WriteStop> {
        if self.is_frozen() {
            return Err(WriteStop::Busy);
        }
        // A write up to the end of the file leaves nothing of the old content. On a shared file
        // another program may have moved the end since it was read.
        let replaces = self.lease.is_exclusive()
            && at == 0
            && page * PAGE + length as u64 >= self.sizes.size();
        let rest_is_zero = replaces || self.absent_is_zero(page);
        let (chunk, slot) = self.index.chunk_mut(page);
        let bit = 1 << slot;
        if (chunk.busy | chunk.pinned) & bit != 0 {
            return Err(WriteStop::Busy);
        }
        // Of a shared file only what is unwritten or kept is current. The rest may have changed
        // since it was read, also by an append of ours that went past the cache.
        let is_old = self.lease.is_shared()
            && chunk.present & !(chunk.dirty | chunk.sending | chunk.held()) & bit != 0;
        let (frame, prepare) = if is_old {
            let Some(spare) = stash.take() else { return Err(WriteStop::NoFrames) };
            chunk.present &= !bit;
            let frame = chunk.frame(slot).expect("a present page has a frame");
            self.counts.charge(1);
            self.begin_partial(page, Rest::OnDevice(spare));
            (frame, Prepare::Nothing)
        } else if chunk.partial & bit != 0 || chunk.present & !chunk.sending & bit != 0 {
            self.counts.charge(u32::from((chunk.dirty | chunk.held()) & bit == 0));
            (chunk.frame(slot).expect("a page that is here has a frame"), Prepare::Nothing)
        } else if chunk.present & bit != 0 {
            let Some(frame) = stash.take() else { return Err(WriteStop::NoFrames) };
            let old = chunk.take_frame(slot).expect("a page in flight has a frame");
            self.odd.displace(page, old, chunk.epoch(slot));
            chunk.sending &= !bit;
            chunk.set_frame(slot, frame);
            self.counts.charge(1);
            (frame, if replaces { Prepare::Zero } else { Prepare::From(old) })
        } else {
            self.begin_absent(page, rest_is_zero, stash)?
        };
        let (chunk, slot) = self.index.chunk_mut(page);
        chunk.begin_copy(slot, 1);
        Ok(Copy { page, frame, at, length, prepare })
    }

    /// Gives a frame to a page that is absent or being read, for a write to a part of it.
    fn begin_absent(
        &mut self,
        page: u64,
        rest_is_zero: bool,
        stash: &mut FrameRuns,
    ) -> Result<(Frame, Prepare), WriteStop> {
        let Some(frame) = stash.take() else { return Err(WriteStop::NoFrames) };
        let (chunk, slot) = self.index.chunk_mut(page);
        let is_filling = chunk.filling & 1 << slot != 0;
        if is_filling && self.lease.is_exclusive() {
            let flight = self.divert_fill(page, frame);
            self.begin_partial(page, Rest::OnTheWay(flight));
            return Ok((frame, Prepare::Nothing));
        }
        let spare = if rest_is_zero { None } else { stash.take() };
        if spare.is_none() && !rest_is_zero {
            stash.push(frame);
            return Err(WriteStop::NoFrames);
        }
        if is_filling {
            // Its bytes may be old by now.
            self.divert_fill(page, frame);
        } else {
            chunk.set_frame(slot, frame);
            self.counts.charge(1);
        }
        if let Some(spare) = spare {
            self.begin_partial(page, Rest::OnDevice(spare));
        }
        self.errors.take_unreadable(page);
        Ok((frame, if rest_is_zero { Prepare::Zero } else { Prepare::Nothing }))
    }

    fn begin_partial(&mut self, page: u64, rest: Rest) {
        let (chunk, slot) = self.index.chunk_mut(page);
        chunk.partial |= 1 << slot;
        self.odd.begin_partial(page, Partial::new(rest));
    }

    /// Returns whether only some bytes of a page are in memory.
    #[must_use]
    pub fn is_partial(&self, page: u64) -> bool {
        self.odd.partial(page).is_some()
    }

    /// Publishes copies that were made: marks their pages dirty and extends the file. The caller
    /// must zero and patch what `settled` lists under the same lock.
    pub fn publish(
        &mut self,
        copies: &[Copy],
        caching: Caching,
        settled: &mut Settled,
    ) -> Published {
        let first = self.epochs.is_empty();
        if self.in_place
            && let [copy] = copies
            && self.publish_in_place(copy, caching)
        {
            self.verify_change();
            return Published { first, awaited: self.has_tickets() };
        }
        for copy in copies {
            let end = copy.page * PAGE + (copy.at + copy.length) as u64;
            self.sizes.accept(end);
            let part = (copy.length < PAGE as usize).then_some(copy.at..copy.at + copy.length);
            for (page, slot, count) in parts(copy.pages()) {
                self.publish_pages((page, slot, count), part.clone(), caching, settled);
            }
            if self.odd.has_partials() {
                self.grow_partial(copy, settled);
            }
        }
        self.verify_change();
        Published { first, awaited: self.has_tickets() }
    }

    /// Publishes a write of one whole page that was dirty before, and has no other record. Returns
    /// false if the copy is of another kind.
    #[inline]
    fn publish_in_place(&mut self, copy: &Copy, caching: Caching) -> bool {
        if copy.length != PAGE as usize || self.odd.has_left() {
            return false;
        }
        let (chunk, slot) = self.index.get_mut(copy.page).expect("a page in use has a chunk");
        let bit = 1 << slot;
        if chunk.dirty & !(chunk.partial | chunk.exact) & bit == 0 {
            return false;
        }
        assert!(chunk.busy & bit != 0, "a copy is published once");
        chunk.busy &= !bit;
        chunk.present |= bit;
        chunk.logged &= !bit;
        chunk.set_whole(slot, 1);
        self.counts.end_unread(chunk.uses.write(bit, caching));
        self.sizes.accept((copy.page + 1) * PAGE);
        true
    }

    fn publish_pages(
        &mut self,
        (page, slot, count): (u64, usize, u32),
        part: Option<Range<usize>>,
        caching: Caching,
        settled: &mut Settled,
    ) {
        let epoch = self.epochs.current();
        let mask = bits(slot, count);
        let is_whole = part.is_none();
        let (newly, read, exact) = self.index.change(page, |chunk| {
            assert!(chunk.busy & mask == mask, "a copy is published once");
            chunk.busy &= !mask;
            chunk.logged &= !mask;
            chunk.present |= mask & !chunk.partial;
            let newly = mask & !chunk.dirty;
            chunk.dirty |= mask;
            for (slot, count) in runs(newly) {
                chunk.set_epochs(slot, count, epoch);
            }
            if is_whole {
                chunk.set_whole(slot, count);
            }
            (newly, chunk.uses.write(mask, caching), chunk.exact & mask)
        });
        self.counts.end_unread(read);
        match part {
            Some(bytes) => {
                self.publish_exact(page, bytes, newly != 0, self.odd.is_owed(page));
            }
            None if exact != 0 => {
                slots(exact).for_each(|at| self.disown(page - slot as u64 + at as u64));
            }
            None => {}
        }
        let mut counted = ones(newly) as usize;
        if self.odd.has_left() {
            for page in page..page + u64::from(count) {
                let (parked, owed) = self.odd.end_copy(page);
                if let Some(parked) = parked {
                    settled.freed.push(parked);
                }
                if let Some(owed) = owed {
                    let (chunk, slot) = self.index.chunk_mut(page);
                    chunk.set_epoch(slot, owed);
                    counted -= 1;
                }
            }
        }
        if counted > 0 {
            self.epochs.add(epoch, counted);
        }
    }

    /// Adds a published write to a partial page, and completes the page if all of it is here.
    fn grow_partial(&mut self, copy: &Copy, settled: &mut Settled) {
        let Some(partial) = self.odd.partial_mut(copy.page) else { return };
        partial.write(copy.at..copy.at + copy.length);
        // There is nothing to read beyond the end, unless another program moves it.
        let used = match self.lease.liberties() {
            Liberties::Exclusive => self.sizes.bytes_inside(copy.page),
            Liberties::Shared => PAGE as usize,
        };
        if let Rest::Here(from, filled) = partial.rest() {
            self.make_whole(copy.page, from, filled, settled);
        } else if partial.mask().holds(0..used) {
            if let Rest::OnDevice(spare) = partial.rest() {
                settled.freed.push(spare);
            }
            if used < PAGE as usize {
                settled.zero.push((copy.frame, used));
            }
            self.end_partial(copy.page);
        }
    }

    /// Completes a partial page from a frame, and frees that frame.
    pub(crate) fn make_whole(
        &mut self,
        page: u64,
        from: Frame,
        filled: usize,
        settled: &mut Settled,
    ) {
        let (chunk, slot) = self.index.chunk_mut(page);
        let to = chunk.frame(slot).expect("a partial page has a frame");
        let partial = self.odd.partial(page).expect("a page with the bit has a record");
        let bytes = partial.mask().missing();
        settled.patches.push(Patch { page, from, to, bytes, filled });
        settled.freed.push(from);
        self.end_partial(page);
    }

    fn end_partial(&mut self, page: u64) {
        self.odd.end_partial(page);
        self.errors.take_unreadable(page);
        let (chunk, slot) = self.index.chunk_mut(page);
        assert!(chunk.busy & (1 << slot) == 0, "a page is made whole while nobody copies into it");
        chunk.partial &= !(1 << slot);
        chunk.present |= 1 << slot;
    }
}
