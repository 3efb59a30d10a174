//! What must hold, by the number of its contract.

use std::ops::Range;

use forebay_block::limits::{EXTENDING_REQUEST_BYTES, REQUEST_BYTES};
use forebay_block::{Bio, Class, Errno, Operation, Target};
use forebay_cache::file::Reserving;
use forebay_cache::limits::PAGE;
use forebay_cache::space::at_most;
use forebay_cache::{Failure, Liberties};

use crate::driver::Driver;
use crate::driver::caller::Activity;
use crate::driver::inode::{Handle, Path};
use crate::stored::{Keep, Name};

impl Driver {
    /// A bio on its way to the queue.
    pub(super) fn check_bio(&mut self, path: usize, bio: &Bio) {
        let inode = self.paths[path].inode.as_ref().expect("an open file");
        let (size, disk_size) = (inode.cache.size(), inode.cache.disk_size());
        match bio.operation {
            Operation::Write => {
                let last = if self.plan.are_devices { size } else { size / PAGE * PAGE };
                assert!(
                    bio.end() <= last,
                    "contract 8: the block of the end {size} goes direct: {bio:?}"
                );
                let is_extending = bio.end() > disk_size;
                let most = if is_extending { EXTENDING_REQUEST_BYTES } else { REQUEST_BYTES };
                assert!(bio.length <= most, "contract 18: a request is too large: {bio:?}");
                if is_extending {
                    self.marks.hit("extending");
                }
                if bio.zero_bytes() > 0 {
                    assert_eq!(
                        inode.cache.liberties(),
                        Liberties::Exclusive,
                        "contract 6: zeroes are written to a shared file: {bio:?}"
                    );
                    self.marks.hit("zeroes written");
                }
            }
            Operation::WriteBuffered if inode.cache.liberties() == Liberties::Shared => {
                assert!(
                    bio.end() <= size && bio.length <= REQUEST_BYTES,
                    "contract 18: too large: {bio:?}"
                );
                let is_again = inode.cache.is_rewriting();
                self.marks.hit(if is_again { "rewritten" } else { "written in part" });
            }
            Operation::WriteBuffered => {
                assert!(
                    bio.end() == size,
                    "contract 8: a buffered write that is not the end: {bio:?}"
                );
                assert!(
                    bio.offset == size / PAGE * PAGE,
                    "contract 8: not the last block: {bio:?}"
                );
                self.marks.hit("tail");
            }
            Operation::Allocate => self.check_reservation(path, bio),
            Operation::Punch => self.marks.hit("punched"),
            Operation::Discard => self.marks.hit("discard"),
            Operation::Read => self.marks.hit("fill"),
            _ => {}
        }
    }

    fn check_reservation(&mut self, path: usize, bio: &Bio) {
        let inode = self.paths[path].inode.as_ref().expect("an open file");
        assert_eq!(
            inode.cache.liberties(),
            Liberties::Exclusive,
            "contract 9: space of a shared file: {bio:?}"
        );
        assert_ne!(self.plan.reserving, Reserving::Off, "contract 9: reserving is off: {bio:?}");
        assert!(
            bio.offset >= inode.origin_end,
            "contract 9: space is reserved in what was there: {bio:?}"
        );
        let size = inode.cache.size();
        let of_free = self.disk.free_pages().saturating_mul(PAGE) / 100;
        let ahead = match self.plan.reserving {
            Reserving::Ahead(bytes) => bytes.min(of_free),
            _ => (size / 16).min(of_free),
        };
        let most = size.next_multiple_of(PAGE) + ahead;
        assert!(bio.end() <= most, "contract 9: more than {most} is reserved, of {size}: {bio:?}");
        let (free, piece) = (self.disk.free_pages().saturating_mul(PAGE), self.plan.piece_bytes);
        assert!(
            bio.length <= at_most(piece),
            "contract 9: too much at once of {free} in pieces: {bio:?}"
        );
        self.marks.hit("allocation");
        if bio.length == at_most(piece) {
            self.marks.hit("reserved in parts");
        }
    }

    /// How a sync ended that was asked for after `change`.
    pub(super) fn check_sync(
        &mut self,
        handle: &mut Handle,
        change: u64,
        result: Result<(), Failure>,
    ) {
        let path = handle.path;
        if result.is_err() {
            self.check_failure(path, result);
            self.marks.hit("sync failed");
        } else {
            let inode = self.inode(path);
            assert_eq!(inode.flush_errors, 0, "contract 2: a sync ends well on a poisoned file");
            let ledger = &mut self.paths[path].ledger;
            ledger.synced(change);
            ledger.name_synced();
            let found = self.disk.crash(Target(path as u32), Keep::Nothing, &mut self.crash_random);
            if let Err(wrong) = self.paths[path].ledger.check(&found) {
                panic!("contract 1: a sync of file {path} ended well, but {wrong}");
            }
            if self.paths[path].ledger.change() == change
                && !self.paths[path].ledger.is_discarding()
            {
                self.check_contents(path, "contract 8: after a sync");
            }
            self.marks.hit("sync ok");
        }
        self.check_told(handle, result);
    }

    /// A page could not be read.
    pub(super) fn check_fill_failure(&mut self, path: usize, page: u64, errno: Errno) {
        let has_failed = self.inode(path).failed_fills.remove(&page);
        assert!(
            has_failed && errno == Errno::IO,
            "contract 13: page {page} of file {path} could not be read: {errno}, where the device did not fail"
        );
        self.marks.hit("fill failed");
    }

    /// A failure must have a cause.
    pub(super) fn check_failure(&mut self, path: usize, result: Result<(), Failure>) {
        let inode = self.inode(path);
        let has_cause = match result {
            Ok(()) => true,
            Err(Failure::Write { .. }) => inode.write_errors > 0,
            Err(Failure::Flush(_)) => inode.flush_errors > 0,
            Err(Failure::Discard(_)) => inode.discard_errors > 0,
            Err(Failure::SetLength(_)) => false,
        };
        assert!(has_cause, "contract 2: {result:?} of file {path}, where nothing has failed");
    }

    /// Each handle is told once of an error of a page write.
    pub(super) fn check_told(&mut self, handle: &mut Handle, result: Result<(), Failure>) {
        let inode = self.inode(handle.path);
        let untold = inode.cache.untold_error(&mut handle.seen);
        let is_new = inode.write_errors > handle.errors_told;
        handle.errors_told = inode.write_errors;
        assert_eq!(untold.is_some(), is_new, "contract 2: an error is told once to each handle");
        if is_new && result.is_ok() {
            self.marks.hit("error told late");
        }
    }

    /// The lease goes: another program sees what was accepted before it asked, and nothing it
    /// writes is destroyed.
    pub(super) fn check_lease_given_up(&mut self, path: usize, broken_at: u64, is_over: bool) {
        let target = Target(path as u32);
        let harmful = |bio: &&Bio| {
            let gives_back =
                bio.operation == Operation::SetLength && bio.class == Class::Background;
            bio.target == target
                && (bio.zero_bytes() > 0 || gives_back || bio.operation == Operation::Punch)
        };
        if let Some(bio) = self.disk.flying().find(harmful) {
            panic!(
                "contract 6: the lease of file {path} goes while this is at the device: {bio:?}"
            );
        }
        let inode = self.paths[path].inode.as_mut().expect("an open file");
        let gave_back = !inode.cache.leaves_space() && inode.write_errors == 0;
        if is_over && gave_back && !inode.keeps_space {
            let beyond = self.disk.file(target).allocated_beyond_end();
            assert_eq!(
                beyond, None,
                "contract 6: space beyond the end of file {path} without its lease"
            );
        }
        inode.keeps_space = true;
        // Of what is written from here on another program's mapping may undo some. (What is not
        // kept it could undo for good; then a flush that fails is a failure, and nothing is to be
        // compared any more.)
        self.disk
            .set_others(target, !inode.cache.lacks_frames() && inode.cache.poisoned().is_none());
        let has_failed = inode.write_errors > 0;
        if is_over && !has_failed && self.paths[path].ledger.change() == broken_at {
            self.check_contents(path, "contract 6: as another program sees it");
            self.marks.hit("seen by others");
        }
        self.marks.hit(if is_over { "lease given up" } else { "lease given up early" });
        self.note(path, "lease gone", 0, 0, 0);
    }

    /// A file is let go of, and so many dirty pages with it.
    pub(super) fn check_closed(&mut self, path: usize, lost: u64) {
        let inode = self.paths[path].inode.as_ref().expect("an open file");
        let write_errors = inode.write_errors;
        let flush_has_failed = inode.flush_errors > 0;
        let gives_back = inode.cache.liberties() == Liberties::Exclusive && !inode.keeps_space;
        let is_undone = flush_has_failed && !self.disk.undone(Target(path as u32)).is_empty();
        if lost > 0 || is_undone {
            if lost > 0 {
                self.marks.hit("lost at close");
            }
            let Path { ledger, inode, .. } = &mut self.paths[path];
            let failed = &inode.as_ref().expect("an open file").failed_pages;
            // Whoever could not write all could not flush, and heard of that.
            let undone = self.disk.undone(Target(path as u32));
            let differing = ledger.reread(self.disk.file(Target(path as u32)));
            let wrong =
                differing.into_iter().find(|page| !failed.contains(page) && !undone.contains(page));
            assert_eq!(
                wrong, None,
                "contract 5: a page of file {path} that could be written is lost at its close"
            );
        } else {
            self.check_contents(path, "contract 5: after a close");
        }
        if gives_back && write_errors == 0 {
            let beyond = self.disk.file(Target(path as u32)).allocated_beyond_end();
            assert_eq!(
                beyond, None,
                "contract 9: space beyond the end of file {path} after its close"
            );
        }
        if flush_has_failed {
            self.paths[path].ledger.forsake();
        }
        if self.disk.file(Target(path as u32)).name() == Name::Forsaken {
            self.paths[path].ledger.forsake_name();
        }
    }

    /// What is on the device is what was accepted, to the byte.
    pub(super) fn check_contents(&self, path: usize, when: &str) {
        let (stored, ledger) = (self.disk.file(Target(path as u32)), &self.paths[path].ledger);
        assert_eq!(stored.size(), ledger.size(), "{when}: the size of file {path}");
        let there = stored.read(0, stored.size());
        if there != ledger.bytes() {
            let differs = there.iter().zip(ledger.bytes()).position(|(one, other)| one != other);
            panic!("{when}: file {path} differs, first at byte {differs:?}");
        }
    }

    /// A state after a loss of power now.
    pub(super) fn check_power_loss(&mut self, keep: Keep) {
        self.marks.hit("power loss");
        for path in 0..self.paths.len() {
            let found = self.disk.crash(Target(path as u32), keep, &mut self.crash_random);
            if let Err(wrong) = self.paths[path].ledger.check(&found) {
                panic!("contract 3: after a loss of power keeping {keep:?}, file {path}: {wrong}");
            }
        }
    }

    /// Every file that is open as another process would make it, if this one died now.
    pub(super) fn check_process_death(&mut self) {
        self.marks.hit("process death");
        for path in 0..self.paths.len() {
            // What is being discarded is anything.
            if self.paths[path].inode.is_some() && !self.paths[path].ledger.is_discarding() {
                self.check_survived(path);
            }
        }
    }

    fn check_survived(&mut self, path: usize) {
        let target = Target(path as u32);
        let kernel = self.disk.file(target).read(0, self.disk.file(target).size());
        let cut = self.accounts.cut(path);
        let mut expected = self.paths[path].ledger.bytes().to_vec();
        expected.resize(cut.map_or(expected.len(), |cut| cut as usize), 0);
        let copying: Vec<Range<u64>> = self.copying(path).collect();
        let undone = self.disk.undone(target).clone();
        let arena = self.disk.arena();
        let found = self.accounts.recover(path, arena, kernel.clone());
        assert_eq!(
            found.len(),
            expected.len(),
            "contract 4: the size of file {path} after the process's death"
        );
        let is_free = |at: u64| {
            undone.contains(&(at / PAGE)) || copying.iter().any(|bytes| bytes.contains(&at))
        };
        if found != expected {
            let differs = |at: &usize| found[*at] != expected[*at] && !is_free(*at as u64);
            let differs = (0..found.len()).find(differs);
            let page = differs.map(|at| at as u64 / PAGE);
            assert_eq!(
                differs, None,
                "contract 4: page {page:?} of file {path} after the process's death"
            );
        }
        let cache = &self.paths[path].inode.as_ref().expect("an open file").cache;
        if !cache.in_flight() && copying.is_empty() {
            let unwritten = self.accounts.unwritten(path);
            assert_eq!(
                unwritten,
                cache.unsent_pages(),
                "pages of file {path} are dirty, and said to be"
            );
        }
        self.marks.hit(if found == kernel { "nothing to be saved" } else { "saved" });
        if cut.is_some() {
            self.marks.hit("cut saved");
            return;
        }
        for (page, frame) in self.accounts.clean(path) {
            let start = page as usize * PAGE as usize;
            let there = &kernel[start.min(kernel.len())..(start + PAGE as usize).min(kernel.len())];
            let (same, rest) = arena.frame(frame).split_at(there.len());
            let is_clean = same == there && rest.iter().all(|byte| *byte == 0);
            assert!(
                is_clean || undone.contains(&page),
                "page {page} of file {path} is said to be clean"
            );
        }
    }

    /// Bytes of a file that callers are copying.
    fn copying(&self, path: usize) -> impl Iterator<Item = Range<u64>> {
        let of_file = self.callers.iter().filter(move |caller| caller.has_open(path));
        of_file.flat_map(|caller| match &caller.activity {
            Activity::Writing(writing) => writing.copying().collect(),
            _ => Vec::new(),
        })
    }

    /// All is closed.
    pub(super) fn check_end(&mut self) {
        assert_eq!(self.frames.free(), self.frames.total(), "contract 12: frames are lost");
        assert_eq!(self.level.dirty(), 0, "contract 12: pages are charged that nobody has");
        assert_eq!(
            (self.queue.staged(), self.queue.in_flight()),
            (0, 0),
            "contract 16: bios are left"
        );
        let counters = self.queue.counters();
        assert_eq!(counters.bios, counters.completed_bios, "contract 16: every bio ends once");
        for keep in [Keep::Nothing, Keep::Everything, Keep::Some] {
            self.check_power_loss(keep);
        }
    }
}
