//! Which page has which frame, and in which state it is.
//!
//! Pages are kept in chunks of 64, so that a state is one bit of a word and "the next page in offset order that may
//! be written" is a mask and a count of zeroes. A tree of chunks rather than a hash: writeback goes in offset
//! order. Chunks with anything dirty are listed apart, so that writeback does not walk a large clean cache.
//!
//! A page without a bit in `present` has no content here. States, and who may do what:
//!
//! | bits | the page | may be read | may be touched | may be sent |
//! |---|---|---|---|---|
//! | present | Clean | yes | yes | no |
//! | present, dirty | Dirty | yes | yes, in place | yes, unless in `flight` |
//! | busy | being copied into | wait | wait | no |
//! | filling | being read from the device | wait | wait | no |
//! | present, flight, sending | Writeback | yes | yes, with a new frame | no |
//! | flight | zeroes, or an older frame, are being written here | as the rest says | yes | no |
//! | dirty, failing | could not be written | yes | yes | when somebody asks again |

use std::collections::{BTreeMap, BTreeSet};

use forebay_block::Frame;

/// Pages in a chunk.
pub(crate) const CHUNK_PAGES: u64 = 64;

const NO_FRAME: u32 = u32::MAX;

/// 64 pages.
#[derive(Debug)]
pub(crate) struct Chunk {
    frames: [u32; CHUNK_PAGES as usize],
    epochs: [u64; CHUNK_PAGES as usize],
    pins: [u8; CHUNK_PAGES as usize],
    pub(crate) present: u64,
    pub(crate) dirty: u64,
    pub(crate) busy: u64,
    pub(crate) filling: u64,
    pub(crate) flight: u64,
    pub(crate) sending: u64,
    pub(crate) failing: u64,
    /// Already in the list of clean pages.
    pub(crate) listed: u64,
}

impl Chunk {
    fn new() -> Self {
        Self {
            frames: [NO_FRAME; CHUNK_PAGES as usize],
            epochs: [0; CHUNK_PAGES as usize],
            pins: [0; CHUNK_PAGES as usize],
            present: 0,
            dirty: 0,
            busy: 0,
            filling: 0,
            flight: 0,
            sending: 0,
            failing: 0,
            listed: 0,
        }
    }

    pub(crate) fn frame(&self, slot: usize) -> Option<Frame> {
        (self.frames[slot] != NO_FRAME).then(|| Frame(self.frames[slot]))
    }

    pub(crate) fn set_frame(&mut self, slot: usize, frame: Frame) {
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

    pub(crate) fn pinned(&self, slot: usize) -> bool {
        self.pins[slot] > 0
    }

    /// Pins a page for a reader; false when too many readers hold it already.
    pub(crate) fn pin(&mut self, slot: usize) -> bool {
        match self.pins[slot].checked_add(1) {
            Some(pins) => {
                self.pins[slot] = pins;
                true
            }
            None => false,
        }
    }

    pub(crate) fn unpin(&mut self, slot: usize) {
        assert!(self.pins[slot] > 0, "a page is unpinned once per pin");
        self.pins[slot] -= 1;
    }

    /// Whether a page is clean, and nobody uses it.
    pub(crate) fn is_idle_clean(&self, slot: usize) -> bool {
        let used = self.dirty | self.busy | self.filling | self.flight;
        self.present & !used & (1 << slot) != 0 && !self.pinned(slot)
    }

    fn any_pinned(&self) -> bool {
        self.pins.iter().any(|pins| *pins > 0)
    }

    fn is_empty(&self) -> bool {
        self.present | self.busy | self.filling | self.flight | self.listed == 0
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

    pub(crate) fn mark_dirty(&mut self, page: u64) {
        let (number, slot) = place(page);
        let chunk = self.chunks.get_mut(&number).expect("a dirty page has a chunk");
        if chunk.dirty == 0 {
            self.dirty.insert(number);
        }
        chunk.dirty |= 1 << slot;
    }

    pub(crate) fn clear_dirty(&mut self, page: u64) {
        let (number, slot) = place(page);
        let chunk = self.chunks.get_mut(&number).expect("a dirty page has a chunk");
        chunk.dirty &= !(1 << slot);
        if chunk.dirty == 0 {
            self.dirty.remove(&number);
        }
    }

    /// Drops a page's chunk when nothing is left in it.
    pub(crate) fn tidy(&mut self, page: u64) {
        let (number, _) = place(page);
        if self.chunks.get(&number).is_some_and(|chunk| chunk.is_empty()) {
            self.chunks.remove(&number);
        }
    }

    /// The first page from `from` on (and below `below`) that is dirty and passes.
    pub(crate) fn next_dirty(
        &self,
        from: u64,
        below: u64,
        passes: impl Fn(u64, &Chunk, usize) -> bool,
    ) -> Option<u64> {
        if from >= below {
            return None;
        }
        let (first, slot) = place(from);
        for &number in self.dirty.range(first..=place(below - 1).0) {
            let chunk = &self.chunks[&number];
            let mut bits = chunk.dirty;
            if number == first {
                bits &= u64::MAX << slot;
            }
            while bits != 0 {
                let slot = bits.trailing_zeros() as usize;
                let page = number * CHUNK_PAGES + slot as u64;
                if page >= below {
                    return None;
                }
                if passes(page, chunk, slot) {
                    return Some(page);
                }
                bits &= bits - 1;
            }
        }
        None
    }

    /// The last dirty page that passes, at `from` or above it.
    pub(crate) fn last_dirty(&self, from: u64, passes: impl Fn(u64, &Chunk, usize) -> bool) -> Option<u64> {
        for &number in self.dirty.range(place(from).0..).rev() {
            let chunk = &self.chunks[&number];
            let mut bits = chunk.dirty;
            while bits != 0 {
                let slot = 63 - bits.leading_zeros() as usize;
                let page = number * CHUNK_PAGES + slot as u64;
                if page < from {
                    return None;
                }
                if passes(page, chunk, slot) {
                    return Some(page);
                }
                bits &= !(1 << slot);
            }
        }
        None
    }

    /// Numbers of the dirty pages at `from` or above, counted.
    pub(crate) fn count_dirty(&self, from: u64) -> u64 {
        let (first, slot) = place(from);
        self.dirty
            .range(first..)
            .map(|number| {
                let bits = self.chunks[number].dirty;
                let bits = if *number == first { bits & (u64::MAX << slot) } else { bits };
                u64::from(bits.count_ones())
            })
            .sum()
    }

    /// All chunks, each with the number of its first page.
    pub(crate) fn chunks_mut(&mut self) -> impl Iterator<Item = (u64, &mut Chunk)> {
        self.chunks.iter_mut().map(|(number, chunk)| (number * CHUNK_PAGES, &mut **chunk))
    }

    /// Whether no page is being copied, filled, written or read anywhere.
    pub(crate) fn is_quiet(&self) -> bool {
        self.chunks
            .values()
            .all(|chunk| chunk.busy | chunk.filling | chunk.flight == 0 && !chunk.any_pinned())
    }

    /// Pages at `from` or above that have a chunk.
    pub(crate) fn pages_from(&self, from: u64) -> Vec<u64> {
        self.chunks
            .range(place(from).0..)
            .flat_map(|(number, chunk)| {
                let bits = chunk.present | chunk.listed;
                (0..CHUNK_PAGES)
                    .filter(move |slot| bits & (1 << slot) != 0)
                    .map(move |slot| number * CHUNK_PAGES + slot)
            })
            .filter(|page| *page >= from)
            .collect()
    }
}
