//! The caller's side of a write: take the pages, copy without the lock, publish.
//!
//! `begin_write` answers with copies to make and why it stopped; nobody else reads, sends or drops those pages
//! until they are published. So a copy may be slow (the source may have to be read from another file first) and
//! holds nobody up but users of the same pages.

use forebay_block::{Bio, Errno, Frame};

use crate::file::CachedFile;
use crate::limits::{PAGE, STEP_PAGES};
use crate::writeback::settle::Settled;

/// One copy from the caller's buffer into a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copy {
    /// The page written to.
    pub page: u64,
    /// Its frame.
    pub frame: Frame,
    /// The first byte within the page.
    pub at: usize,
    /// How many bytes.
    pub length: usize,
    /// What the rest of the frame needs first.
    pub prepare: Prepare,
}

/// What a frame needs before a part of it is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prepare {
    /// Nothing: the rest is there already, or there is no rest.
    Nothing,
    /// The rest is zero.
    Zero,
    /// The rest is as in this frame, which is in flight and stays as it is.
    From(Frame),
}

/// Why a step of a write ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WriteStop {
    /// All of the range (or of this step's share) is planned.
    Done,
    /// The stash of frames is empty.
    NoFrames,
    /// The next page is in use; wait for a change of the file.
    Busy,
    /// The next page has to be read first: submit this, then wait.
    Fill(Bio),
    /// The next page could not be read.
    Failed(Errno),
}

/// What publishing changed for the context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Published {
    /// The file had nothing dirty before.
    pub first: bool,
    /// Somebody waits for the file, perhaps for these pages.
    pub awaited: bool,
}

impl CachedFile {
    /// Plans copies of up to a step of `[offset, offset + length)`; frames come from `stash`. Returns the bytes
    /// planned, the frames newly charged to the dirty level, and why it stopped.
    pub fn begin_write(
        &mut self,
        offset: u64,
        length: usize,
        stash: &mut Vec<Frame>,
        copies: &mut Vec<Copy>,
    ) -> (usize, u64, WriteStop) {
        let charged_before = self.charged;
        let mut planned = 0;
        let stop = loop {
            if planned == length || copies.len() >= STEP_PAGES {
                break WriteStop::Done;
            }
            let position = offset + planned as u64;
            let (page, at) = (position / PAGE, (position % PAGE) as usize);
            let length = (length - planned).min(PAGE as usize - at);
            match self.begin_page(page, at, length, stash) {
                Ok(copy) => copies.push(copy),
                Err(stop) => break stop,
            }
            planned += length;
        };
        (planned, self.charged - charged_before, stop)
    }

    fn begin_page(
        &mut self,
        page: u64,
        at: usize,
        length: usize,
        stash: &mut Vec<Frame>,
    ) -> Result<Copy, WriteStop> {
        if self.is_frozen() {
            return Err(WriteStop::Busy);
        }
        // Nothing of the old content is left when the write reaches the page's end, or the file's.
        let replaces = at == 0 && (length == PAGE as usize || page * PAGE + length as u64 >= self.size);
        let rest = if length == PAGE as usize { Prepare::Nothing } else { Prepare::Zero };
        let absent_is_zero = self.absent_is_zero(page);
        let (chunk, slot) = self.index.chunk_mut(page);
        let bit = 1 << slot;
        if (chunk.busy | chunk.filling) & bit != 0 || chunk.pinned(slot) {
            return Err(WriteStop::Busy);
        }
        let (frame, prepare) = if chunk.present & bit == 0 {
            if !replaces && !absent_is_zero {
                return Err(self.begin_fill_of_one(page, stash));
            }
            let Some(frame) = stash.pop() else { return Err(WriteStop::NoFrames) };
            chunk.set_frame(slot, frame);
            self.fill_errors.remove(&page);
            self.charged += 1;
            (frame, rest)
        } else if chunk.sending & bit != 0 {
            let Some(frame) = stash.pop() else { return Err(WriteStop::NoFrames) };
            let old = chunk.take_frame(slot).expect("a page in flight has a frame");
            self.displaced.insert(page, (old, chunk.epoch(slot)));
            chunk.sending &= !bit;
            chunk.set_frame(slot, frame);
            self.charged += 1;
            (frame, if replaces { rest } else { Prepare::From(old) })
        } else {
            self.charged += u64::from(chunk.dirty & bit == 0);
            (chunk.frame(slot).expect("a present page has a frame"), Prepare::Nothing)
        };
        chunk.busy |= bit;
        Ok(Copy { page, frame, at, length, prepare })
    }

    /// The copies are made: their pages are dirty, and the file is as long as they reach.
    pub fn publish(&mut self, copies: &[Copy], settled: &mut Settled) -> Published {
        let first = self.epochs.is_empty();
        let epoch = self.epochs.current();
        for copy in copies {
            let (chunk, slot) = self.index.get_mut(copy.page).expect("a page being copied has a chunk");
            let bit = 1 << slot;
            assert!(chunk.busy & bit != 0, "a copy is published once");
            chunk.busy &= !bit;
            chunk.present |= bit;
            if chunk.dirty & bit == 0 {
                let owed = self.owed.remove(&copy.page);
                chunk.set_epoch(slot, owed.unwrap_or(epoch));
                if owed.is_none() {
                    self.epochs.add(epoch);
                }
                self.index.mark_dirty(copy.page);
            }
            settled.freed.extend(self.parked.remove(&copy.page));
            self.size = self.size.max(copy.page * PAGE + (copy.at + copy.length) as u64);
        }
        Published { first, awaited: self.has_tickets() }
    }
}
