//! A caller that reads: what it waits for, and whether it finds what was accepted.

use std::ops::Range;

use forebay_block::{Class, Target};
use forebay_cache::limits::PAGE;
use forebay_cache::{Caching, FrameRuns, Liberties, ReadStep, ReadStop, Reader, Settled};

use crate::driver::Driver;
use crate::driver::caller::{Activity, STASH};
use crate::driver::inode::{Inode, Path};

#[derive(Debug)]
pub(super) struct Reading {
    offset: u64,
    length: u64,
    done: u64,
    steps: Vec<ReadStep>,
    planned: usize,
    /// What the steps must find.
    expected: Vec<u8>,
    reader: Reader,
    /// It was seen whether it goes on from an earlier one.
    advised: bool,
}

impl Reading {
    /// Whether it has pages pinned.
    pub(super) fn is_copying(&self) -> bool {
        self.planned > 0
    }

    /// What it is at, for a message.
    pub(super) fn summary(&self) -> String {
        format!("reading {}+{}, done {}", self.offset, self.length, self.done)
    }
}

impl Driver {
    pub(super) fn begin_read(
        &mut self,
        id: usize,
        path: usize,
        offset: u64,
        length: u64,
    ) -> Activity {
        let mut settled = Settled::default();
        let size = self.disk.file(Target(path as u32)).size();
        let inode = self.inode(path);
        if inode.cache.liberties() == Liberties::Shared {
            inode.cache.observe_disk_size(size, inode.cache.look(), &mut settled);
            let end = (offset + length).min(inode.cache.size());
            inode.cache.start_read(&(offset.min(end)..end), &mut settled);
            self.tell(path, &mut settled);
            self.absorb(&mut settled);
        }
        let (steps, expected) = (Vec::new(), Vec::new());
        let reader = Reader { caching: self.callers[id].caching(), again: None };
        let reading = Reading {
            offset,
            length,
            done: 0,
            steps,
            planned: 0,
            expected,
            reader,
            advised: false,
        };
        Activity::Reading(reading)
    }

    pub(super) fn read(&mut self, id: usize, mut reading: Reading) -> Activity {
        let path = self.path_of(id);
        let at = reading.offset + reading.done;
        let ledger = &self.paths[path].ledger;
        let left = (reading.length - reading.done).min(ledger.size().saturating_sub(at)) as usize;
        if left == 0 {
            self.marks.hit("read");
            return Activity::Idle;
        }
        let ahead = self.advise(path, &mut reading);
        let mut stash = FrameRuns::default();
        self.frames.take(left.div_ceil(PAGE as usize).clamp(1, STASH), &mut stash);
        let Path { ledger, inode, .. } = &mut self.paths[path];
        let inode = inode.as_mut().expect("an open file");
        let (planned, stop) =
            inode.cache.begin_read(at, left, reading.reader, &mut stash, &mut reading.steps);
        stash.drain().for_each(|run| self.frames.give_run(run));
        reading.planned = planned;
        reading.expected = ledger.bytes()[at as usize..at as usize + planned].to_vec();
        if let ReadStop::Fill(bio) = &stop {
            self.fill(path, bio.clone());
        }
        self.read_ahead(path, ahead, reading.reader);
        self.make_room_ahead();
        match stop {
            _ if planned > 0 => Activity::Reading(reading),
            ReadStop::Busy | ReadStop::Fill(_) => {
                self.sleep_on_pages(id, path, Activity::Reading(reading))
            }
            ReadStop::NoFrames => self.starve(id, Activity::Reading(reading)),
            ReadStop::Failed(errno) => {
                self.check_fill_failure(path, at / PAGE, errno);
                Activity::Idle
            }
            ReadStop::Done => unreachable!("a read that is planned plans something"),
        }
    }

    pub(super) fn end_read(&mut self, id: usize, mut reading: Reading) -> Activity {
        let path = self.path_of(id);
        let mut expected = &reading.expected[..];
        for step in &reading.steps {
            let (part, rest) = expected.split_at(step.length);
            expected = rest;
            let is_right = match step.frame {
                None => part.iter().all(|byte| *byte == 0),
                Some(frame) => self.disk.arena().span(frame, step.at, step.length) == part,
            };
            assert!(is_right, "contract 11: a read of file {path} finds other bytes: {step:?}");
        }
        let mut settled = Settled::default();
        let inode = self.inode(path);
        inode.cache.end_read(&reading.steps, reading.reader.caching, &mut settled);
        check_let_go(inode, &reading);
        let awaited = inode.cache.has_tickets();
        self.tell(path, &mut settled);
        self.wake_page_waiters(path);
        if awaited {
            self.kick(path);
        }
        self.absorb(&mut settled);
        reading.done += reading.planned as u64;
        reading.planned = 0;
        reading.steps.clear();
        Activity::Reading(reading)
    }

    /// Which pages to read ahead of a call: asked once, at its beginning.
    fn advise(&mut self, path: usize, reading: &mut Reading) -> Range<u64> {
        if std::mem::replace(&mut reading.advised, true) {
            return 0..0;
        }
        let room = self.room_ahead();
        let cache = &mut self.inode(path).cache;
        let (ahead, again) =
            cache.advise(reading.offset..(reading.offset + reading.length).min(cache.size()), room);
        reading.reader.again = again;
        ahead
    }

    /// Has pages brought in that nobody waits for yet.
    fn read_ahead(&mut self, path: usize, pages: Range<u64>, reader: Reader) {
        let missing = self.inode(path).cache.missing(pages.clone());
        let (mut stash, mut bios) = (FrameRuns::default(), Vec::new());
        let room = self.room_ahead();
        self.frames.take(missing.min(room) as usize, &mut stash);
        self.inode(path).cache.fill_ahead(
            pages,
            Class::Background,
            reader.caching,
            &mut stash,
            &mut bios,
        );
        stash.drain().for_each(|run| self.frames.give_run(run));
        for bio in bios {
            let liberties = self.inode(path).cache.liberties();
            assert_eq!(
                liberties,
                Liberties::Exclusive,
                "contract 6: a shared file is read ahead: {bio:?}"
            );
            self.marks.hit("read ahead");
            self.fill(path, bio);
        }
    }
}

/// What does not stay is gone, unless somebody else uses it.
fn check_let_go(inode: &Inode, reading: &Reading) {
    let is_shared = inode.cache.liberties() == Liberties::Shared;
    for step in reading.steps.iter().filter(|step| step.frame.is_some()) {
        for page in step.pages() {
            assert!(
                !is_shared || !inode.cache.is_idle_clean(page),
                "contract 6: page {page} is kept of a shared file"
            );
            let is_read_out =
                (page + 1) * PAGE <= step.page * PAGE + (step.at + step.length) as u64;
            let passes = reading.reader.caching == Caching::Uncached && is_read_out;
            assert!(!passes || !inode.cache.is_passing(page), "page {page} was to pass");
        }
    }
}
