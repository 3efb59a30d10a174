//! A caller that writes: what it waits for, what it copies, and what it is told is accepted.

use std::ops::Range;

use forebay_block::{Bio, Target};
use forebay_cache::limits::PAGE;
use forebay_cache::{
    Admission, CachedFile, Caching, Copy, FrameRuns, Liberties, Prepare, Settled, WriteStop,
};

use crate::driver::Driver;
use crate::driver::caller::{Activity, STASH};
use crate::driver::context::UNCACHED_PAGES;

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

impl Writing {
    /// Whether it waits for another one to have appended, which may wait for memory.
    pub(super) fn waits_for_its_turn(&self) -> bool {
        self.offset.is_none()
    }

    /// Whether it has pages planned, and not published.
    pub(super) fn is_copying(&self) -> bool {
        self.planned > 0
    }

    /// The bytes that are being copied.
    pub(super) fn copying(&self) -> impl Iterator<Item = Range<u64>> {
        self.copies.iter().map(|copy| {
            let start = copy.page * PAGE + copy.at as u64;
            start..start + copy.length as u64
        })
    }

    /// What it is at, for a message.
    pub(super) fn summary(&self) -> String {
        format!("writing {:?}+{}, done {}", self.offset, self.data.len(), self.done)
    }
}

impl Driver {
    pub(super) fn begin_write(&mut self, offset: Option<u64>, length: u64) -> Activity {
        let data = self.draw_data(length);
        Activity::Writing(Writing {
            offset,
            data,
            done: 0,
            is_queued: false,
            copies: Vec::new(),
            planned: 0,
        })
    }

    pub(super) fn write(&mut self, id: usize, mut writing: Writing) -> Activity {
        let path = self.path_of(id);
        let Some(offset) = writing.offset else {
            return self.begin_append(id, path, writing);
        };
        let mut granted = 0;
        if writing.is_queued {
            granted = self.level.take_grant(id);
            writing.is_queued = false;
        }
        self.inode(path).credit += granted;
        let volume = self.volume_of(path);
        let of_volume = self.dirty_of(volume);
        let inode = self.paths[path].inode.as_mut().expect("an open file");
        let admission = self.level.admit(volume, of_volume, inode.cache.dirty_pages());
        if inode.credit == 0 && admission == Admission::Wait {
            writing.is_queued = true;
            self.callers[id].is_awake = false;
            self.level.queue(id, volume);
            self.level_fell(0);
            // The context finds out who sits on unused room.
            self.context.is_awake = true;
            self.marks.hit("throttled");
            return Activity::Writing(writing);
        }
        let caching = self.callers[id].caching();
        let inode = self.paths[path].inode.as_mut().expect("an open file");
        if caching == Caching::Uncached
            && inode.cache.liberties() == Liberties::Exclusive
            && inode.cache.dirty_pages() >= 3 * UNCACHED_PAGES
            && inode.cache.in_flight()
        {
            self.marks.hit("waits for what does not stay");
            return self.sleep_on_pages(id, path, Activity::Writing(writing));
        }
        let at = offset + writing.done as u64;
        let left = writing.data.len() - writing.done;
        let mut stash = FrameRuns::default();
        self.frames.take(left.div_ceil(PAGE as usize).clamp(2, STASH), &mut stash);
        let (planned, charged, stop) =
            inode.cache.begin_write(at, left, &mut stash, &mut writing.copies);
        let from_credit = charged.min(inode.credit);
        inode.credit -= from_credit;
        stash.drain().for_each(|run| self.frames.give_run(run));
        self.context.is_awake |= self.level.add(charged - from_credit);
        writing.planned = planned;
        CachedFile::tell_touched(&writing.copies, &mut self.accounts.tell(path));
        for copy in &writing.copies {
            self.marks.hit(if inode.cache.is_partial(copy.page) {
                "partial page written"
            } else {
                "page written"
            });
            let arena = self.disk.arena();
            match copy.prepare {
                Prepare::Nothing => arena.spoil(copy.frame, copy.at, copy.length),
                Prepare::Zero | Prepare::From(_) => arena.spoil(copy.frame, 0, PAGE as usize),
            }
            if matches!(copy.prepare, Prepare::From(_)) {
                self.marks.hit("touched in flight");
            }
        }
        match stop {
            _ if planned > 0 => Activity::Writing(writing),
            WriteStop::Busy => self.sleep_on_pages(id, path, Activity::Writing(writing)),
            WriteStop::NoFrames => self.starve(id, Activity::Writing(writing)),
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

    /// Whether there is space for a write; where there is little, it is allocated before anything
    /// is accepted.
    pub(super) fn make_room(&mut self, path: usize, offset: u64, length: u64) -> bool {
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

    pub(super) fn publish(&mut self, id: usize, mut writing: Writing) -> Activity {
        let path = self.path_of(id);
        let caching = self.callers[id].caching();
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
            arena.span_mut(copy.frame, copy.at, copy.length).copy_from_slice(part);
            self.paths[path].ledger.accept(copy.page * PAGE + copy.at as u64, part);
        }
        let now = self.disk.now();
        let mut settled = Settled::default();
        let inode = self.inode(path);
        let published = inode.cache.publish(&writing.copies, caching, &mut settled);
        if published.first {
            inode.dirty_since = Some(now);
        }
        if caching == Caching::Uncached && inode.cache.unsent_pages() >= UNCACHED_PAGES {
            if !self.context.uncached.contains(&path) {
                self.context.uncached.push(path);
            }
            self.context.is_awake = true;
        }
        let inode = self.inode(path);
        let (size, expected) = (inode.cache.size(), self.paths[path].ledger.size());
        assert_eq!(size, expected, "contract 8: the size of file {path} after a write");
        self.finish_memory(path, &mut settled);
        let inode = self.paths[path].inode.as_ref().expect("an open file");
        inode.cache.tell_copied(&writing.copies, &mut self.accounts.tell(path));
        self.tell(path, &mut settled);
        if published.first || published.awaited {
            self.kick(path);
        }
        self.wake_page_waiters(path);
        self.absorb(&mut settled);
        self.make_room_ahead();
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

    /// Pages have to be read.
    pub(super) fn fill(&mut self, path: usize, bio: Bio) {
        self.check_bio(path, &bio);
        self.inode(path).went_out(&bio);
        self.context.pending.push_back(bio);
        self.context.is_awake = true;
    }
}
