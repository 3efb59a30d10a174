//! A walk of pages: some writes to a file, and the states of its pages, on any device.
//!
//! Each act ends when nothing is under way. In a new arena the bytes of all pages are zero, and
//! they stay zero: the walk shows the states of pages, not their bytes.

use std::time::Duration;

use forebay_block::layers::error::{Errors, Occasion, Rule, Side};
use forebay_block::limits::PAGE;
use forebay_block::{Bio, Device, Ended, Errno, Moment, Operation, Queue, Wait};
use forebay_cache::file::{Entry, Reserving};
use forebay_cache::uses::Caching;
use forebay_cache::writeback::settle::Keep;
use forebay_cache::{
    CachedFile, Copy, FrameRuns, Frames, Liberties, Origin, PageState, Reason, Settled, TicketId,
    TicketKind,
};

use super::TARGET;

/// Frames of the arena that are used.
pub(crate) const FRAMES: u32 = 16;

/// Pages of the file.
const PAGES: u64 = 8;

/// The page whose second write the device refuses.
const BAD: u64 = 3;

/// A line of a walk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Line {
    /// An act begins.
    Act(&'static str),
    /// Something happened, so long after the first act began; to a page, which is in this state
    /// then, or to none.
    Step { after: Duration, step: &'static str, page: Option<(u64, PageState)>, what: String },
}

/// Walks all acts.
///
/// # Errors
/// Only when the device itself is broken.
pub(crate) fn walk(device: impl Device) -> Result<Vec<Line>, Errno> {
    let mut device = Errors::new(device);
    let page = PAGE as u64;
    device.set_rules([Rule {
        operations: vec![Operation::Write],
        range: Some((TARGET, BAD * page..(BAD + 1) * page)),
        occasion: Occasion::Every(2),
        errno: Errno::IO,
        side: Side::Before,
    }]);
    let start = device.now();
    let origin = Origin::Empty { entry: Entry::Old };
    let mut cache = CachedFile::new(TARGET, origin, Liberties::Exclusive);
    cache.set_reserving(Reserving::Off);
    let frames = Frames::new(FRAMES);
    let mut walk = Walk {
        cache,
        frames,
        queue: Queue::new(),
        device,
        start,
        sent: Vec::new(),
        lines: Vec::new(),
    };
    walk.acts()?;
    Ok(walk.lines)
}

struct Walk<D: Device> {
    cache: CachedFile,
    frames: Frames,
    queue: Queue,
    device: Errors<D>,
    start: Moment,
    /// Bios at the device.
    sent: Vec<Bio>,
    lines: Vec<Line>,
}

impl<D: Device> Walk<D> {
    fn acts(&mut self) -> Result<(), Errno> {
        let page = PAGE as u64;
        self.act("set the length of the file to 8 pages, so that no write moves its end");
        self.ask(TicketKind::SetLength(PAGES * page), "set-length")?;
        self.act("write two pages and sync; write one of them again while it is in flight");
        self.write(0, 2 * page, Caching::Cached);
        let sync = self.cache.ask(TicketKind::FlushData);
        self.note("asked", None, "sync: it covers the writes accepted before it".to_owned());
        self.send(Reason::Sync);
        self.write(page, page, Caching::Cached);
        self.wait(sync)?;
        self.act("the page written again reaches dirty_age and is written back");
        self.cache.age();
        self.send(Reason::Periodic);
        self.finish()?;
        self.act("exceed the background level; drop one page once it is written");
        self.write(2 * page, page, Caching::Cached);
        self.write(4 * page, page, Caching::Uncached);
        self.send(Reason::Background);
        self.finish()?;
        self.act("write 100 bytes of the dropped page: the write does not wait; the rest is read before the page is sent");
        self.write(4 * page + 200, 100, Caching::Cached);
        self.ask(TicketKind::FlushData, "sync")?;
        self.act("the device fails one page write: the page stays dirty, the sync fails, the next sync retries");
        self.write(BAD * page, page, Caching::Cached);
        self.ask(TicketKind::WriteOut, "write out")?;
        self.write(BAD * page, page, Caching::Cached);
        self.ask(TicketKind::FlushData, "sync")?;
        self.ask(TicketKind::FlushData, "sync")
    }

    fn act(&mut self, title: &'static str) {
        self.lines.push(Line::Act(title));
    }

    fn note(&mut self, step: &'static str, page: Option<u64>, what: String) {
        let after = self.device.now().since(self.start);
        let page = page.map(|page| (page, self.cache.page_state(page)));
        self.lines.push(Line::Step { after, step, page, what });
    }

    fn write(&mut self, offset: u64, length: u64, caching: Caching) {
        let (mut stash, mut copies) = (FrameRuns::default(), Vec::new());
        self.frames.take(length.div_ceil(PAGE as u64) as usize + 1, &mut stash);
        let touched = self.cache.page_state(offset / PAGE as u64) == PageState::Writeback;
        let (planned, _, _) =
            self.cache.begin_write(offset, length as usize, &mut stash, &mut copies);
        assert_eq!(planned as u64, length, "nobody else uses the pages");
        for run in stash.drain() {
            self.frames.give_run(run);
        }
        for copy in &copies {
            for (page, frame) in copy.pages().zip(copy.frame.0..) {
                let what = if touched {
                    format!("frame {frame}, a new one: the page in flight does not change")
                } else {
                    format!("frame {frame}; the caller's bytes are copied, without a lock")
                };
                self.note("planned", Some(page), what);
            }
        }
        let mut settled = Settled::default();
        let _ = self.cache.publish(&copies, caching, &mut settled);
        self.take_in(&mut settled);
        for page in copies.iter().flat_map(Copy::pages) {
            self.note("published", Some(page), "accepted".to_owned());
        }
    }

    /// Asks, and waits for it.
    fn ask(&mut self, request: TicketKind, what: &str) -> Result<(), Errno> {
        let ticket = self.cache.ask(request);
        self.note("asked", None, what.to_owned());
        self.wait(ticket)
    }

    fn wait(&mut self, ticket: TicketId) -> Result<(), Errno> {
        loop {
            self.send(Reason::Sync);
            if let Some(result) = self.cache.fetch(ticket) {
                let what = match result {
                    Ok(()) => "well".to_owned(),
                    Err(failure) => format!("{failure:?}"),
                };
                self.note("told", None, what);
                return Ok(());
            }
            self.reap()?;
        }
    }

    /// Sends what there is to be sent for a reason.
    fn send(&mut self, reason: Reason) {
        while let Some(bio) = self.cache.next_bio(reason) {
            let what = format!(
                "{reason:?}: {} {} bytes at {}",
                name(bio.operation),
                bio.length,
                bio.offset
            );
            let pages = pages_of(&bio);
            self.sent.push(bio.clone());
            self.queue.submit(bio);
            match pages.clone().count() {
                0 => self.note("sent", None, what),
                _ => pages.for_each(|page| self.note("sent", Some(page), what.clone())),
            }
        }
    }

    /// Waits until no request is at the device.
    fn finish(&mut self) -> Result<(), Errno> {
        while !self.sent.is_empty() {
            self.reap()?;
        }
        Ok(())
    }

    fn reap(&mut self) -> Result<(), Errno> {
        self.queue.dispatch(&mut self.device, Wait::Something(None))?;
        let mut ended = Vec::new();
        self.queue.run(&mut self.device, &mut ended);
        for Ended { bio, result } in ended {
            self.sent.retain(|sent| sent.owner != bio.owner);
            let mut settled = Settled::default();
            self.cache.settle(&bio, result, Keep::Clean, &mut settled);
            let what = match result {
                Ok(_) => format!("{} done", name(bio.operation)),
                Err(errno) => format!("{} failed: {errno}", name(bio.operation)),
            };
            self.take_in(&mut settled);
            match pages_of(&bio).count() {
                0 => self.note("ended", None, what),
                _ => pages_of(&bio).for_each(|page| self.note("settled", Some(page), what.clone())),
            }
        }
        Ok(())
    }

    fn take_in(&mut self, settled: &mut Settled) {
        for run in settled.freed.drain() {
            self.frames.give_run(run);
        }
    }
}

/// The pages a bio carries.
fn pages_of(bio: &Bio) -> std::ops::Range<u64> {
    let page = PAGE as u64;
    if bio.operation.moves_bytes() { bio.offset / page..bio.end().div_ceil(page) } else { 0..0 }
}

fn name(operation: Operation) -> &'static str {
    match operation {
        Operation::Read => "read",
        Operation::Write => "write",
        Operation::FlushData => "flush-data",
        Operation::SetLength => "set-length",
        _ => "another operation",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walk::scene::tests::Timed;

    #[test]
    fn every_state_of_a_page_is_come_by() {
        let lines = walk(Timed::default()).unwrap();
        let states: Vec<PageState> = lines
            .iter()
            .filter_map(|line| match line {
                Line::Step { page: Some((_, state)), .. } => Some(*state),
                _ => None,
            })
            .collect();
        for state in [
            PageState::Filling,
            PageState::Dirty,
            PageState::DirtyAgain,
            PageState::Writeback,
            PageState::Clean,
            PageState::Absent,
            PageState::Partial,
            PageState::Failing,
        ] {
            assert!(states.contains(&state), "no page is {state:?}: {lines:#?}");
        }
        let reported = |line: &&Line| matches!(line, Line::Step { step: "told", .. });
        let reported: Vec<&Line> = lines.iter().filter(reported).collect();
        let failed = reported
            .iter()
            .filter(|line| matches!(line, Line::Step { what, .. } if what != "well"));
        assert_eq!((reported.len(), failed.count()), (6, 1), "{reported:#?}");
        assert!(matches!(reported.last(), Some(Line::Step { what, .. }) if what == "well"));
    }
}
