//! A caller of a run: a program's thread that has one file open at a time, and does one thing after the other.
//!
//! A copy takes two steps, planned and published, so that everything else may happen in between. What is copied
//! into is spoiled at the first: if anybody sends or reads it meanwhile, that is found.

use forebay_block::{Bio, Target};
use forebay_cache::file::Entry;
use forebay_cache::limits::PAGE;
use forebay_cache::{
    Admission, Copy, Liberties, Prepare, ReadStep, ReadStop, Request, Settled, TicketId, WriteStop,
};

use crate::driver::Driver;
use crate::driver::inode::{Handle, Inode, Path};
use crate::driver::operation::Operation;

/// Frames taken for one step, at most.
const STASH: usize = 64;

/// One caller.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) is_awake: bool,
    pub(super) activity: Activity,
    handle: Option<Handle>,
    /// Where its last write ended.
    last_end: u64,
}

/// What a caller is at.
#[derive(Debug)]
pub(super) enum Activity {
    Idle,
    Writing(Writing),
    Reading(Reading),
    /// Waits for a ticket.
    Asking(Asking),
    /// Waits until the context has let go of the file at this path.
    LettingGo(usize),
    Done,
}

#[derive(Debug)]
pub(super) struct Writing {
    /// `None`: at the end, once it has the right to append.
    offset: Option<u64>,
    data: Vec<u8>,
    done: usize,
    /// Waits for a share of the level.
    is_queued: bool,
    /// Planned, and not published.
    copies: Vec<Copy>,
    planned: usize,
}

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

#[derive(Debug)]
pub(super) struct Asking {
    id: TicketId,
    request: Request,
    /// The last change accepted before.
    change: u64,
    /// The device's transitions before.
    transitions: u64,
    then: Then,
}

/// What follows a ticket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Then {
    GoOn,
    /// The handle was given up; it was not the last.
    Closed,
    /// The handle was given up, and was the last.
    LetGo,
}

impl Caller {
    pub(super) fn new() -> Self {
        Self { is_awake: true, activity: Activity::Idle, handle: None, last_end: 0 }
    }

    /// Whether it waits for another one to have appended, which may wait for memory.
    pub(super) fn waits_for_its_turn(&self) -> bool {
        matches!(&self.activity, Activity::Writing(writing) if writing.offset.is_none())
    }

    /// What it is at, for a message.
    pub(super) fn summary(&self) -> String {
        match &self.activity {
            Activity::Writing(writing) => {
                format!("writing {:?}+{}, done {}", writing.offset, writing.data.len(), writing.done)
            }
            Activity::Reading(reading) => {
                format!("reading {}+{}, done {}", reading.offset, reading.length, reading.done)
            }
            other => format!("{other:?}"),
        }
    }
}

impl Driver {
    /// A caller that is awake does its next step.
    pub(super) fn step_caller(&mut self, id: usize) {
        let activity = std::mem::replace(&mut self.callers[id].activity, Activity::Idle);
        let next = match activity {
            Activity::Idle => self.begin(id),
            Activity::Writing(writing) if writing.planned > 0 => self.publish(id, writing),
            Activity::Writing(writing) => self.write(id, writing),
            Activity::Reading(reading) if reading.planned > 0 => self.end_read(id, reading),
            Activity::Reading(reading) => self.read(id, reading),
            Activity::Asking(asking) => self.hear(id, asking),
            Activity::LettingGo(path) => self.let_go_of(id, path),
            Activity::Done => self.sleep(id, Activity::Done),
        };
        self.callers[id].activity = next;
    }

    fn sleep(&mut self, id: usize, activity: Activity) -> Activity {
        self.callers[id].is_awake = false;
        activity
    }

    fn sleep_on_pages(&mut self, id: usize, path: usize, activity: Activity) -> Activity {
        self.inode(path).page_waiters.push(id);
        self.marks.hit("wait for pages");
        self.sleep(id, activity)
    }

    fn path_of(&self, id: usize) -> usize {
        self.callers[id].handle.as_ref().expect("a file is open").path
    }

    fn begin(&mut self, id: usize) -> Activity {
        let Some(handle) = &self.callers[id].handle else {
            if self.operations_left == 0 {
                return self.sleep(id, Activity::Done);
            }
            self.open(id);
            return Activity::Idle;
        };
        let path = handle.path;
        if self.operations_left == 0 {
            return self.begin_last(id, path);
        }
        self.operations_left -= 1;
        match self.draw_operation(path, self.callers[id].last_end) {
            Operation::Write { offset, length } if self.make_room(path, offset, length) => {
                self.begin_write(Some(offset), length)
            }
            Operation::Write { .. } => Activity::Idle,
            Operation::Append { length } => self.begin_write(None, length),
            Operation::Read { offset, length } => self.begin_read(path, offset, length),
            Operation::SetLength(length) => {
                let asking = self.ask(path, Request::SetLength(length), Then::GoOn);
                self.inode(path).lengths.push_back((asking.id, length));
                Activity::Asking(asking)
            }
            Operation::Sync(request) => {
                let asking = self.ask(path, request, Then::GoOn);
                self.perhaps_abandon(path, asking)
            }
            Operation::Close => self.begin_close(id, path),
        }
    }

    /// The device is well again: what is dirty is synced, then closed.
    fn begin_last(&mut self, id: usize, path: usize) -> Activity {
        if self.inode(path).cache.is_dirty() && self.random.below(2) == 0 {
            return Activity::Asking(self.ask(path, Request::FlushData, Then::GoOn));
        }
        self.begin_close(id, path)
    }

    fn open(&mut self, id: usize) {
        let path = self.random.below(self.paths.len() as u64) as usize;
        let target = Target(path as u32);
        if self.paths[path].inode.is_none() {
            let is_shared = self.random.happens(self.plan.shared);
            let liberties = if is_shared { Liberties::Shared } else { Liberties::Exclusive };
            let entry = if self.paths[path].exists { Entry::Old } else { Entry::New };
            let stored = self.disk.file(target);
            let size = stored.size();
            let mut inode = Inode::open(target, entry, size, liberties, self.plan.reserving);
            // Left by a write that failed: it is not ours to give back.
            inode.keeps_space = stored.allocated_beyond_end().is_some();
            self.paths[path].inode = Some(inode);
            self.paths[path].exists = true;
            self.note(path, "opened", 0, size, 0);
        }
        self.inode(path).handles += 1;
        // Others may have waited for the file to be let go of.
        self.wake_page_waiters(path);
        self.callers[id].handle = Some(Handle { path, seen: 0, errors_told: 0 });
    }

    // Writing

    fn begin_write(&mut self, offset: Option<u64>, length: u64) -> Activity {
        let data = self.draw_data(length);
        Activity::Writing(Writing { offset, data, done: 0, is_queued: false, copies: Vec::new(), planned: 0 })
    }

    fn write(&mut self, id: usize, mut writing: Writing) -> Activity {
        let path = self.path_of(id);
        let Some(offset) = writing.offset else {
            return self.begin_append(id, path, writing);
        };
        let mut granted = 0;
        if writing.is_queued {
            granted = self.level.take_grant(id);
            writing.is_queued = false;
        }
        let inode = self.paths[path].inode.as_mut().expect("an open file");
        inode.credit += granted;
        if inode.credit == 0 && self.level.admit(inode.cache.dirty_pages()) == Admission::Wait {
            writing.is_queued = true;
            self.callers[id].is_awake = false;
            let woken = self.level.queue(id);
            self.wake(&woken);
            self.marks.hit("throttled");
            return Activity::Writing(writing);
        }
        let at = offset + writing.done as u64;
        let left = writing.data.len() - writing.done;
        let mut stash = Vec::new();
        self.frames.take(left.div_ceil(PAGE as usize).clamp(1, STASH), &mut stash);
        let (planned, charged, stop) = inode.cache.begin_write(at, left, &mut stash, &mut writing.copies);
        let from_credit = charged.min(inode.credit);
        inode.credit -= from_credit;
        stash.into_iter().for_each(|frame| self.frames.give(frame));
        self.context.is_awake |= self.level.add(charged - from_credit);
        writing.planned = planned;
        for copy in &writing.copies {
            inode.failed_fills.remove(&copy.page);
            let arena = self.disk.arena();
            match copy.prepare {
                Prepare::Nothing => arena.spoil(copy.frame, copy.at, copy.length),
                Prepare::Zero | Prepare::From(_) => arena.spoil(copy.frame, 0, PAGE as usize),
            }
            if matches!(copy.prepare, Prepare::From(_)) {
                self.marks.hit("touched in flight");
            }
        }
        if let WriteStop::Fill(bio) = &stop {
            self.fill(path, bio.clone());
        }
        match stop {
            _ if planned > 0 => Activity::Writing(writing),
            WriteStop::Busy | WriteStop::Fill(_) => self.sleep_on_pages(id, path, Activity::Writing(writing)),
            WriteStop::NoFrames => self.starve(id, Activity::Writing(writing)),
            WriteStop::Failed(errno) => {
                // What was written before stays.
                self.check_fill_failure(path, at / PAGE, errno);
                self.end_write(id, path, &writing)
            }
            WriteStop::Done => unreachable!("a write that is planned plans something"),
        }
    }

    fn begin_append(&mut self, id: usize, path: usize, mut writing: Writing) -> Activity {
        let most = self.plan.ends().end - 1;
        let inode = self.inode(path);
        if inode.appending.is_some() {
            return self.sleep_on_pages(id, path, Activity::Writing(writing));
        }
        let size = inode.cache.size();
        writing.data.truncate(most.saturating_sub(size) as usize);
        if writing.data.is_empty() {
            return Activity::Idle;
        }
        if !self.make_room(path, size, writing.data.len() as u64) {
            return Activity::Idle;
        }
        self.inode(path).appending = Some(id);
        writing.offset = Some(size);
        Activity::Writing(writing)
    }

    /// Whether there is space for a write; where there is little, it is allocated before anything is accepted.
    fn make_room(&mut self, path: usize, offset: u64, length: u64) -> bool {
        let plenty = self.disk.free_pages() >= 4 * (self.level.dirty() + 1) + length.div_ceil(PAGE);
        let bytes = offset / PAGE * PAGE..(offset + length).next_multiple_of(PAGE);
        if plenty || self.inode(path).cache.is_allocated(&bytes) {
            return true;
        }
        let is_made = self.disk.allocate(Target(path as u32), bytes.clone()).is_ok();
        if is_made {
            self.inode(path).cache.note_allocated(bytes);
        }
        self.marks.hit(if is_made { "room made" } else { "no room" });
        is_made
    }

    fn publish(&mut self, id: usize, mut writing: Writing) -> Activity {
        let path = self.path_of(id);
        let mut from = &writing.data[writing.done..];
        for copy in &writing.copies {
            let (part, rest) = from.split_at(copy.length);
            from = rest;
            let arena = self.disk.arena();
            match copy.prepare {
                Prepare::Nothing => {}
                Prepare::Zero => arena.frame_mut(copy.frame).fill(0),
                Prepare::From(old) => arena.copy(old, copy.frame),
            }
            arena.frame_mut(copy.frame)[copy.at..copy.at + copy.length].copy_from_slice(part);
            self.paths[path].ledger.accept(copy.page * PAGE + copy.at as u64, part);
        }
        let now = self.disk.now();
        let mut settled = Settled::default();
        let inode = self.inode(path);
        let published = inode.cache.publish(&writing.copies, &mut settled);
        if published.first {
            inode.dirty_since = Some(now);
        }
        let (size, expected) = (inode.cache.size(), self.paths[path].ledger.size());
        assert_eq!(size, expected, "contract 8: the size of file {path} after a write");
        if published.first || published.awaited {
            self.kick(path);
        }
        self.wake_page_waiters(path);
        self.absorb(&mut settled);
        let at = writing.offset.unwrap_or(0) + writing.done as u64;
        self.note(path, "accepted", at, writing.planned as u64, 0);
        writing.done += writing.planned;
        writing.planned = 0;
        writing.copies.clear();
        if writing.done < writing.data.len() {
            return Activity::Writing(writing);
        }
        self.callers[id].last_end = writing.offset.unwrap_or(0) + writing.done as u64;
        self.end_write(id, path, &writing)
    }

    fn end_write(&mut self, id: usize, path: usize, writing: &Writing) -> Activity {
        debug_assert!(writing.planned == 0 && !writing.is_queued);
        if self.inode(path).appending == Some(id) {
            self.inode(path).appending = None;
            self.wake_page_waiters(path);
        }
        self.marks.hit("write");
        Activity::Idle
    }

    /// No frame is free: drops clean pages, or sleeps until frames come back.
    fn starve(&mut self, id: usize, activity: Activity) -> Activity {
        self.marks.hit("starved of frames");
        let mut settled = Settled::default();
        for path in &mut self.paths {
            if let Some(inode) = &mut path.inode {
                inode.cache.evict(STASH, &mut settled);
            }
        }
        self.absorb(&mut settled);
        if self.frames.free() > 0 {
            return activity;
        }
        self.frame_waiters.push(id);
        self.context.is_awake = true;
        self.sleep(id, activity)
    }

    /// A page has to be read first.
    fn fill(&mut self, path: usize, bio: Bio) {
        self.check_bio(path, &bio);
        self.inode(path).went_out(&bio);
        self.context.pending.push_back(bio);
        self.context.is_awake = true;
    }

    // Reading

    fn begin_read(&mut self, path: usize, offset: u64, length: u64) -> Activity {
        let mut settled = Settled::default();
        let size = self.disk.file(Target(path as u32)).size();
        let inode = self.inode(path);
        if inode.cache.liberties() == Liberties::Shared {
            inode.cache.observe_disk_size(size);
            let end = (offset + length).min(inode.cache.size());
            inode.cache.start_read(&(offset.min(end)..end), &mut settled);
            self.absorb(&mut settled);
        }
        let (steps, expected) = (Vec::new(), Vec::new());
        Activity::Reading(Reading { offset, length, done: 0, steps, planned: 0, expected })
    }

    fn read(&mut self, id: usize, mut reading: Reading) -> Activity {
        let path = self.path_of(id);
        let at = reading.offset + reading.done;
        let Path { ledger, inode, .. } = &mut self.paths[path];
        let left = (reading.length - reading.done).min(ledger.size().saturating_sub(at)) as usize;
        if left == 0 {
            self.marks.hit("read");
            return Activity::Idle;
        }
        let mut stash = Vec::new();
        self.frames.take(left.div_ceil(PAGE as usize).clamp(1, STASH), &mut stash);
        let inode = inode.as_mut().expect("an open file");
        let (planned, stop) = inode.cache.begin_read(at, left, &mut stash, &mut reading.steps);
        stash.into_iter().for_each(|frame| self.frames.give(frame));
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

    fn end_read(&mut self, id: usize, mut reading: Reading) -> Activity {
        let path = self.path_of(id);
        let mut expected = &reading.expected[..];
        for step in &reading.steps {
            let (part, rest) = expected.split_at(step.length);
            expected = rest;
            let is_right = match step.frame {
                None => part.iter().all(|byte| *byte == 0),
                Some(frame) => self.disk.arena().frame(frame)[step.at..step.at + step.length] == *part,
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

    // Asking

    fn ask(&mut self, path: usize, request: Request, then: Then) -> Asking {
        let change = self.paths[path].ledger.change();
        let inode = self.inode(path);
        let id = inode.cache.ask(request);
        let credit = std::mem::take(&mut inode.credit);
        self.kick(path);
        let woken = self.level.remove(credit);
        self.wake(&woken);
        self.note(path, "asked", 0, 0, 0);
        Asking { id, request, change, transitions: self.disk.transitions(), then }
    }

    /// Some futures are dropped; what they asked for goes on.
    fn perhaps_abandon(&mut self, path: usize, asking: Asking) -> Activity {
        if !self.random.happens(self.plan.abandoned) {
            return Activity::Asking(asking);
        }
        self.inode(path).cache.abandon(asking.id);
        self.marks.hit("abandoned");
        Activity::Idle
    }

    fn begin_close(&mut self, id: usize, path: usize) -> Activity {
        let is_last = self.inode(path).handles == 1;
        let (request, then) =
            if is_last { (Request::Release, Then::LetGo) } else { (Request::WriteOut, Then::Closed) };
        let asking = self.ask(path, request, then);
        self.inode(path).handles -= 1;
        self.marks.hit("close");
        if self.random.happens(self.plan.abandoned) {
            self.inode(path).cache.abandon(asking.id);
            self.callers[id].handle = None;
            return Activity::Idle;
        }
        Activity::Asking(asking)
    }

    fn hear(&mut self, id: usize, asking: Asking) -> Activity {
        let mut handle = self.callers[id].handle.take().expect("a file is open");
        let path = handle.path;
        let Some(result) = self.inode(path).cache.fetch(asking.id) else {
            self.callers[id].handle = Some(handle);
            self.inode(path).ticket_waiters.push(id);
            return self.sleep(id, Activity::Asking(asking));
        };
        let waited = self.disk.transitions() - asking.transitions;
        self.longest_wait = self.longest_wait.max(waited);
        match asking.request {
            Request::FlushData | Request::FlushAll => self.check_sync(&mut handle, asking.change, result),
            Request::SetLength(_) => {}
            Request::WriteOut | Request::Release => {
                self.check_failure(path, result);
                self.check_told(&mut handle, result);
            }
        }
        match asking.then {
            Then::GoOn => {
                self.callers[id].handle = Some(handle);
                Activity::Idle
            }
            Then::Closed => Activity::Idle,
            Then::LetGo => Activity::LettingGo(path),
        }
    }

    /// A file is closed: whoever has not fetched a ticket of it yet does so now.
    pub(super) fn hear_all(&mut self, path: usize) {
        for id in 0..self.callers.len() {
            let is_its = self.callers[id].handle.as_ref().is_some_and(|handle| handle.path == path);
            if is_its && matches!(self.callers[id].activity, Activity::Asking(_)) {
                self.callers[id].is_awake = true;
                self.step_caller(id);
            }
        }
    }

    fn let_go_of(&mut self, id: usize, path: usize) -> Activity {
        match &self.paths[path].inode {
            Some(inode) if inode.handles == 0 => self.sleep_on_pages(id, path, Activity::LettingGo(path)),
            _ => Activity::Idle,
        }
    }
}
