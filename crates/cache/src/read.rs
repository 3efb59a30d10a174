//! The caller's side of a read: pin pages in memory, copy without the lock, unpin.
//!
//! The context reads missing pages into frames, as one request per contiguous run. On a shared file
//! a read first drops the clean pages of its range, so it returns the current bytes. Pages that
//! other readers use or are bringing in cannot be dropped. They may be older than the bytes on
//! disk, so the read waits until they are gone, and then reads them again.

use std::ops::Range;

use forebay_block::{Bio, Errno, Frame};

use crate::bits::{bits, parts};
use crate::file::CachedFile;
use crate::frames::FrameRuns;
use crate::index::Chunk;
use crate::limits::{PAGE, STEP_PAGES};
use crate::settled::Settled;
use crate::uses::Caching;

/// One copy into the buffer of a reader, from a page or from several pages that are contiguous in
/// the file and in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadStep {
    /// First page read.
    pub page: u64,
    /// Frame of the first page, or `None` for zeroes. All frames of the copy are pinned.
    pub frame: Option<Frame>,
    /// First byte within the page.
    pub at: usize,
    /// Number of bytes.
    pub length: usize,
}

impl ReadStep {
    /// Returns the pages read.
    #[must_use]
    pub fn pages(&self) -> Range<u64> {
        self.page..self.page + ((self.at + self.length) as u64).div_ceil(PAGE)
    }
}

/// State of one reader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reader {
    /// Whether pages that it reads stay in memory.
    pub caching: Caching,
    /// Page that it has just read in part. Reading on in it does not count as another use.
    pub again: Option<u64>,
    /// The first fill that it may read from if the file is shared, as [`CachedFile::start_read`]
    /// has returned it.
    pub first_fill: u64,
}

/// Reason why a step of a read ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReadStop {
    /// The whole range, or the maximum of one step, is planned.
    Done,
    /// The stash of frames is empty.
    NoFrames,
    /// The next page is in use. Wait for a change of the file.
    Busy,
    /// The next pages must be read from the device: submit this bio, then wait.
    Fill(Box<Bio>),
    /// The next page could not be read.
    Failed(Errno),
}

impl CachedFile {
    /// Starts a read. Returns the first fill that it may read from on a shared file: one that is
    /// sent from now on.
    #[must_use]
    pub fn start_read(&self) -> u64 {
        if self.lease.is_exclusive() { 0 } else { self.flights.last_fill() + 1 }
    }

    /// Drops the pages of a range that a reader may not read from, as far as nobody uses them.
    /// Called before each step of the read.
    pub fn drop_stale(&mut self, range: &Range<u64>, reader: Reader, settled: &mut Settled) {
        if self.lease.is_exclusive() || range.is_empty() {
            return;
        }
        let stale = |chunk: &Chunk| chunk.idle_clean() & chunk.older_than(reader.first_fill);
        self.drop_idle_in(&(range.start / PAGE..range.end.div_ceil(PAGE)), stale, settled);
    }

    /// Plans the copies of one step of a read of `[offset, offset + length)`, which must lie within
    /// the file.
    pub fn begin_read(
        &mut self,
        offset: u64,
        length: usize,
        reader: Reader,
        stash: &mut FrameRuns,
        steps: &mut impl Extend<ReadStep>,
    ) -> (usize, ReadStop) {
        if let Some(step) = self.begin_here(offset, length, reader) {
            steps.extend([step]);
            return (length, ReadStop::Done);
        }
        let end = offset + length as u64;
        let (mut planned, mut pages) = (0, 0);
        loop {
            if planned == length || pages >= STEP_PAGES as u64 {
                return (planned, ReadStop::Done);
            }
            let position = offset + planned as u64;
            let wanted = position / PAGE..end.div_ceil(PAGE);
            let (at, most) = ((position % PAGE) as usize, STEP_PAGES as u64 - pages);
            match self.begin_step(wanted, (at, most), length - planned, reader, stash) {
                Ok(step) => {
                    planned += step.length;
                    pages += step.pages().end - step.page;
                    steps.extend([step]);
                }
                Err(stop) => return (planned, stop),
            }
        }
    }

    /// Plans a read within one whole page that is here, as [`CachedFile::begin_step`] would. Most
    /// reads are such ones.
    #[inline]
    fn begin_here(&mut self, offset: u64, length: usize, reader: Reader) -> Option<ReadStep> {
        let (page, at) = (offset / PAGE, (offset % PAGE) as usize);
        if !(1..=PAGE as usize - at).contains(&length)
            || self.lease.is_shared()
            || self.is_frozen()
            || self.fences.unfenced_from(page) == 0
        {
            return None;
        }
        let (chunk, slot) = self.index.get_mut(page)?;
        let bit = 1 << slot;
        if chunk.present & !(chunk.busy | chunk.filling) & bit == 0 || chunk.pin(slot, 1) == 0 {
            return None;
        }
        let again = if reader.again == Some(page) { bit } else { 0 };
        self.counts.end_unread(chunk.uses.read(bit, again, reader.caching));
        Some(ReadStep { page, frame: chunk.frame(slot), at, length })
    }

    /// Plans a step from the first wanted page on: pages in the same state whose frames are
    /// contiguous, at most `most`.
    #[inline]
    fn begin_step(
        &mut self,
        wanted: Range<u64>,
        (at, most): (usize, u64),
        left: usize,
        reader: Reader,
        stash: &mut FrameRuns,
    ) -> Result<ReadStep, ReadStop> {
        if self.is_frozen() {
            return Err(ReadStop::Busy);
        }
        let page = wanted.start;
        let unfenced = self.fences.unfenced_from(page);
        if unfenced == 0 {
            return Err(ReadStop::Busy);
        }
        let is_shared = self.lease.is_shared();
        let wanted = page..wanted.end.min(page.saturating_add(unfenced));
        let step = |frame, count: u64| {
            let length = left.min((count * PAGE) as usize - at);
            ReadStep { page, frame, at, length }
        };
        if let Some((chunk, slot)) = self.index.get_mut(page) {
            let bit = 1 << slot;
            if (chunk.busy | chunk.filling) & bit != 0 {
                return Err(ReadStop::Busy);
            }
            if chunk.present & bit != 0 {
                let stale = if is_shared { chunk.older_than(reader.first_fill) } else { 0 };
                if stale & bit != 0 {
                    return Err(ReadStop::Busy);
                }
                let usable = chunk.present & !(chunk.busy | chunk.filling | stale);
                let most = (wanted.end - page).min(most).min(64 - slot as u64) as u32;
                let alike = (usable >> slot).trailing_ones().min(most);
                let alike = chunk.frames_in_a_row(slot, alike);
                let count = chunk.pin(slot, alike);
                if count == 0 {
                    return Err(ReadStop::Busy);
                }
                let again = if reader.again == Some(page) { bit } else { 0 };
                self.counts.end_unread(chunk.uses.read(bits(slot, count), again, reader.caching));
                return Ok(step(chunk.frame(slot), u64::from(count)));
            }
            if chunk.partial & bit != 0 {
                let step = step(chunk.frame(slot), 1);
                let partial = self.odd.partial(page).expect("a page with the bit has a record");
                if !partial.mask().holds(at..at + step.length) {
                    return Err(self.begin_fill_of_partial(page));
                }
                return if chunk.pin(slot, 1) == 1 { Ok(step) } else { Err(ReadStop::Busy) };
            }
        }
        let zeroes = wanted
            .clone()
            .take(most as usize)
            .take_while(|page| self.is_absent(*page) && self.absent_is_zero(*page))
            .count();
        if zeroes > 0 {
            Ok(step(None, zeroes as u64))
        } else {
            Err(self.begin_fill(wanted, reader, stash))
        }
    }

    /// Ends copies that were made: unpins the pages, and drops uncached pages that were read to
    /// their end.
    pub fn end_read(&mut self, steps: &[ReadStep], caching: Caching, settled: &mut Settled) {
        let stays = caching == Caching::Cached && self.lease.is_exclusive();
        for step in steps.iter().filter(|step| step.frame.is_some()) {
            if stays && step.at + step.length <= PAGE as usize {
                let page = self.index.get_mut(step.page);
                let (chunk, slot) = page.expect("a pinned page has a chunk");
                chunk.unpin(slot, 1);
                continue;
            }
            for (page, slot, count) in parts(step.pages()) {
                let (chunk, _) = self.index.get_mut(page).expect("a pinned page has a chunk");
                chunk.unpin(slot, count);
                if caching == Caching::Uncached {
                    let end = step.page * PAGE + (step.at + step.length) as u64;
                    let read_out = if end >= self.sizes.size() { u64::MAX } else { end / PAGE };
                    let count = read_out.saturating_sub(page).min(u64::from(count)) as u32;
                    let mask = chunk.uses.passing(bits(slot, count)) & chunk.idle_clean();
                    self.drop_clean(page - slot as u64, mask, settled);
                }
            }
            if self.lease.is_shared() {
                self.drop_clean_in(&step.pages(), settled);
            }
        }
    }
}
