//! Writing of pages of a shared file that are ours in part only: only bytes that the program wrote
//! are sent.
//!
//! Another program may change any byte that this program did not write, at any time, also in a page
//! in our memory. So the rest of such a page is never sent, however recently it was read. The bytes
//! go through the kernel's page cache ([`Flight::Exact`]), which merges them with the current page
//! under the inode's lock. A page that was written whole goes direct, as under the lease.
//!
//! ```text
//!  page      |#####..##.......|################|####............|
//!              exact  exact     direct            exact                 # written by the program
//! ```
//!
//! The guarantee: a shared file gets no byte that the program did not write, also if kept pages are
//! written again after a failed flush. The price: such a write is alone at the device.
//!
//! Under the lease nobody else changes anything, and whole pages are sent. The lease may break, so
//! each page remembers the first and the last byte written since it became dirty
//! ([`Chunk::span`]). That is exact if the writes of a page touch each other. Otherwise the bytes
//! between them count as written.

use std::ops::Range;

use forebay_block::{Bio, Class, Errno, Operation};

use crate::file::CachedFile;
use crate::index::{Chunk, WHOLE};
use crate::limits::{GATHER_PAGES, GATHER_SEGMENTS, PAGE};
use crate::partial::{Exact, Mask};
use crate::settled::Settled;
use crate::writeback::flight::Flight;
use crate::writeback::segments::Segments;

impl CachedFile {
    /// A part of a page was written. `newly`: it was not dirty before. `is_owed`: an older version
    /// of it was not written, so this write stands for both.
    pub(crate) fn publish_exact(
        &mut self,
        page: u64,
        bytes: Range<usize>,
        newly: bool,
        is_owed: bool,
    ) {
        let (chunk, slot) = self.index.get_mut(page).expect("a published page has a chunk");
        let (start, end) = (bytes.start as u16, bytes.end as u16);
        let span = chunk.span(slot);
        let is_exact = chunk.exact & (1 << slot) != 0;
        let span = match (is_owed && !is_exact, newly) {
            (true, _) => WHOLE,
            (false, true) => (start, end),
            (false, false) => (span.0.min(start), span.1.max(end)),
        };
        chunk.set_span(slot, span);
        if self.lease.is_exclusive() {
            return;
        }
        if is_exact {
            let exact = self.odd.exact_mut(page).expect("a page with the bit has a record");
            exact.write(bytes);
            if exact.dirty().is_full() {
                self.own_all(page);
            }
        } else if newly && !is_owed {
            let kept = if chunk.held() & (1 << slot) != 0 { Mask::full() } else { Mask::new() };
            self.own_part(page, Exact::new(Mask::of(bytes), kept));
        }
    }

    /// Records that only these bytes of a page are ours.
    fn own_part(&mut self, page: u64, exact: Exact) {
        let (chunk, slot) = self.index.get_mut(page).expect("a page that is here has a chunk");
        chunk.exact |= 1 << slot;
        debug_assert!(self.lease.is_shared(), "all bytes of a page are ours under the lease");
        self.odd.set_exact(page, exact);
    }

    /// Records that all bytes of a page before the end of the file are ours.
    pub(crate) fn own_all(&mut self, page: u64) {
        self.disown(page);
        let (chunk, slot) = self.index.get_mut(page).expect("a page that is here has a chunk");
        chunk.set_whole(slot, 1);
        let inside = self.sizes.bytes_inside(page);
        if self.lease.is_shared() && inside < PAGE as usize {
            self.own_part(page, Exact::new(Mask::of(0..inside), Mask::of(0..inside)));
        }
    }

    /// Removes the record of a page.
    pub(crate) fn disown(&mut self, page: u64) {
        if self.odd.end_exact(page)
            && let Some((chunk, slot)) = self.index.get_mut(page)
        {
            chunk.exact &= !(1 << slot);
        }
    }

    /// The lease ends: only the written bytes of each dirty page are ours from now on.
    pub(crate) fn claim_dirty(&mut self) {
        for page in self.index.dirty_pages() {
            self.claim(page);
        }
    }

    /// Records the bytes of a page of a shared file that were written under the lease.
    pub(crate) fn claim(&mut self, page: u64) {
        let (chunk, slot) = self.index.get(page).expect("a dirty page has a chunk");
        let (start, end) = chunk.span(slot);
        let partial = self.odd.partial(page);
        let inside = self.sizes.bytes_inside(page);
        // The page that contains the end counts as written whole after a failed write. The bytes
        // beyond the end are nobody's.
        let is_whole = partial.is_none() && (start, end) == WHOLE && inside == PAGE as usize;
        if chunk.exact & (1 << slot) != 0 || is_whole {
            return;
        }
        let span = || Mask::of(usize::from(start)..usize::from(end));
        let mut dirty = partial.map_or_else(span, |partial| partial.mask().clone());
        dirty.remove(inside..PAGE as usize);
        self.own_part(page, Exact::new(dirty, Mask::new()));
    }

    /// A page was written whole, or up to the end of the file, and is kept.
    pub(crate) fn keep_exact(&mut self, page: u64, is_touched: bool) {
        let (chunk, slot) = self.index.get(page).expect("a written page has a chunk");
        let (start, end) = chunk.span(slot);
        if let Some(exact) = self.odd.exact_mut(page) {
            exact.keep_all();
        } else if !is_touched && (start, end) != WHOLE {
            let kept = Mask::of(usize::from(start)..usize::from(end));
            self.own_part(page, Exact::new(Mask::new(), kept));
        }
    }

    /// The kept bytes of a page are durable, or were given up.
    pub(crate) fn end_keeping_exact(&mut self, page: u64) {
        let (chunk, slot) = self.index.get(page).expect("a kept page has a chunk");
        let is_dirty = chunk.dirty & (1 << slot) != 0;
        match self.odd.exact_mut(page) {
            Some(exact) if is_dirty => exact.end_keeping(),
            Some(_) => self.disown(page),
            None => {}
        }
    }

    /// The kept bytes of a page have to be written again.
    pub(crate) fn redo_exact(&mut self, page: u64) {
        let inside = self.sizes.bytes_inside(page);
        let Some(exact) = self.odd.exact_mut(page) else {
            return if inside < PAGE as usize {
                self.own_all(page);
            };
        };
        exact.redo(inside);
        if exact.dirty().is_full() {
            self.own_all(page);
        }
    }

    /// The file was cut within this page.
    pub(crate) fn cut_exact(&mut self, page: u64, settled: &mut Settled) {
        let inside = self.sizes.bytes_inside(page);
        let Some((chunk, slot)) = self.index.get_mut(page) else { return };
        if chunk.frame(slot).is_none() {
            return;
        }
        let (start, end) = chunk.span(slot);
        let start = if usize::from(start) < inside { start } else { 0 };
        chunk.set_span(slot, (start, end.min(inside as u16)));
        let (is_dirty, is_held) = (chunk.dirty & (1 << slot) != 0, chunk.held() & (1 << slot) != 0);
        if self.lease.is_exclusive() || !(is_dirty || is_held) {
            return;
        }
        if let Some(exact) = self.odd.exact_mut(page) {
            exact.cut(inside);
        } else {
            let ours = |is_ours| if is_ours { Mask::of(0..inside) } else { Mask::new() };
            self.own_part(page, Exact::new(ours(is_dirty), ours(is_held)));
        }
        let exact = self.odd.exact(page).expect("it has a record now");
        if exact.is_empty() {
            // No written byte is left.
            self.drop_page(page, settled);
        } else if is_dirty && exact.dirty().is_empty() {
            self.end_failure(page);
            self.end_dirty(page, settled);
        }
    }

    /// Returns the next run of bytes through the kernel's cache, of pages not after `covers`: parts
    /// of pages, and after a failed flush whole ones too. It is alone at the device, so it is sent
    /// when all other I/O of the file has ended.
    pub(crate) fn next_exact(&mut self, covers: Option<u64>, class: Class) -> Option<Bio> {
        if !self.odd.has_exact() && !self.writes_through() {
            return None;
        }
        let of_all = if self.writes_through() { u64::MAX } else { 0 };
        let sendable = |chunk: &Chunk| {
            chunk.dirty & (chunk.exact | of_all) & !(chunk.busy | chunk.flight | chunk.failing)
        };
        let which = |_: u64, chunk: &Chunk| match covers {
            Some(covers) => chunk.not_after(sendable(chunk), covers),
            None => sendable(chunk),
        };
        let first = self.index.next_dirty(0, u64::MAX, which)?;
        if self.sweep.drain(self.flights.is_empty()) {
            return None;
        }
        debug_assert!(self.flights.is_empty(), "an exact write is alone at the device");
        let mut bytes = first * PAGE..first * PAGE;
        let mut segments = Segments::default();
        let mut page = first;
        while page - first < GATHER_PAGES && segments.count() < GATHER_SEGMENTS {
            let Some((chunk, slot)) = self.index.get(page) else { break };
            let Some(frame) = chunk.frame(slot) else { break };
            if sendable(chunk) & (1 << slot) == 0 {
                break;
            }
            let run = match self.odd.exact(page) {
                Some(exact) => exact.dirty().first_run().expect("a dirty page has bytes to write"),
                None => 0..self.sizes.bytes_inside(page),
            };
            if page == first {
                bytes = first * PAGE + run.start as u64..first * PAGE + run.start as u64;
            } else if run.start > 0 {
                break;
            }
            segments.push_part(frame, run.clone());
            bytes.end = page * PAGE + run.end as u64;
            page += 1;
            if bytes.end < page * PAGE {
                break;
            }
        }
        for page in first..page {
            let (chunk, slot) = self.index.get_mut(page).expect("looked at");
            chunk.flight |= 1 << slot;
        }
        let (offset, length) = (bytes.start, bytes.end - bytes.start);
        let flight = self.flights.start(Flight::Exact { bytes });
        let segments = segments.cut_to(length);
        Some(self.bio(Operation::WriteBuffered, offset, length, segments, class, flight))
    }

    /// Handles the end of such a run. Nobody has touched its pages meanwhile.
    pub(crate) fn settle_exact(
        &mut self,
        bytes: &Range<u64>,
        result: Result<u64, Errno>,
        settled: &mut Settled,
    ) {
        self.flushes.note_change();
        if result.is_ok() {
            self.sizes.note_written(bytes.end);
        }
        for page in bytes.start / PAGE..bytes.end.div_ceil(PAGE) {
            let (chunk, slot) = self.index.get_mut(page).expect("a page in flight has a chunk");
            chunk.flight &= !(1 << slot);
            if result.is_ok() {
                let start = bytes.start.max(page * PAGE) - page * PAGE;
                let end = bytes.end.min((page + 1) * PAGE) - page * PAGE;
                self.settle_exact_page(page, start as usize..end as usize, settled);
            } else {
                self.mark_failing(page);
            }
        }
        if let Err(errno) = result {
            self.report_failure(bytes.start, errno);
        }
    }

    fn settle_exact_page(&mut self, page: u64, bytes: Range<usize>, settled: &mut Settled) {
        let is_done = self.odd.exact_mut(page).is_none_or(|exact| exact.note_written(bytes));
        let (chunk, slot) = self.index.get_mut(page).expect("a page in flight has a chunk");
        let bit = 1 << slot;
        self.counts.end_unwritable(u32::from(chunk.unwritable & bit != 0));
        chunk.unwritable &= !bit;
        if is_done {
            self.end_dirty(page, settled);
        }
        self.keep(page - slot as u64, bit);
    }

    /// All dirty bytes of a page were written, or cut off.
    fn end_dirty(&mut self, page: u64, settled: &mut Settled) {
        let (chunk, slot) = self.index.get(page).expect("a dirty page has a chunk");
        settled.written.extend(chunk.frame(slot));
        let epoch = chunk.epoch(slot);
        self.index.clear_dirty(page);
        self.epochs.remove(epoch, 1);
    }
}
