//! The caller's side of a read: pin the pages that are here, copy without the lock, let go.
//!
//! Pages that are not here are read into frames by the context, as one request for a run of them. On a shared
//! file nothing is kept: a read starts by dropping clean pages of its range, so it sees what is on disk now.

use std::ops::Range;

use forebay_block::{Bio, Class, Errno, Frame, Operation, Source};

use crate::file::{CachedFile, Liberties};
use crate::limits::{FILL_PAGES, PAGE, STEP_PAGES};
use crate::write::WriteStop;
use crate::writeback::flight::Flight;
use crate::writeback::gather::Segments;
use crate::writeback::settle::Settled;

/// One copy from a frame into the caller's buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadStep {
    /// The page read.
    pub page: u64,
    /// Its frame, pinned; `None` for zeroes.
    pub frame: Option<Frame>,
    /// The first byte within the page.
    pub at: usize,
    /// How many bytes.
    pub length: usize,
}

/// Why a step of a read ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReadStop {
    /// All of the range (or of this step's share, or of the file) is planned.
    Done,
    /// The stash of frames is empty.
    NoFrames,
    /// The next page is in use; wait for a change of the file.
    Busy,
    /// The next pages have to be read first: submit this, then wait.
    Fill(Bio),
    /// The next page could not be read.
    Failed(Errno),
}

impl CachedFile {
    /// A read of this range starts: on a shared file, clean pages in it are stale.
    pub fn start_read(&mut self, range: &Range<u64>, settled: &mut Settled) {
        if self.liberties == Liberties::Exclusive || range.is_empty() {
            return;
        }
        for page in range.start / PAGE..range.end.div_ceil(PAGE) {
            self.drop_idle_clean(page, settled);
        }
    }

    /// Plans copies of up to a step of `[offset, offset + length)`, which the caller has cut to the file's size.
    pub fn begin_read(
        &mut self,
        offset: u64,
        length: usize,
        stash: &mut Vec<Frame>,
        steps: &mut Vec<ReadStep>,
    ) -> (usize, ReadStop) {
        let end = offset + length as u64;
        let mut planned = 0;
        loop {
            if planned == length || steps.len() >= STEP_PAGES {
                return (planned, ReadStop::Done);
            }
            let position = offset + planned as u64;
            let (page, at) = (position / PAGE, (position % PAGE) as usize);
            let part = (length - planned).min(PAGE as usize - at);
            if self.is_frozen() {
                return (planned, ReadStop::Busy);
            }
            let absent_is_zero = self.absent_is_zero(page);
            let frame = match self.index.get_mut(page) {
                Some((chunk, slot)) if (chunk.busy | chunk.filling) & (1 << slot) != 0 => {
                    return (planned, ReadStop::Busy);
                }
                Some((chunk, slot)) if chunk.present & (1 << slot) != 0 => {
                    if !chunk.pin(slot) {
                        return (planned, ReadStop::Busy);
                    }
                    chunk.frame(slot)
                }
                _ if absent_is_zero => None,
                _ => return (planned, self.begin_fill(page..end.div_ceil(PAGE), stash)),
            };
            steps.push(ReadStep { page, frame, at, length: part });
            planned += part;
        }
    }

    /// The copies are made: the pages are let go.
    pub fn end_read(&mut self, steps: &[ReadStep], settled: &mut Settled) {
        for step in steps.iter().filter(|step| step.frame.is_some()) {
            let (chunk, slot) = self.index.get_mut(step.page).expect("a pinned page has a chunk");
            chunk.unpin(slot);
            if self.liberties == Liberties::Shared {
                self.drop_idle_clean(step.page, settled);
            }
        }
    }

    pub(crate) fn begin_fill_of_one(&mut self, page: u64, stash: &mut Vec<Frame>) -> WriteStop {
        match self.begin_fill(page..page + 1, stash) {
            ReadStop::Fill(bio) => WriteStop::Fill(bio),
            ReadStop::Failed(errno) => WriteStop::Failed(errno),
            ReadStop::NoFrames => WriteStop::NoFrames,
            ReadStop::Busy | ReadStop::Done => WriteStop::Busy,
        }
    }

    fn begin_fill(&mut self, wanted: Range<u64>, stash: &mut Vec<Frame>) -> ReadStop {
        if let Some(errno) = self.fill_errors.remove(&wanted.start) {
            self.index.tidy(wanted.start);
            return ReadStop::Failed(errno);
        }
        if self.draining {
            return ReadStop::Busy;
        }
        let mut segments = Segments::default();
        let mut pages = 0;
        for page in wanted.clone().take(FILL_PAGES as usize) {
            if pages > 0 && self.absent_is_zero(page) {
                break;
            }
            let (chunk, slot) = self.index.chunk_mut(page);
            if (chunk.present | chunk.busy | chunk.filling) & (1 << slot) != 0 {
                break;
            }
            let Some(frame) = stash.pop() else { break };
            chunk.set_frame(slot, frame);
            chunk.filling |= 1 << slot;
            segments.push_frame(frame);
            pages += 1;
        }
        if pages == 0 {
            self.index.tidy(wanted.start);
            return ReadStop::NoFrames;
        }
        let flight = self.flights.start(Flight::Fill { pages: wanted.start..wanted.start + pages });
        ReadStop::Fill(Bio {
            operation: Operation::Read,
            target: self.target,
            offset: wanted.start * PAGE,
            length: pages * PAGE,
            segments: segments.finish().into(),
            class: Class::Waited,
            source: Source(self.target.0),
            owner: u64::from(flight),
        })
    }

    fn drop_idle_clean(&mut self, page: u64, settled: &mut Settled) {
        let Some((chunk, slot)) = self.index.get_mut(page) else { return };
        if chunk.is_idle_clean(slot) {
            chunk.present &= !(1 << slot);
            settled.freed.extend(chunk.take_frame(slot));
            self.index.tidy(page);
        }
    }
}
