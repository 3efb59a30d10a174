//! 64 pages of a file. Their states are bits, together in two lines of the processor's cache. The
//! frame, the epoch and the written bytes of a page are in its slot, right behind them.
//!
//! The first chunk of a file begins with a few slots, for most files are small. Any other chunk has
//! all of its slots.

use std::ops::{Deref, DerefMut};

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

/// The data of a page beside its bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    /// Epoch of its first write since it was clean.
    epoch: u64,
    frame: u32,
    /// Of a dirty page the first byte that was written, and the end of the last one.
    span: (u16, u16),
}

impl Slot {
    const EMPTY: Self = Self { epoch: 0, frame: NO_FRAME, span: WHOLE };
}

/// 64 pages.
pub(crate) type Chunk = Pages<[Slot]>;

/// The states of 64 pages, and the slots of those up to the last one that had a frame, at least.
#[derive(Debug)]
pub(crate) struct Pages<S: ?Sized> {
    states: States,
    slots: S,
}

/// The states of 64 pages, a bit each.
#[derive(Debug, Default)]
pub(crate) struct States {
    pub(crate) present: u64,
    pub(crate) partial: u64,
    pub(crate) dirty: u64,
    pub(crate) busy: u64,
    /// Pages with a pin.
    pub(crate) pinned: u64,
    pub(crate) filling: u64,
    pub(crate) flight: u64,
    pub(crate) sending: u64,
    /// How often they were read, and whether they stay.
    pub(crate) uses: Uses,
    /// Written since the last flush was sent, and kept for the next.
    pub(crate) kept: u64,
    /// Kept for the flush that was sent last.
    pub(crate) covered: u64,
    /// Only some of their bytes are ours: which, the file knows (`exact.rs`).
    pub(crate) exact: u64,
    /// Of dirty pages, and of those at the device: their bytes are in a record of the intent log.
    pub(crate) logged: u64,
    pub(crate) failing: u64,
    /// Their last write failed, and is perhaps being tried again.
    pub(crate) unwritable: u64,
    /// Further pins of pages that several readers have pinned.
    pins: Option<Box<[u8; CHUNK_PAGES as usize]>>,
    /// The number of the fill that last brought each page of a shared file. 0 without one.
    fills: Option<Box<[u64; CHUNK_PAGES as usize]>>,
}

impl Deref for Chunk {
    type Target = States;

    #[inline]
    fn deref(&self) -> &States {
        &self.states
    }
}

impl DerefMut for Chunk {
    #[inline]
    fn deref_mut(&mut self) -> &mut States {
        &mut self.states
    }
}

impl Chunk {
    /// Creates a chunk with at least this many slots.
    pub(super) fn with_slots(count: usize) -> Box<Self> {
        fn boxed<const COUNT: usize>() -> Box<Chunk> {
            Box::new(Pages { states: States::default(), slots: [Slot::EMPTY; COUNT] })
        }
        match count {
            0..=4 => boxed::<4>(),
            5..=16 => boxed::<16>(),
            _ => boxed::<{ CHUNK_PAGES as usize }>(),
        }
    }

    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Takes the place of a chunk with fewer slots.
    pub(super) fn replace(&mut self, other: &mut Self) {
        self.states = std::mem::take(&mut other.states);
        self.slots[..other.slots.len()].copy_from_slice(&other.slots);
    }

    pub(crate) fn frame(&self, slot: usize) -> Option<Frame> {
        let frame = self.slots.get(slot)?.frame;
        (frame != NO_FRAME).then_some(Frame(frame))
    }

    pub(crate) fn set_frame(&mut self, slot: usize, frame: Frame) {
        self.set_frames(slot, FrameRun { first: frame, count: 1 });
    }

    pub(crate) fn take_frame(&mut self, slot: usize) -> Option<Frame> {
        let frame = self.frame(slot)?;
        self.slots[slot].frame = NO_FRAME;
        Some(frame)
    }

    pub(crate) fn epoch(&self, slot: usize) -> u64 {
        self.slots[slot].epoch
    }

    pub(crate) fn set_epoch(&mut self, slot: usize, epoch: u64) {
        self.slots[slot].epoch = epoch;
    }

    pub(crate) fn span(&self, slot: usize) -> (u16, u16) {
        self.slots[slot].span
    }

    pub(crate) fn set_span(&mut self, slot: usize, span: (u16, u16)) {
        self.slots[slot].span = span;
    }

    /// All bytes of the pages from `slot` on were written.
    pub(crate) fn set_whole(&mut self, slot: usize, count: u32) {
        match count {
            1 => self.slots[slot].span = WHOLE,
            _ => {
                let slots = &mut self.slots[slot..slot + count as usize];
                slots.iter_mut().for_each(|slot| slot.span = WHOLE);
            }
        }
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
        let slots = &self.slots[slot..slot + most as usize];
        1 + slots.windows(2).take_while(|pair| pair[0].frame + 1 == pair[1].frame).count() as u32
    }

    /// Gives the pages from `slot` on the frames of a run.
    pub(crate) fn set_frames(&mut self, slot: usize, run: FrameRun) {
        let slots = &mut self.slots[slot..slot + run.count as usize];
        for (slot, given) in slots.iter_mut().zip(run.frames()) {
            debug_assert_eq!(slot.frame, NO_FRAME, "a frame would be lost");
            slot.frame = given.0;
        }
    }

    /// The frames of the pages of a mask, in order.
    pub(crate) fn frames_of(&self, mask: u64) -> impl Iterator<Item = Frame> + '_ {
        runs(mask)
            .flat_map(|(slot, count)| &self.slots[slot..slot + count as usize])
            .map(|slot| Frame(slot.frame))
    }

    /// Takes the frames of the pages of a mask, in order.
    pub(crate) fn take_frames(&mut self, mask: u64) -> impl Iterator<Item = Frame> + '_ {
        slots(mask).map(|slot| Frame(std::mem::replace(&mut self.slots[slot].frame, NO_FRAME)))
    }

    pub(crate) fn set_epochs(&mut self, slot: usize, count: u32, epoch: u64) {
        for slot in &mut self.slots[slot..slot + count as usize] {
            slot.epoch = epoch;
        }
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
        let mask = bits(slot, most);
        if self.pinned & mask == 0 {
            self.pinned |= mask;
            return most;
        }
        let States { pinned, pins, .. } = &mut self.states;
        let further = pins.get_or_insert_with(|| Box::new([0; CHUNK_PAGES as usize]));
        let mut count = 0;
        for (at, pins) in (slot..).zip(&mut further[slot..slot + most as usize]) {
            let Some(more) = pins.checked_add((*pinned >> at & 1) as u8) else { break };
            *pins = more;
            count += 1;
        }
        *pinned |= bits(slot, count);
        count
    }

    #[inline]
    pub(crate) fn unpin(&mut self, slot: usize, count: u32) {
        let mut last = bits(slot, count);
        assert!(self.pinned & last == last, "a page is unpinned once per pin");
        if let Some(further) = &mut self.pins {
            for at in slot..slot + count as usize {
                last &= !(u64::from(further[at] > 0) << at);
                further[at] = further[at].saturating_sub(1);
            }
        }
        self.pinned &= !last;
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
        let late = slots(mask).filter(|at| self.slots[*at].epoch > epoch);
        late.fold(mask, |mask, at| mask & !(1 << at))
    }

    /// Of `count` pages from `slot` on how many, from the first on, became dirty in the same epoch;
    /// and which.
    pub(crate) fn epochs_in_a_row(&self, slot: usize, most: u32) -> (u64, u32) {
        let slots = &self.slots[slot..slot + most as usize];
        let epoch = slots[0].epoch;
        (epoch, slots.iter().take_while(|slot| slot.epoch == epoch).count() as u32)
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
        let framed = self.slots.iter().enumerate().filter(|(_, slot)| slot.frame != NO_FRAME);
        framed.fold(0, |mask, (at, _)| mask | 1 << at)
    }

    /// Asserts that the states of each page exclude each other as the table at the top says.
    pub(super) fn verify(&self, first: u64) {
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
        for (slot, pins) in self.pins.iter().flat_map(|pins| pins.iter()).enumerate() {
            let is_pinned = self.pinned & 1 << slot != 0;
            assert!(is_pinned || *pins == 0, "pins of page {}", first + slot as u64);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.here() | self.flight == 0
    }
}
