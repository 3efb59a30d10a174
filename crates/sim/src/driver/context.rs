//! The context of a run: the same pass as the engine's, over the same queue.

use std::collections::VecDeque;
use std::time::Duration;

use forebay_block::queue::Awaited;
use forebay_block::{Bio, Class, Ended, Errno, Moment, Operation, Target, Wait};
use forebay_cache::file::Entry;
use forebay_cache::limits::PAGE;
use forebay_cache::space::at_most;
use forebay_cache::writeback::pace::Pace;
use forebay_cache::writeback::settle::Keep;
use forebay_cache::{CachedFile, Gaps, Liberties, Reason, Settled};

use crate::driver::Driver;
use crate::driver::inode::Path;
use crate::plan::Plan;
use crate::random::PerMille;

/// Bios taken from one file before the next one has a turn, in one pass.
const RUN_PER_FILE: usize = 4;

/// Pages that do not stay are written out from so many on in a file, and who writes them waits at
/// three times as many.
pub(super) const UNCACHED_PAGES: u64 = 4;

/// How often, in the age of a page, it is looked whether something is too old.
const TICKS_PER_AGE: u32 = 4;

/// Requests of a class in flight, to all file systems.
const SLOTS: usize = 48;

/// The context's own state.
#[derive(Debug, Default)]
pub(super) struct Context {
    /// It has something to look at, and does not sleep.
    pub(super) is_awake: bool,
    /// Files to be looked at.
    pub(super) looks: VecDeque<usize>,
    /// Bios callers made themselves.
    pub(super) pending: VecDeque<Bio>,
    pub(super) next_tick: Option<Duration>,
    waited: Vec<usize>,
    /// Files with something dirty, by file system.
    dirty: Vec<VecDeque<usize>>,
    overdue: Vec<usize>,
    /// Files of which much is dirty that does not stay.
    pub(super) uncached: Vec<usize>,
    leaving: Vec<usize>,
    ended: Vec<Ended>,
    /// What is on its way to each file system.
    paces: Vec<Pace>,
}

impl Context {
    pub(super) fn new(plan: &Plan) -> Self {
        let paces = (0..plan.volumes).map(|_| Pace::new(plan.flight)).collect();
        let dirty = (0..plan.volumes).map(|_| VecDeque::new()).collect();
        Self { paces, dirty, ..Self::default() }
    }
}

impl Driver {
    /// One pass of the context, up to where it sleeps in the doorbell.
    pub(super) fn pass(&mut self) {
        self.context.is_awake = false;
        self.take_messages();
        self.serve_callers();
        self.serve_waited();
        self.give_leases_up();
        // Before anything is sent again of a file that nobody has: pages that fail would keep it
        // for good.
        self.let_go();
        self.tick();
        self.serve_uncached();
        self.serve_background();
        self.reclaim_kept();
        self.queue.set_awaited(self.is_awaited());
        self.queue
            .dispatch(&mut self.disk, Wait::Not)
            .expect("the simulated device does not break");
        // What was refused for a reason ended at once, and is not slept on.
        self.context.is_awake |= !self.context.ended.is_empty();
        self.end_run();
    }

    /// What has completed is ended; then the context looks again.
    pub(super) fn reap(&mut self) {
        self.queue.set_awaited(self.is_awaited());
        self.queue.run(&mut self.disk, &mut self.context.ended);
        self.end_run();
        self.context.is_awake = true;
    }

    /// Whether somebody waits for room, for a frame, or for a page.
    fn is_awaited(&self) -> Awaited {
        let waits =
            |path: &Path| path.inode.as_ref().is_some_and(|inode| !inode.page_waiters.is_empty());
        let is_awaited = self.level.has_waiters()
            || !self.frame_waiters.is_empty()
            || self.paths.iter().any(waits);
        if is_awaited { Awaited::Yes } else { Awaited::No }
    }

    fn take_messages(&mut self) {
        while let Some(path) = self.context.looks.pop_front() {
            let Some(inode) = &mut self.paths[path].inode else { continue };
            inode.kicked = false;
            let (waited, dirty) = (inode.cache.has_tickets(), inode.cache.is_dirty());
            list(if waited { &mut self.context.waited } else { &mut self.context.leaving }, path);
            let volume = self.volume_of(path);
            let listed = &mut self.context.dirty[volume];
            if dirty && !listed.contains(&path) {
                listed.push_back(path);
                self.share_out();
            }
        }
    }

    fn share_out(&mut self) {
        let Context { dirty, paces, .. } = &self.context;
        let is_written =
            |&volume: &usize| !dirty[volume].is_empty() || paces[volume].requests() > 0;
        let written: Vec<_> = (0..self.plan.volumes).filter(is_written).collect();
        if self.level.share_out(&written) {
            self.marks.hit("level shared out");
        }
    }

    fn serve_callers(&mut self) {
        while self.queue.room() > 0
            && let Some(bio) = self.context.pending.pop_front()
        {
            self.submit(bio);
        }
    }

    fn serve_waited(&mut self) {
        let mut waited = std::mem::take(&mut self.context.waited);
        waited.retain(|&path| {
            // However much others have to write, each has something on its way.
            while self.queue.room() > 0
                && (!self.inode(path).cache.in_flight() || self.has_room(path, Class::Waited))
                && let Some(bio) = self.next_bio(path, Reason::Sync)
            {
                self.send(path, bio);
            }
            self.tell_tickets(path);
            let waits = self.inode(path).cache.has_tickets();
            if !waits {
                list(&mut self.context.leaving, path);
            }
            waits
        });
        waited.append(&mut self.context.waited);
        self.context.waited = waited;
    }

    /// Leases that others wait for go when everything before is done; some early, as after a
    /// second.
    fn give_leases_up(&mut self) {
        for path in 0..self.paths.len() {
            let Some(inode) = &mut self.paths[path].inode else { continue };
            let Some(broken_at) = inode.broken_at else { continue };
            let is_over = inode.cache.break_is_over();
            if is_over || self.random.happens(PerMille(50)) && !inode.cache.takes_liberties() {
                inode.cache.end_break();
                inode.broken_at = None;
                self.check_lease_given_up(path, broken_at, is_over);
            }
        }
    }

    fn tick(&mut self) {
        if self.context.dirty.iter().all(VecDeque::is_empty) {
            self.context.next_tick = None;
            return;
        }
        let (now, tick) = (self.disk.now(), self.plan.age / TICKS_PER_AGE);
        if now >= *self.context.next_tick.get_or_insert(now + tick) {
            self.context.next_tick = Some(now + tick);
            self.age(now);
        }
        let mut overdue = std::mem::take(&mut self.context.overdue);
        overdue.retain(|&path| {
            self.serve(path, Reason::Periodic, usize::MAX);
            self.inode(path).cache.is_overdue()
        });
        self.context.overdue = overdue;
    }

    /// What does not stay goes out whatever the level.
    fn serve_uncached(&mut self) {
        let mut uncached = std::mem::take(&mut self.context.uncached);
        uncached.retain(|&path| {
            let is_much =
                |driver: &mut Self| driver.inode(path).cache.unsent_pages() >= UNCACHED_PAGES / 2;
            while is_much(self) && self.serve(path, Reason::Uncached, 1) > 0 {}
            is_much(self) && self.inode(path).cache.in_flight()
        });
        self.context.uncached = uncached;
    }

    fn age(&mut self, now: Duration) {
        let mut dirty = std::mem::take(&mut self.context.dirty);
        let age = self.plan.age;
        for listed in &mut dirty {
            listed.retain(|&path| {
                let inode = self.inode(path);
                if !inode.cache.is_dirty() {
                    inode.dirty_since = None;
                    return false;
                }
                if inode.dirty_since.is_some_and(|since| now - since >= age) {
                    inode.cache.age();
                    inode.dirty_since = Some(now);
                    list(&mut self.context.overdue, path);
                }
                true
            });
        }
        self.context.dirty = dirty;
    }

    fn serve_background(&mut self) {
        for volume in 0..self.plan.volumes {
            self.serve_volume(volume);
        }
    }

    fn serve_volume(&mut self, volume: usize) {
        let mut idle = 0;
        while idle < 2 * self.context.dirty[volume].len()
            && self.level.wants_writeback(volume, self.dirty_of(volume))
        {
            let Some(&path) = self.context.dirty[volume].front() else { break };
            if !self.has_room(path, Class::Background) {
                break;
            }
            self.context.dirty[volume].pop_front();
            let sent = self.serve(path, Reason::Background, RUN_PER_FILE);
            idle = if sent > 0 { 0 } else { idle + 1 };
            if !self.inode(path).cache.is_dirty() {
                self.inode(path).dirty_since = None;
            } else if sent == RUN_PER_FILE || !self.has_room(path, Class::Background) {
                self.context.dirty[volume].push_front(path);
            } else {
                self.context.dirty[volume].push_back(path);
            }
        }
    }

    /// Flushes files of which much is kept, or anything where memory is short: frames come back by
    /// that.
    fn reclaim_kept(&mut self) {
        let kept = |path: &Path| path.inode.as_ref().map_or(0, |inode| inode.cache.kept_pages());
        let total: u64 = self.paths.iter().map(kept).sum();
        let is_short = self.level.has_waiters() || !self.frame_waiters.is_empty();
        if total == 0 || !is_short && total < self.plan.throttle.limit / 4 {
            return;
        }
        for path in 0..self.paths.len() {
            if kept(&self.paths[path]) > 0
                && self.queue.room() > 0
                && let Some(bio) = self.next_bio(path, Reason::Reclaim)
            {
                self.marks.hit("reclaimed");
                self.send(path, bio);
            }
        }
    }

    fn serve(&mut self, path: usize, reason: Reason, most: usize) -> usize {
        let mut sent = 0;
        while sent < most && self.has_room(path, Class::Background) {
            let Some(bio) = self.next_bio(path, reason) else { break };
            self.marks.hit(match reason {
                Reason::Periodic => "sent for its age",
                Reason::Uncached => "sent for it does not stay",
                Reason::Background | Reason::Reclaim | Reason::Sync => "sent in the background",
            });
            self.send(path, bio);
            sent += 1;
        }
        sent
    }

    fn has_room(&mut self, path: usize, class: Class) -> bool {
        let held: usize = self.context.paces.iter().map(|pace| pace.requests_of(class)).sum();
        let volume = self.volume_of(path);
        let pace = &mut self.context.paces[volume];
        self.queue.room() > 0 && pace.has_room(class, SLOTS.saturating_sub(held))
    }

    fn next_bio(&mut self, path: usize, reason: Reason) -> Option<Bio> {
        // Before, not when space is asked for: what is asked for depends on it.
        let free = self.disk.free_pages().saturating_mul(PAGE);
        let (gap_pages, piece_bytes) = (self.plan.gap_pages, self.plan.piece_bytes);
        let cache = &mut self.inode(path).cache;
        cache.set_free_bytes(free);
        cache.set_reserve_most(at_most(piece_bytes));
        cache.set_gaps(Gaps::OverHoles, gap_pages);
        cache.next_bio(reason)
    }

    fn send(&mut self, path: usize, bio: Bio) {
        self.check_bio(path, &bio);
        let inode = self.inode(path);
        inode.went_out(&bio);
        let flushing = |path: &&Path| path.inode.as_ref().is_some_and(|inode| inode.flushes > 0);
        if self.paths.iter().filter(flushing).count() > 1 {
            self.marks.hit("files flushed together");
        }
        match bio.operation {
            Operation::Allocate if self.random.happens(PerMille(20)) => {
                // As where the mark cannot be set that tells the next open after a crash, or there
                // is too little space.
                let is_scarce = bio.offset.is_multiple_of(2 * PAGE);
                let errno = if is_scarce { Errno::WOULD_BLOCK } else { Errno::UNSUPPORTED };
                self.context.ended.push(Ended { bio, result: Err(errno) });
                return;
            }
            Operation::Discard => self.paths[path].ledger.announce_discard(bio.offset..bio.end()),
            Operation::SetLength if bio.class == Class::Waited => {
                self.paths[path].ledger.announce_length(bio.offset);
                self.accounts.set_cut(path, CachedFile::cuts_to(&bio));
            }
            _ => {}
        }
        self.note(path, name(bio.operation), bio.offset, bio.length, 0);
        self.submit(bio);
    }

    fn submit(&mut self, bio: Bio) {
        if bio.operation.moves_bytes() {
            let volume = self.volume_of(bio.target.0 as usize);
            let pace = &mut self.context.paces[volume];
            pace.sent(bio.class, bio.length, || Moment::default() + self.disk.now());
        }
        self.queue.submit(bio);
    }

    /// Ends what has ended, in order.
    fn end_run(&mut self) {
        for Ended { bio, result } in std::mem::take(&mut self.context.ended) {
            let path = bio.target.0 as usize;
            self.note(
                path,
                ended_name(bio.operation),
                bio.offset,
                bio.length,
                result.err().map_or(0, |errno| errno.0),
            );
            if result.is_err() {
                // What ended well before is heard as that.
                self.hear_all(path);
            }
            self.count_ended(path, &bio, result);
            if bio.operation == Operation::Discard {
                self.paths[path].ledger.end_discard(&(bio.offset..bio.end()), result.is_ok());
            }
            if bio.operation.moves_bytes() {
                let is_written = bio.operation != Operation::Read && result.is_ok();
                let volume = self.volume_of(path);
                let pace = &mut self.context.paces[volume];
                pace.ended(bio.class, bio.length, if is_written { bio.length } else { 0 });
            }
            let mut settled = Settled::default();
            let now = Moment::default() + self.disk.now();
            let inode = self.inode(path);
            inode.came_back(&bio);
            let failing = inode.cache.failing_pages();
            inode.cache.settle(&bio, result, Keep::Clean, &mut settled);
            if bio.operation == Operation::Allocate && result.is_ok() {
                inode.cache.note_reserved(now);
            }
            if bio.operation == Operation::Read && inode.cache.failing_pages() > failing {
                inode.write_errors += 1;
                self.marks.hit("partial page could not be filled");
            }
            if result.is_err() && bio.operation.is_flush() {
                let inode = self.inode(path);
                let is_failure = inode.cache.poisoned().is_some();
                inode.flush_errors += u64::from(is_failure);
                self.marks.hit(if is_failure { "flush failed" } else { "flush got over" });
            }
            if result.is_ok() && bio.operation.is_flush() {
                let cache = &self.inode(path).cache;
                let is_shared = cache.liberties() == Liberties::Shared && !cache.is_breaking();
                let all_is_kept = is_shared && !cache.lacks_frames();
                self.disk.set_others(bio.target, all_is_kept);
            }
            self.list_dirty(path);
            self.marks.add("partial page filled", settled.patches.len() as u64);
            self.finish_memory(path, &mut settled);
            self.tell(path, &mut settled);
            if CachedFile::cuts_to(&bio).is_some() {
                self.accounts.set_cut(path, None);
            }
            self.enter_clean(path, &mut settled);
            if bio.operation == Operation::SetLength && bio.class == Class::Waited {
                self.end_length(path, result);
            }
            let (size, ledger_size) =
                (self.inode(path).cache.size(), self.paths[path].ledger.size());
            assert_eq!(size, ledger_size, "contract 8: the size of file {path} after {bio:?}");
            self.wake_page_waiters(path);
            self.tell_tickets(path);
            self.absorb(&mut settled);
            list(&mut self.context.leaving, path);
        }
        let now = Moment::default() + self.disk.now();
        for (volume, pace) in self.context.paces.iter_mut().enumerate() {
            if pace.look(now)
                && let Some(rate) = pace.pages_per_second()
            {
                self.level.set_rate(volume, rate);
                self.marks.hit("rate learned");
            }
        }
        self.share_out();
        self.level_fell(0);
    }

    /// What ended badly, or was kept, may be dirty again.
    fn list_dirty(&mut self, path: usize) {
        let (now, volume) = (self.disk.now(), self.volume_of(path));
        let inode = self.inode(path);
        if inode.cache.is_dirty() {
            inode.dirty_since.get_or_insert(now);
            let listed = &mut self.context.dirty[volume];
            if !listed.contains(&path) {
                listed.push_back(path);
            }
        }
    }

    fn count_ended(&mut self, path: usize, bio: &Bio, result: Result<u64, Errno>) {
        let inode = self.paths[path].inode.as_mut().expect("an open file");
        let pages = bio.offset / PAGE..bio.end().div_ceil(PAGE);
        match (bio.operation, result) {
            (Operation::Write | Operation::WriteBuffered, Ok(_)) => {
                pages.for_each(|page| {
                    inode.failed_pages.remove(&page);
                });
            }
            (Operation::Write | Operation::WriteBuffered, Err(_)) => {
                inode.failed_pages.extend(pages);
                inode.write_errors += 1;
                self.marks.hit("page write failed");
            }
            (Operation::Read, Ok(_)) => {
                pages.for_each(|page| {
                    inode.failed_fills.remove(&page);
                });
            }
            (Operation::Read, Err(_)) => {
                // Of what was read ahead nobody is told; who wants it reads it once more.
                if bio.class == Class::Waited {
                    inode.failed_fills.insert(pages.start);
                }
                for page in pages.filter(|page| inode.cache.is_partial(*page)) {
                    inode.failed_fills.insert(page);
                    inode.failed_pages.insert(page);
                }
            }
            (Operation::Discard, Ok(_)) => pages.for_each(|page| {
                inode.failed_fills.remove(&page);
                inode.failed_pages.remove(&page);
            }),
            (Operation::Discard, Err(_)) => {
                inode.discard_errors += 1;
                self.marks.hit("discard failed");
            }
            (Operation::Punch, Err(_)) => inode.keeps_space = true,
            (Operation::SetLength, result) if bio.class == Class::Background => {
                inode.keeps_space |= result.is_err();
                self.marks.hit("given back");
            }
            _ => {}
        }
    }

    /// A change of length that somebody asked for has ended.
    fn end_length(&mut self, path: usize, result: Result<u64, Errno>) {
        let Path { inode, ledger, .. } = &mut self.paths[path];
        let inode = inode.as_mut().expect("an open file");
        let (_, length) = inode.lengths.pop_front().expect("somebody asked for it");
        if result.is_ok() {
            inode.origin_end = inode.origin_end.min(length.next_multiple_of(PAGE));
            if length < ledger.size() {
                inode.failed_fills.split_off(&length.div_ceil(PAGE));
            }
            ledger.set_length(length);
            self.marks.hit("length set");
        } else {
            ledger.withdraw_length();
        }
    }

    /// Wakes those whose tickets have ended.
    pub(super) fn tell_tickets(&mut self, path: usize) {
        let inode = self.inode(path);
        if inode.told_tickets != inode.cache.finished_tickets() {
            inode.told_tickets = inode.cache.finished_tickets();
            let mut woken = std::mem::take(&mut inode.ticket_waiters);
            woken.append(&mut inode.page_waiters);
            self.wake(&woken);
        }
    }

    /// Hears of failures nobody waits for, and lets go of files without handles.
    fn let_go(&mut self) {
        for path in std::mem::take(&mut self.context.leaving) {
            let Some(inode) = &mut self.paths[path].inode else { continue };
            inode.told_lost |= !inode.cache.take_lost().is_empty();
            if inode.is_unused() {
                self.close(path);
            }
        }
    }

    fn close(&mut self, path: usize) {
        self.hear_all(path);
        let mut settled = Settled::default();
        let inode = self.inode(path);
        let entry = inode.cache.entry();
        // What was to be written again to get over a failed flush is closed with it.
        inode.flush_errors += u64::from(inode.cache.is_rewriting());
        inode.cache.discard(&mut settled);
        let lost = settled.uncharged;
        self.tell(path, &mut settled);
        self.accounts.leave(path);
        let inode = self.inode(path);
        settled.uncharged += std::mem::take(&mut inode.credit);
        let woken: Vec<usize> =
            inode.page_waiters.drain(..).chain(inode.ticket_waiters.drain(..)).collect();
        self.wake(&woken);
        self.check_closed(path, lost);
        self.paths[path].inode = None;
        // As the engine remembers it, for the next open.
        self.paths[path].entry = entry;
        if entry == Entry::New {
            self.marks.hit("closed with its name unsynced");
        }
        self.evictor.forget(Target(path as u32));
        let volume = self.volume_of(path);
        self.context.dirty[volume].retain(|listed| *listed != path);
        self.context.overdue.retain(|listed| *listed != path);
        self.context.uncached.retain(|listed| *listed != path);
        self.absorb(&mut settled);
        self.note(path, "closed", 0, lost, 0);
    }
}

fn list(paths: &mut Vec<usize>, path: usize) {
    if !paths.contains(&path) {
        paths.push(path);
    }
}

fn name(operation: Operation) -> &'static str {
    match operation {
        Operation::Read => "read",
        Operation::Write => "write",
        Operation::WriteFua => "write fua",
        Operation::WriteZeroes => "write zeroes",
        Operation::Discard => "discard",
        Operation::WriteBuffered => "write tail",
        Operation::FlushData => "flush data",
        Operation::FlushAll => "flush all",
        Operation::FlushDirectory => "flush directory",
        Operation::Allocate => "allocate",
        Operation::Punch => "punch",
        Operation::SetLength => "set length",
    }
}

fn ended_name(operation: Operation) -> &'static str {
    match operation {
        Operation::Read => "ended read",
        Operation::Write | Operation::WriteFua | Operation::WriteZeroes => "ended write",
        Operation::Discard => "ended discard",
        Operation::WriteBuffered => "ended tail",
        Operation::FlushData | Operation::FlushAll => "ended flush",
        Operation::FlushDirectory => "ended directory",
        Operation::Allocate => "ended allocate",
        Operation::Punch => "ended punch",
        Operation::SetLength => "ended length",
    }
}
