//! The caller's side of a read, and what is read ahead of it.
//!
//! ```text
//!  read(offset, length) --step by step--> copied from memory
//!        |                    | not here: a fill, waited for
//!        |                    | much is asked for: more fills, on their way together
//!        + goes on where a read ended: a window beyond it, in the background
//! ```

use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};

use forebay_block::{Bio, Class};
use forebay_cache::limits::{FILL_PAGES, PAGE};
use forebay_cache::{Caching, FrameRuns, Liberties, ReadStep, ReadStop, Reader};

use super::{After, Inode, State};
use crate::core::counters::Counters;
use crate::core::error::Result;
use crate::core::limits::READ_REQUESTS;
use crate::core::shared::Shared;
use crate::core::slices::SlicesMut;

/// One call of a reader.
#[derive(Debug)]
pub(crate) struct Reading {
    bytes: Range<u64>,
    reader: Reader,
    /// It was seen whether it goes on from an earlier one.
    advised: bool,
    /// What is to be read ahead of it, until there is memory for that.
    ahead: Range<u64>,
}

impl Reading {
    pub(crate) fn new(bytes: Range<u64>, caching: Caching) -> Self {
        Self { bytes, reader: Reader { caching, again: None }, advised: false, ahead: 0..0 }
    }
}

impl Inode {
    /// A read of a range starts: others' bytes are looked at anew on a shared file.
    pub(crate) fn start_read(self: &Arc<Self>, shared: &Shared, offset: u64, length: usize) {
        self.check_lease(shared);
        let size = self.length(shared);
        let mut state = self.lock();
        if state.cache.liberties() == Liberties::Exclusive {
            return;
        }
        let mut after = After::default();
        let end = offset.saturating_add(length as u64).min(size);
        state.cache.start_read(&(offset.min(end)..end), &mut after.settled);
        state.tell_arena(shared, &mut after);
        drop(state);
        after.finish(shared);
    }

    /// One step of a read: `Ready` with the bytes copied; 0 only at the end of the file.
    pub(crate) fn poll_read(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        context: &Context<'_>,
        reading: &mut Reading,
        (buffer, offset): (&mut SlicesMut<'_, '_>, u64),
    ) -> Poll<Result<usize>> {
        let mut after = After::default();
        let mut steps: Vec<ReadStep> = Vec::new();
        // Cloned once the read has to wait, with no lock held; then it looks again.
        let mut waker = None;
        loop {
            let mut state = self.lock();
            shared.check()?;
            let length =
                state.cache.size().saturating_sub(offset).min(buffer.len() as u64) as usize;
            if length == 0 {
                return Poll::Ready(Ok(0));
            }
            state.advise(shared, reading);
            let State { cache, stash, .. } = &mut *state;
            // Without frames at first: what is here needs none, and what is read in needs as many
            // as it is long.
            let none = &mut FrameRuns::default();
            let (mut planned, mut stop) =
                cache.begin_read(offset, length, reading.reader, none, &mut steps);
            if planned == 0 && stop == ReadStop::NoFrames {
                let wanted = length.div_ceil(PAGE as usize).min(FILL_PAGES as usize);
                if stash.len() < wanted {
                    shared.refill(stash, wanted);
                }
                (planned, stop) =
                    cache.begin_read(offset, length, reading.reader, stash, &mut steps);
            }
            let mut failed = None;
            let (mut starved, mut waits) = (false, false);
            match stop {
                ReadStop::Done => {}
                ReadStop::NoFrames => starved = planned == 0,
                ReadStop::Fill(bio) => {
                    waits = planned == 0;
                    after.submit(self, [bio]);
                }
                ReadStop::Failed(errno) => failed = (planned == 0).then_some(errno),
                ReadStop::Busy => waits = planned == 0,
            }
            let looks_again = waits && waker.is_none();
            if waits && let Some(waker) = waker.take() {
                state.page_wakers.push(waker);
            }
            let caching = reading.reader.caching;
            if failed.is_none() && !starved {
                let rest = rest_of(offset + planned as u64, offset + length as u64);
                let bios = state.fill(shared, rest, Class::Waited, caching, &mut after);
                after.submit(self, bios);
            }
            // What is waited for comes first, and may leave too little memory; the last step takes
            // what there is.
            let is_last = offset + planned as u64 >= reading.bytes.end.min(state.cache.size());
            if is_last || shared.room_ahead() >= reading.ahead.end - reading.ahead.start {
                let ahead = std::mem::take(&mut reading.ahead);
                let bios = state.fill(shared, ahead, Class::Background, caching, &mut after);
                after.submit(self, bios);
            }
            state.tell_unread(shared);
            drop(state);
            if planned > 0 {
                shared.pool.copy_out(&steps, buffer);
                let mut state = self.lock();
                state.cache.end_read(&steps, caching, &mut after.settled);
                state.tell_arena(shared, &mut after);
                state.tell_unread(shared);
                state.page_wakers.drain_into(&mut after.wakers);
                shared.pool.take_waiting(&mut after.wakers);
                if state.cache.has_tickets() {
                    self.kick(&mut state, &mut after);
                }
                drop(state);
                after.finish(shared);
                shared.make_room_ahead();
                return Poll::Ready(Ok(planned));
            }
            after.finish(shared);
            shared.make_room_ahead();
            if let Some(errno) = failed {
                return Poll::Ready(Err(self.io_error("could not read", offset, errno)));
            }
            if looks_again {
                waker = Some(context.waker().clone());
            } else if !starved || !shared.reclaim_or_wait(context.waker()) {
                return Poll::Pending;
            }
        }
    }
}

impl State {
    /// Which pages to read ahead of a call: asked once, at its beginning.
    fn advise(&mut self, shared: &Shared, reading: &mut Reading) {
        if std::mem::replace(&mut reading.advised, true) {
            return;
        }
        let bytes = reading.bytes.start..reading.bytes.end.min(self.cache.size());

        let (ahead, again) = self.cache.advise(bytes, shared.room_ahead());
        (reading.ahead, reading.reader.again) = (ahead, again);
    }

    /// What brings pages in that nobody waits for yet, as far as there is memory to spare.
    fn fill(
        &mut self,
        shared: &Shared,
        pages: Range<u64>,
        class: Class,
        caching: Caching,
        after: &mut After,
    ) -> Vec<Bio> {
        let mut bios = Vec::new();
        let missing = self.cache.missing(pages.clone());
        if missing == 0 {
            return bios;
        }
        let mut frames = FrameRuns::default();
        shared.pool.take(missing.min(shared.room_ahead()) as usize, &mut frames);
        self.cache.fill_ahead(pages, class, caching, &mut frames, &mut bios);
        if class == Class::Background {
            let bytes = bios.iter().map(|bio| bio.length).sum();
            Counters::add(&shared.counters.readahead_bytes, bytes);
        }
        after.settled.freed.append(&mut frames);
        bios
    }
}

/// What of a large read is brought in beside the request its first page is in: whole requests, so
/// that each step asks for one more or for none.
fn rest_of(start: u64, end: u64) -> Range<u64> {
    let (first, end) = (start / PAGE, end.div_ceil(PAGE));
    let horizon = (first / FILL_PAGES + READ_REQUESTS) * FILL_PAGES;
    if end - first > FILL_PAGES { first..end.min(horizon) } else { 0..0 }
}
