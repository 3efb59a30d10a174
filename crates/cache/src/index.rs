//! The frames and the states of the pages of a file.
//!
//! Pages are kept in chunks of 64, so that a state is one bit of a word and "the next page in
//! offset order that may be written" is a mask and a count of zeroes. A tree of chunks rather than
//! a hash: writeback goes in offset order. Chunks with anything dirty are listed apart, so that
//! writeback does not walk a large clean cache.
//!
//! A page without a bit in `present` has no content here. States, and who may do what:
//!
//! | bits | the page | may be read | may be touched | may be sent |
//! |---|---|---|---|---|
//! | present | Clean | yes | yes | no |
//! | present, dirty | Dirty | yes | yes, in place | yes, unless in `flight` |
//! | partial, dirty | some of its bytes were written, the rest is on the device (`partial.rs`) | those bytes | yes, in place | once it is filled |
//! | busy | being copied into | wait | wait | no |
//! | filling | being read from the device | wait | wait | no |
//! | present, flight, sending | Writeback | yes | yes, with a new frame | no |
//! | flight | zeroes, or an older frame, are being written here | as the rest says | yes | no |
//! | dirty, failing | could not be written | yes | yes | when somebody asks again |
//! | dirty, unwritable | could not be written the last time | as the rest says | yes | as the rest says |
//! | present or partial, kept or covered | written, and kept for a flush (`kept.rs`) | as the rest says | yes, in place | no |
//! | exact | as the rest says; only some bytes of it are ours (`exact.rs`) | as the rest says | unless in `flight` | those bytes |

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use forebay_block::Frame;

use crate::bits::{bits, runs, slots};
use crate::frames::FrameRun;
use crate::limits::PAGE;
use crate::uses::Uses;

/// Pages in a chunk: as many as a word has bits.
pub(crate) const CHUNK_PAGES: u64 = 64;

/// All bytes of a page.
pub(crate) const WHOLE: (u16, u16) = (0, PAGE as u16);

const NO_FRAME: u32 = u32::MAX;

/// 64 pages.
#[derive(Debug)]
pub(crate) struct Chunk {
    frames: [u32; CHUNK_PAGES as usize],
    epochs: [u64; CHUNK_PAGES as usize],
    pins: [u8; CHUNK_PAGES as usize],
    /// Pages with a pin.
    pub(crate) pinned: u64,
    pub(crate) present: u64,
    pub(crate) partial: u64,
    pub(crate) dirty: u64,
    pub(crate) busy: u64,
    pub(crate) filling: u64,
    pub(crate) flight: u64,
    pub(crate) sending: u64,
    pub(crate) failing: u64,
    /// Their last write failed, and is perhaps being tried again.
    pub(crate) unwritable: u64,
    /// Written since the last flush was sent, and kept for the next.
    pub(crate) kept: u64,
    /// Kept for the flush that was sent last.
    pub(crate) covered: u64,
    /// Only some of their bytes are ours: which, the file knows (`exact.rs`).
    pub(crate) exact: u64,
    /// Of dirty pages the first byte that was written, and the end of the last one.
    pub(crate) spans: [(u16, u16); CHUNK_PAGES as usize],
    /// How often they were read, and whether they stay.
    pub(crate) uses: Uses,
    /// The number of the fill that last brought each page of a shared file. 0 without one.
    fills: Option<Box<[u64; CHUNK_PAGES as usize]>>,
}

impl Chunk {
    fn new() -> Self {
        Self {
            frames: [NO_FRAME; CHUNK_PAGES as usize],
            epochs: [0; CHUNK_PAGES as usize],
            pins: [0; CHUNK_PAGES as usize],
            pinned: 0,
            present: 0,
            partial: 0,
            dirty: 0,
            busy: 0,
            filling: 0,
            flight: 0,
            sending: 0,
            failing: 0,
            unwritable: 0,
            kept: 0,
            covered: 0,
            exact: 0,
            spans: [WHOLE; CHUNK_PAGES as usize],
            uses: Uses::default(),
            fills: None,
        }
    }

    pub(crate) fn frame(&self, slot: usize) -> Option<Frame> {
        (self.frames[slot] != NO_FRAME).then(|| Frame(self.frames[slot]))
    }

    pub(crate) fn set_frame(&mut self, slot: usize, frame: Frame) {
        debug_assert_eq!(self.frames[slot], NO_FRAME, "a frame would be lost");
        self.frames[slot] = frame.0;
    }

    pub(crate) fn take_frame(&mut self, slot: usize) -> Option<Frame> {
        let frame = self.frame(slot);
        self.frames[slot] = NO_FRAME;
        frame
    }

    pub(crate) fn epoch(&self, slot: usize) -> u64 {
        self.epochs[slot]
    }

    pub(crate) fn set_epoch(&mut self, slot: usize, epoch: u64) {
        self.epochs[slot] = epoch;
    }

    /// The pages from `slot` on are being read by the fill with this number.
    pub(crate) fn set_fill(&mut self, slot: usize, count: u32, number: u64) {
        let fills = self.fills.get_or_insert_with(|| Box::new([0; CHUNK_PAGES as usize]));
        fills[slot..slot + count as usize].fill(number);
    }

    /// The whole pages whose bytes may be older than the fill with this number. Dirty pages, pages
    /// at the device and pages kept for a flush are newer: they were written here.
    pub(crate) fn older_than(&self, number: u64) -> u64 {
        let newer = |slot: &usize| self.fills.as_ref().is_some_and(|fills| fills[*slot] >= number);
        let clean = self.present & !(self.dirty | self.sending | self.held());
        slots(clean).filter(newer).fold(clean, |mask, slot| mask & !(1 << slot))
    }

    /// How many of `most` pages from `slot` on lie one after the other in memory, from that of
    /// `slot` on.
    #[inline]
    pub(crate) fn frames_in_a_row(&self, slot: usize, most: u32) -> u32 {
        let frames = &self.frames[slot..slot + most as usize];
        1 + frames.windows(2).take_while(|pair| pair[0] + 1 == pair[1]).count() as u32
    }

    /// Gives the pages from `slot` on the frames of a run.
    pub(crate) fn set_frames(&mut self, slot: usize, run: FrameRun) {
        for (frame, given) in self.frames[slot..].iter_mut().zip(run.frames()) {
            debug_assert_eq!(*frame, NO_FRAME, "a frame would be lost");
            *frame = given.0;
        }
    }

    /// The frames of the pages of a mask, in order.
    pub(crate) fn frames_of(&self, mask: u64) -> impl Iterator<Item = Frame> + '_ {
        runs(mask)
            .flat_map(|(slot, count)| &self.frames[slot..slot + count as usize])
            .map(|frame| Frame(*frame))
    }

    /// Takes the frames of the pages of a mask, in order.
    pub(crate) fn take_frames(&mut self, mask: u64) -> impl Iterator<Item = Frame> + '_ {
        slots(mask).map(|slot| Frame(std::mem::replace(&mut self.frames[slot], NO_FRAME)))
    }

    pub(crate) fn set_epochs(&mut self, slot: usize, count: u32, epoch: u64) {
        self.epochs[slot..slot + count as usize].fill(epoch);
    }

    /// Marks the pages from `slot` on as being copied into.
    pub(crate) fn begin_copy(&mut self, slot: usize, count: u32) {
        let mask = bits(slot, count);
        debug_assert_eq!(self.busy & mask, 0, "a page is copied into once");
        debug_assert_eq!(self.sending & mask, 0, "bytes at the device do not change");
        self.busy |= mask;
    }

    /// Pins up to `most` pages from `slot` on for a reader; returns how many: a page may have too
    /// many readers already.
    #[inline]
    pub(crate) fn pin(&mut self, slot: usize, most: u32) -> u32 {
        let mut count = 0;
        for pins in &mut self.pins[slot..slot + most as usize] {
            let Some(more) = pins.checked_add(1) else { break };
            *pins = more;
            count += 1;
        }
        self.pinned |= bits(slot, count);
        count
    }

    #[inline]
    pub(crate) fn unpin(&mut self, slot: usize, count: u32) {
        for slot in slot..slot + count as usize {
            assert!(self.pins[slot] > 0, "a page is unpinned once per pin");
            self.pins[slot] -= 1;
            if self.pins[slot] == 0 {
                self.pinned &= !(1 << slot);
            }
        }
    }

    /// The pages that are clean, and that nobody uses.
    pub(crate) fn idle_clean(&self) -> u64 {
        self.present
            & !(self.dirty | self.busy | self.filling | self.flight | self.pinned | self.held())
    }

    /// Partial pages that nobody uses, and that need not be written.
    pub(crate) fn idle_partial(&self) -> u64 {
        self.partial & !(self.dirty | self.busy | self.flight | self.pinned | self.held())
    }

    /// The dirty pages that may be sent whole.
    pub(crate) fn sendable(&self) -> u64 {
        self.dirty & !(self.busy | self.flight | self.failing | self.partial | self.exact)
    }

    /// Those of `mask` that became dirty in this epoch or before.
    pub(crate) fn not_after(&self, mask: u64, epoch: u64) -> u64 {
        let late = |at: &usize| mask & (1 << at) != 0 && self.epochs[*at] > epoch;
        (0..CHUNK_PAGES as usize).filter(late).fold(mask, |mask, at| mask & !(1 << at))
    }

    /// Of `count` pages from `slot` on how many, from the first on, became dirty in the same epoch;
    /// and which.
    pub(crate) fn epochs_in_a_row(&self, slot: usize, most: u32) -> (u64, u32) {
        let epochs = &self.epochs[slot..slot + most as usize];
        (epochs[0], epochs.iter().take_while(|epoch| **epoch == epochs[0]).count() as u32)
    }

    /// The pages that are here, in whole or in part, or on their way here.
    pub(crate) fn here(&self) -> u64 {
        self.present | self.partial | self.busy | self.filling
    }

    /// Pages kept for a flush.
    pub(crate) fn held(&self) -> u64 {
        self.kept | self.covered
    }

    /// Those of `mask` that are held for nothing else. A clean page whose range is being discarded
    /// is among them: it is at the device, but not sent.
    pub(crate) fn only_held(&self, mask: u64) -> u64 {
        mask & !(self.dirty | self.busy | self.sending)
    }

    /// Pages that have a frame.
    pub(crate) fn with_frame(&self) -> u64 {
        let frames = self.frames.iter().enumerate().filter(|(_, frame)| **frame != NO_FRAME);
        frames.fold(0, |mask, (slot, _)| mask | 1 << slot)
    }

    /// Asserts that the states of each page exclude each other as the table at the top says.
    fn verify(&self, first: u64) {
        let none = |mask: u64, what: &str| {
            assert_eq!(mask, 0, "page {}: {what}", first + u64::from(mask.trailing_zeros()));
        };
        let here = self.present | self.partial | self.busy;
        none(self.present & self.partial, "whole and partial");
        none(self.filling & (self.present | self.partial | self.busy), "here, and being read");
        none(self.dirty & !here, "dirty without content");
        none(self.sending & !(self.flight & self.present), "sent without being at the device");
        none(self.sending & self.dirty, "the version at the device is dirty");
        none(self.failing & !self.unwritable, "failing without a failed write");
        none(self.failing & !self.dirty, "failing without being dirty");
        none(self.kept & self.covered, "kept twice");
        none(self.held() & !here, "kept without content");
        none(self.exact & !here, "bytes that are not here are ours");
        none(self.pinned & !(self.present | self.partial), "pinned without content");
        let frames = self.with_frame();
        none((self.present | self.partial | self.filling) & !frames, "without a frame");
        none(frames & !self.here(), "a frame of nothing");
        for (slot, pins) in self.pins.iter().enumerate() {
            assert_eq!(
                *pins > 0,
                self.pinned & 1 << slot != 0,
                "pins of page {}",
                first + slot as u64
            );
        }
    }

    fn is_empty(&self) -> bool {
        self.here() | self.flight == 0
    }
}

/// The chunk and the slot within it of a page.
pub(crate) fn place(page: u64) -> (u64, usize) {
    (page / CHUNK_PAGES, (page % CHUNK_PAGES) as usize)
}

/// The pages of one file.
#[derive(Debug, Default)]
pub(crate) struct Index {
    chunks: BTreeMap<u64, Box<Chunk>>,
    dirty: BTreeSet<u64>,
    /// Dirty pages in all.
    dirty_pages: u64,
}

impl Index {
    pub(crate) fn get(&self, page: u64) -> Option<(&Chunk, usize)> {
        let (number, slot) = place(page);
        self.chunks.get(&number).map(|chunk| (&**chunk, slot))
    }

    pub(crate) fn get_mut(&mut self, page: u64) -> Option<(&mut Chunk, usize)> {
        let (number, slot) = place(page);
        self.chunks.get_mut(&number).map(|chunk| (&mut **chunk, slot))
    }

    /// The chunk of a page, made where it is not there.
    pub(crate) fn chunk_mut(&mut self, page: u64) -> (&mut Chunk, usize) {
        let (number, slot) = place(page);
        (&mut **self.chunks.entry(number).or_insert_with(|| Box::new(Chunk::new())), slot)
    }

    /// Changes the chunk of a page, and keeps the list of chunks with anything dirty.
    ///
    /// # Panics
    /// When the page has no chunk.
    #[inline]
    pub(crate) fn change<R>(&mut self, page: u64, change: impl FnOnce(&mut Chunk) -> R) -> R {
        let (number, _) = place(page);
        let chunk = self.chunks.get_mut(&number).expect("a page in use has a chunk");
        let before = chunk.dirty;
        let result = change(chunk);
        let after = chunk.dirty;
        if before != after {
            self.count(number, before, after);
        }
        result
    }

    /// Counts the dirty pages of a chunk after a change.
    #[inline(never)]
    fn count(&mut self, number: u64, before: u64, after: u64) {
        self.dirty_pages += u64::from(after.count_ones());
        self.dirty_pages -= u64::from(before.count_ones());
        match (before != 0, after != 0) {
            (false, true) => self.dirty.insert(number),
            (true, false) => self.dirty.remove(&number),
            _ => true,
        };
    }

    pub(crate) fn mark_dirty(&mut self, page: u64) {
        self.change(page, |chunk| chunk.dirty |= 1 << place(page).1);
    }

    pub(crate) fn clear_dirty(&mut self, page: u64) {
        self.change(page, |chunk| chunk.dirty &= !(1 << place(page).1));
    }

    /// Drops a page's chunk when nothing is left in it.
    pub(crate) fn tidy(&mut self, page: u64) {
        let (number, _) = place(page);
        if self.chunks.get(&number).is_some_and(|chunk| chunk.is_empty()) {
            self.chunks.remove(&number);
        }
    }

    /// The first page from `from` on (and below `below`) of those that `which` picks of each
    /// chunk's dirty ones.
    pub(crate) fn next_dirty(
        &self,
        from: u64,
        below: u64,
        which: impl Fn(u64, &Chunk) -> u64,
    ) -> Option<u64> {
        if from >= below {
            return None;
        }
        let (first, slot) = place(from);
        for &number in self.dirty.range(first..=place(below - 1).0) {
            let mut mask = which(number * CHUNK_PAGES, &self.chunks[&number]);
            if number == first {
                mask &= u64::MAX << slot;
            }
            if mask != 0 {
                let page = number * CHUNK_PAGES + u64::from(mask.trailing_zeros());
                return (page < below).then_some(page);
            }
        }
        None
    }

    /// The last page at `from` or above of those that `which` picks of each chunk's dirty ones.
    pub(crate) fn last_dirty(&self, from: u64, which: impl Fn(u64, &Chunk) -> u64) -> Option<u64> {
        let (first, slot) = place(from);
        for &number in self.dirty.range(first..).rev() {
            let mut mask = which(number * CHUNK_PAGES, &self.chunks[&number]);
            if number == first {
                mask &= u64::MAX << slot;
            }
            if mask != 0 {
                return Some(number * CHUNK_PAGES + 63 - u64::from(mask.leading_zeros()));
            }
        }
        None
    }

    /// Dirty pages in all.
    pub(crate) fn dirty_count(&self) -> u64 {
        self.dirty_pages
    }

    /// Dirty pages of a range, counted.
    pub(crate) fn count_dirty(&self, pages: Range<u64>) -> u64 {
        let (first, slot) = place(pages.start);
        let (last, end) = place(pages.end);
        self.dirty
            .range(first..=last)
            .map(|number| {
                let mut bits = self.chunks[number].dirty;
                bits &= if *number == first { u64::MAX << slot } else { u64::MAX };
                bits &= if *number == last { (1 << end) - 1 } else { u64::MAX };
                u64::from(bits.count_ones())
            })
            .sum()
    }

    /// All dirty pages, in order.
    pub(crate) fn dirty_pages(&self) -> Vec<u64> {
        let pages = |number: &u64| {
            let first = number * CHUNK_PAGES;
            slots(self.chunks[number].dirty).map(move |slot| first + slot as u64)
        };
        self.dirty.iter().flat_map(pages).collect()
    }

    /// All chunks, each with the number of its first page.
    pub(crate) fn chunks_mut(&mut self) -> impl Iterator<Item = (u64, &mut Chunk)> {
        self.chunks.iter_mut().map(|(number, chunk)| (number * CHUNK_PAGES, &mut **chunk))
    }

    /// All chunks, each with the number of its first page.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = (u64, &Chunk)> {
        self.chunks.iter().map(|(number, chunk)| (number * CHUNK_PAGES, &**chunk))
    }

    /// Number of chunks.
    #[cfg(debug_assertions)]
    pub(crate) fn len(&self) -> usize {
        self.chunks.len()
    }

    /// Asserts the invariants of each chunk, and that chunks with dirty pages are listed.
    pub(crate) fn verify(&self) {
        self.chunks().for_each(|(first, chunk)| chunk.verify(first));
        let dirty = || self.chunks.iter().filter(|(_, chunk)| chunk.dirty != 0);
        assert!(
            dirty().map(|(number, _)| number).eq(&self.dirty),
            "chunks with dirty pages are listed"
        );
        let pages: u64 = dirty().map(|(_, chunk)| u64::from(chunk.dirty.count_ones())).sum();
        assert_eq!(self.dirty_pages, pages, "dirty pages are counted");
    }

    /// Whether no page is being copied, filled, written or read anywhere.
    pub(crate) fn is_quiet(&self) -> bool {
        self.is_quiet_in(&(0..u64::MAX))
    }

    /// The same of a range of pages.
    pub(crate) fn is_quiet_in(&self, pages: &Range<u64>) -> bool {
        self.chunks.range(numbers(pages)).all(|(number, chunk)| {
            (chunk.busy | chunk.filling | chunk.flight | chunk.pinned) & part_of(*number, pages)
                == 0
        })
    }

    /// The chunks of a range of pages, each with the number of its first page and the bits of those
    /// that are in the range.
    pub(crate) fn chunks_in(
        &mut self,
        pages: &Range<u64>,
    ) -> impl Iterator<Item = (u64, u64, &mut Chunk)> {
        let pages = pages.clone();
        self.chunks.range_mut(numbers(&pages)).map(move |(number, chunk)| {
            (number * CHUNK_PAGES, part_of(*number, &pages), &mut **chunk)
        })
    }

    /// Drops the empty chunks of a range of pages.
    pub(crate) fn tidy_in(&mut self, pages: &Range<u64>) {
        let chunks = self.chunks.range(numbers(pages));
        let empty: Vec<u64> =
            chunks.filter(|(_, chunk)| chunk.is_empty()).map(|(number, _)| *number).collect();
        for number in empty {
            self.chunks.remove(&number);
        }
    }

    /// Pages of a range that are here, in whole or in part.
    pub(crate) fn pages_in(&self, pages: &Range<u64>) -> Vec<u64> {
        self.chunks
            .range(numbers(pages))
            .flat_map(|(number, chunk)| {
                let here = (chunk.present | chunk.partial) & part_of(*number, pages);
                slots(here).map(move |slot| number * CHUNK_PAGES + slot as u64)
            })
            .collect()
    }
}

/// Numbers of the chunks of a range of pages.
fn numbers(pages: &Range<u64>) -> Range<u64> {
    let start = place(pages.start).0;
    start..pages.end.div_ceil(CHUNK_PAGES).max(start)
}

/// The bits of those pages of a chunk that are in a range.
fn part_of(number: u64, pages: &Range<u64>) -> u64 {
    let first = number * CHUNK_PAGES;
    let (start, end) =
        (pages.start.saturating_sub(first), pages.end.saturating_sub(first).min(CHUNK_PAGES));
    if start < end { bits(start as usize, (end - start) as u32) } else { 0 }
}
