//! A caller that reads: what it waits for, and whether it finds what was accepted.

use forebay_block::Target;
use forebay_cache::limits::PAGE;
use forebay_cache::{FrameRuns, Liberties, ReadStep, ReadStop, Settled};

use crate::driver::Driver;
use crate::driver::caller::{Activity, STASH};
use crate::driver::inode::Path;

#[derive(Debug)]
pub(super) struct Reading {
    offset: u64,
    length: u64,
    done: u64,
    steps: Vec<ReadStep>,
    planned: usize,
    /// What the steps must find.
    expected: Vec<u8>,
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
    pub(super) fn begin_read(&mut self, path: usize, offset: u64, length: u64) -> Activity {
        let mut settled = Settled::default();
        let size = self.disk.file(Target(path as u32)).size();
        let inode = self.inode(path);
        if inode.cache.liberties() == Liberties::Shared {
            inode.cache.observe_disk_size(size, &mut settled);
            let end = (offset + length).min(inode.cache.size());
            inode.cache.start_read(&(offset.min(end)..end), &mut settled);
            self.absorb(&mut settled);
        }
        let (steps, expected) = (Vec::new(), Vec::new());
        Activity::Reading(Reading { offset, length, done: 0, steps, planned: 0, expected })
    }

    pub(super) fn read(&mut self, id: usize, mut reading: Reading) -> Activity {
        let path = self.path_of(id);
        let at = reading.offset + reading.done;
        let Path { ledger, inode, .. } = &mut self.paths[path];
        let left = (reading.length - reading.done).min(ledger.size().saturating_sub(at)) as usize;
        if left == 0 {
            self.marks.hit("read");
            return Activity::Idle;
        }
        let mut stash = FrameRuns::default();
        self.frames.take(left.div_ceil(PAGE as usize).clamp(1, STASH), &mut stash);
        let inode = inode.as_mut().expect("an open file");
        let (planned, stop) = inode.cache.begin_read(at, left, &mut stash, &mut reading.steps);
        stash.drain().for_each(|run| self.frames.give_run(run));
        reading.planned = planned;
        reading.expected = ledger.bytes()[at as usize..at as usize + planned].to_vec();
        if let ReadStop::Fill(bio) = &stop {
            self.fill(path, bio.clone());
        }
        match stop {
            _ if planned > 0 => Activity::Reading(reading),
            ReadStop::Busy | ReadStop::Fill(_) => self.sleep_on_pages(id, path, Activity::Reading(reading)),
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
        inode.cache.end_read(&reading.steps, &mut settled);
        let awaited = inode.cache.has_tickets();
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
}
