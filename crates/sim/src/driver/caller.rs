//! A caller of a run: a program's thread that has one file open at a time, and does one thing after
//! the other.
//!
//! A copy takes two steps, planned and published, so that everything else may happen in between.
//! What is copied into is spoiled at the first: if anybody sends or reads it meanwhile, that is
//! found.

use forebay_block::Target;
use forebay_cache::{Caching, Liberties, TicketId, TicketKind};

use crate::driver::Driver;
use crate::driver::inode::{Handle, Inode};
use crate::driver::operation::Operation;
use crate::driver::reading::Reading;
use crate::driver::writing::Writing;

/// Frames taken for one step, at most.
pub(super) const STASH: usize = 64;

/// One caller.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) is_awake: bool,
    pub(super) activity: Activity,
    handle: Option<Handle>,
    /// Where its last write ended.
    pub(super) last_end: u64,
}

/// What a caller is at.
#[derive(Debug)]
pub(super) enum Activity {
    Idle,
    Writing(Writing),
    Reading(Reading),
    /// Waits for a ticket.
    Asking(Asking),
    /// Holds its file to drop what is dirty.
    Discarding,
    /// Waits until the context has let go of the file at this path.
    LettingGo(usize),
    Done,
}

#[derive(Debug)]
pub(super) struct Asking {
    id: TicketId,
    request: TicketKind,
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

    /// Whether it has a file open.
    pub(super) fn has_open(&self, path: usize) -> bool {
        self.handle.as_ref().is_some_and(|handle| handle.path == path)
    }

    /// Whether what it writes and reads stays.
    pub(super) fn caching(&self) -> Caching {
        self.handle.as_ref().expect("a file is open").caching
    }

    /// Whether it waits for another one to have appended, which may wait for memory.
    pub(super) fn waits_for_its_turn(&self) -> bool {
        matches!(&self.activity, Activity::Writing(writing) if writing.waits_for_its_turn())
    }

    /// What it is at, for a message.
    pub(super) fn summary(&self) -> String {
        match &self.activity {
            Activity::Writing(writing) => writing.summary(),
            Activity::Reading(reading) => reading.summary(),
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
            Activity::Writing(writing) if writing.is_copying() => self.publish(id, writing),
            Activity::Writing(writing) => self.write(id, writing),
            Activity::Reading(reading) if reading.is_copying() => self.end_read(id, reading),
            Activity::Reading(reading) => self.read(id, reading),
            Activity::Asking(asking) => self.hear(id, asking),
            Activity::Discarding => self.discard(id),
            Activity::LettingGo(path) => self.let_go_of(id, path),
            Activity::Done => self.sleep(id, Activity::Done),
        };
        self.callers[id].activity = next;
    }

    pub(super) fn sleep(&mut self, id: usize, activity: Activity) -> Activity {
        self.callers[id].is_awake = false;
        activity
    }

    pub(super) fn sleep_on_pages(
        &mut self,
        id: usize,
        path: usize,
        activity: Activity,
    ) -> Activity {
        self.inode(path).page_waiters.push(id);
        self.marks.hit("wait for pages");
        self.sleep(id, activity)
    }

    pub(super) fn take_handle(&mut self, id: usize) -> Handle {
        self.callers[id].handle.take().expect("a file is open")
    }

    pub(super) fn give_handle(&mut self, id: usize, handle: Handle) {
        self.callers[id].handle = Some(handle);
    }

    pub(super) fn path_of(&self, id: usize) -> usize {
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
            Operation::Read { offset, length } => self.begin_read(id, path, offset, length),
            Operation::SetLength(length) => {
                let asking = self.ask(path, TicketKind::SetLength(length), Then::GoOn);
                self.inode(path).lengths.push_back((asking.id, length));
                Activity::Asking(asking)
            }
            Operation::DiscardRange { offset, length } => {
                let pages = self.inode(path).cache.whole_pages(&(offset..offset + length));
                if pages.is_empty() {
                    return Activity::Idle;
                }
                let request =
                    TicketKind::Discard { first: pages.start, pages: pages.end - pages.start };
                let asking = self.ask(path, request, Then::GoOn);
                self.perhaps_abandon(path, asking)
            }
            Operation::Sync(request) => {
                let asking = self.ask(path, request, Then::GoOn);
                self.perhaps_abandon(path, asking)
            }
            Operation::Discard => self.begin_discard(path),
            Operation::Close => self.begin_close(id, path),
        }
    }

    /// The device is well again: what is dirty is synced, then closed.
    fn begin_last(&mut self, id: usize, path: usize) -> Activity {
        if self.inode(path).cache.is_dirty() && self.random.below(2) == 0 {
            return Activity::Asking(self.ask(path, TicketKind::FlushData, Then::GoOn));
        }
        self.begin_close(id, path)
    }

    fn open(&mut self, id: usize) {
        let path = self.random.below(self.paths.len() as u64) as usize;
        let target = Target(path as u32);
        if self.paths[path].inode.is_none() {
            let is_shared = self.random.happens(self.plan.shared) && !self.plan.are_devices;
            let liberties = if is_shared { Liberties::Shared } else { Liberties::Exclusive };
            let entry = self.paths[path].entry;
            let stored = self.disk.file(target);
            let size = stored.size();
            let mut inode = Inode::open(target, entry, size, liberties, &self.plan);
            // Left by a write that failed: it is not ours to give back.
            inode.keeps_space = stored.allocated_beyond_end().is_some();
            self.paths[path].inode = Some(inode);
            if is_shared {
                self.paths[path].ledger.share();
            }
            self.accounts.enter(path, size);
            self.disk.open(target);
            // What was written before is not kept.
            let inode = self.inode(path);
            let lacks_frames = is_shared && inode.cache.lacks_frames();
            if lacks_frames {
                let flush = inode.cache.ask(TicketKind::FlushData);
                inode.cache.abandon(flush);
                self.kick(path);
            }
            self.disk.set_others(target, is_shared && !lacks_frames);
            self.note(path, "opened", 0, size, 0);
        }
        self.inode(path).handles += 1;
        // Others may have waited for the file to be let go of.
        self.wake_page_waiters(path);
        let is_uncached = self.random.happens(self.plan.uncached);
        let caching = if is_uncached { Caching::Uncached } else { Caching::Cached };
        self.callers[id].handle = Some(Handle { path, caching, seen: 0, errors_told: 0 });
    }

    fn ask(&mut self, path: usize, request: TicketKind, then: Then) -> Asking {
        let change = self.paths[path].ledger.change();
        let inode = self.inode(path);
        let id = inode.cache.ask(request);
        let credit = std::mem::take(&mut inode.credit);
        self.kick(path);
        self.level_fell(credit);
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
        let (request, then) = if is_last {
            (TicketKind::Release, Then::LetGo)
        } else {
            (TicketKind::WriteOut, Then::Closed)
        };
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
        let mut handle = self.take_handle(id);
        let path = handle.path;
        let Some(result) = self.inode(path).cache.fetch(asking.id) else {
            self.give_handle(id, handle);
            self.inode(path).ticket_waiters.push(id);
            return self.sleep(id, Activity::Asking(asking));
        };
        let waited = self.disk.transitions() - asking.transitions;
        self.longest_wait = self.longest_wait.max(waited);
        match asking.request {
            TicketKind::FlushData | TicketKind::FlushAll => {
                self.check_sync(&mut handle, asking.change, result);
            }
            TicketKind::SetLength(_) => {}
            TicketKind::Discard { .. } => self.check_failure(path, result),
            TicketKind::WriteOut | TicketKind::Release => {
                self.check_failure(path, result);
                self.check_told(&mut handle, result);
            }
        }
        match asking.then {
            Then::GoOn => {
                self.give_handle(id, handle);
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
            Some(inode) if inode.handles == 0 => {
                self.sleep_on_pages(id, path, Activity::LettingGo(path))
            }
            _ => Activity::Idle,
        }
    }
}
