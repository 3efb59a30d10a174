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

mod chunk;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeInclusive};

use crate::bits::{bits, slots};
pub(crate) use chunk::{CHUNK_PAGES, Chunk, WHOLE};

/// The chunk and the slot within it of a page.
pub(crate) fn place(page: u64) -> (u64, usize) {
    (page / CHUNK_PAGES, (page % CHUNK_PAGES) as usize)
}

/// The pages of one file.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// The chunk of page 0. A file of up to 64 pages has no other.
    first: Option<Box<Chunk>>,
    /// The other chunks.
    rest: BTreeMap<u64, Box<Chunk>>,
    /// Those of them with anything dirty.
    dirty: BTreeSet<u64>,
    /// Dirty pages in all.
    dirty_pages: u64,
}

impl Index {
    pub(crate) fn get(&self, page: u64) -> Option<(&Chunk, usize)> {
        let (number, slot) = place(page);
        Some((self.chunk(number)?, slot))
    }

    pub(crate) fn get_mut(&mut self, page: u64) -> Option<(&mut Chunk, usize)> {
        let (number, slot) = place(page);
        let chunk = if number == 0 { self.first.as_mut() } else { self.rest.get_mut(&number) };
        chunk.map(|chunk| (&mut **chunk, slot))
    }

    fn chunk(&self, number: u64) -> Option<&Chunk> {
        let chunk = if number == 0 { self.first.as_ref() } else { self.rest.get(&number) };
        chunk.map(|chunk| &**chunk)
    }

    /// The chunk of a page, made where it is not there.
    pub(crate) fn chunk_mut(&mut self, page: u64) -> (&mut Chunk, usize) {
        self.chunk_for(page, 1)
    }

    /// The chunk of a page, with slots for up to `count` pages from this one on.
    #[inline]
    pub(crate) fn chunk_for(&mut self, page: u64, count: u32) -> (&mut Chunk, usize) {
        let (number, slot) = place(page);
        if number > 0 {
            let all = || Chunk::with_slots(CHUNK_PAGES as usize);
            return (self.rest.entry(number).or_insert_with(all), slot);
        }
        let end = (slot + count as usize).min(CHUNK_PAGES as usize);
        if self.first.as_ref().is_none_or(|first| first.slots() < end) {
            let mut chunk = Chunk::with_slots(end);
            if let Some(first) = &mut self.first {
                chunk.replace(first);
            }
            self.first = Some(chunk);
        }
        (self.first.as_mut().expect("it was made above"), slot)
    }

    /// Changes the chunk of a page, and keeps the list of chunks with anything dirty.
    ///
    /// # Panics
    /// When the page has no chunk.
    #[inline]
    pub(crate) fn change<R>(&mut self, page: u64, change: impl FnOnce(&mut Chunk) -> R) -> R {
        let (number, _) = place(page);
        let (chunk, _) = self.get_mut(page).expect("a page in use has a chunk");
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
            _ if number == 0 => true,
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
        if self.chunk(number).is_some_and(Chunk::is_empty) {
            self.remove(number);
        }
    }

    fn remove(&mut self, number: u64) {
        if number == 0 {
            self.first = None;
        } else {
            self.rest.remove(&number);
        }
    }

    /// The chunks of these numbers that have anything dirty.
    fn dirty_in(
        &self,
        numbers: RangeInclusive<u64>,
    ) -> impl DoubleEndedIterator<Item = (u64, &Chunk)> {
        let has_first = numbers.contains(&0);
        let first = self.first.iter().filter(move |chunk| has_first && chunk.dirty != 0);
        let first = first.map(|chunk| (0, &**chunk));
        first.chain(self.dirty.range(numbers).map(|number| (*number, &*self.rest[number])))
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
        let page = self.dirty_in(first..=place(below - 1).0).find_map(|(number, chunk)| {
            let from = if number == first { u64::MAX << slot } else { u64::MAX };
            let mask = which(number * CHUNK_PAGES, chunk) & from;
            (mask != 0).then(|| number * CHUNK_PAGES + u64::from(mask.trailing_zeros()))
        });
        page.filter(|page| *page < below)
    }

    /// The last page at `from` or above of those that `which` picks of each chunk's dirty ones.
    pub(crate) fn last_dirty(&self, from: u64, which: impl Fn(u64, &Chunk) -> u64) -> Option<u64> {
        let (first, slot) = place(from);
        self.dirty_in(first..=u64::MAX).rev().find_map(|(number, chunk)| {
            let from = if number == first { u64::MAX << slot } else { u64::MAX };
            let mask = which(number * CHUNK_PAGES, chunk) & from;
            (mask != 0).then(|| number * CHUNK_PAGES + 63 - u64::from(mask.leading_zeros()))
        })
    }

    /// Dirty pages in all.
    pub(crate) fn dirty_count(&self) -> u64 {
        self.dirty_pages
    }

    /// Dirty pages of a range, counted.
    pub(crate) fn count_dirty(&self, pages: Range<u64>) -> u64 {
        let (first, last) = (place(pages.start).0, place(pages.end).0);
        self.dirty_in(first..=last)
            .map(|(number, chunk)| u64::from((chunk.dirty & part_of(number, &pages)).count_ones()))
            .sum()
    }

    /// The chunks with dirty pages, each with the number of its first page.
    pub(crate) fn dirty_chunks(&self) -> impl Iterator<Item = (u64, &Chunk)> {
        self.dirty_in(0..=u64::MAX).map(|(number, chunk)| (number * CHUNK_PAGES, chunk))
    }

    /// All dirty pages, in order.
    pub(crate) fn dirty_pages(&self) -> Vec<u64> {
        let pages = |(number, chunk): (u64, &Chunk)| {
            slots(chunk.dirty).map(move |slot| number * CHUNK_PAGES + slot as u64)
        };
        self.dirty_in(0..=u64::MAX).flat_map(pages).collect()
    }

    /// All chunks, each with the number of its first page.
    pub(crate) fn chunks_mut(&mut self) -> impl Iterator<Item = (u64, &mut Chunk)> {
        self.chunks_in(&(0..u64::MAX)).map(|(first, _, chunk)| (first, chunk))
    }

    /// All chunks, each with the number of its first page.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = (u64, &Chunk)> {
        self.numbered(&(0..u64::MAX)).map(|(number, chunk)| (number * CHUNK_PAGES, chunk))
    }

    /// The chunks of a range of pages, each with its number.
    fn numbered(&self, pages: &Range<u64>) -> impl Iterator<Item = (u64, &Chunk)> {
        let numbers = numbers(pages);
        let first = self.first.iter().take(usize::from(numbers.contains(&0)));
        let rest = self.rest.range(numbers).map(|(number, chunk)| (*number, &**chunk));
        first.map(|chunk| (0, &**chunk)).chain(rest)
    }

    /// Number of chunks.
    #[cfg(debug_assertions)]
    pub(crate) fn len(&self) -> usize {
        self.rest.len() + usize::from(self.first.is_some())
    }

    /// Asserts the invariants of each chunk, and that chunks with dirty pages are listed.
    pub(crate) fn verify(&self) {
        self.chunks().for_each(|(first, chunk)| chunk.verify(first));
        let dirty = self.rest.iter().filter(|(_, chunk)| chunk.dirty != 0);
        let are_listed = dirty.map(|(number, _)| number).eq(&self.dirty);
        assert!(are_listed, "chunks with dirty pages are listed");
        let pages: u64 = self.chunks().map(|(_, chunk)| u64::from(chunk.dirty.count_ones())).sum();
        assert_eq!(self.dirty_pages, pages, "dirty pages are counted");
    }

    /// Whether no page is being copied, filled, written or read anywhere.
    pub(crate) fn is_quiet(&self) -> bool {
        self.is_quiet_in(&(0..u64::MAX))
    }

    /// The same of a range of pages.
    pub(crate) fn is_quiet_in(&self, pages: &Range<u64>) -> bool {
        self.numbered(pages).all(|(number, chunk)| {
            (chunk.busy | chunk.filling | chunk.flight | chunk.pinned) & part_of(number, pages) == 0
        })
    }

    /// The chunks of a range of pages, each with the number of its first page and the bits of those
    /// that are in the range.
    pub(crate) fn chunks_in(
        &mut self,
        pages: &Range<u64>,
    ) -> impl Iterator<Item = (u64, u64, &mut Chunk)> {
        let (pages, numbers) = (pages.clone(), numbers(pages));
        let first = self.first.iter_mut().take(usize::from(numbers.contains(&0)));
        let rest = self.rest.range_mut(numbers).map(|(number, chunk)| (*number, &mut **chunk));
        first
            .map(|chunk| (0, &mut **chunk))
            .chain(rest)
            .map(move |(number, chunk)| (number * CHUNK_PAGES, part_of(number, &pages), chunk))
    }

    /// Drops the empty chunks of a range of pages.
    pub(crate) fn tidy_in(&mut self, pages: &Range<u64>) {
        let empty = self.numbered(pages).filter(|(_, chunk)| chunk.is_empty());
        for number in empty.map(|(number, _)| number).collect::<Vec<u64>>() {
            self.remove(number);
        }
    }

    /// Pages of a range that are here, in whole or in part.
    pub(crate) fn pages_in(&self, pages: &Range<u64>) -> Vec<u64> {
        self.numbered(pages)
            .flat_map(|(number, chunk)| {
                let here = (chunk.present | chunk.partial) & part_of(number, pages);
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
