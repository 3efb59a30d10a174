//! A device over stored files that takes requests as the real one does, in virtual time and from a
//! seed.
//!
//! Requests end in an order of their own, after a time at random; short, interrupted, refused or
//! failed as the [`Faults`] say. Bytes move between the arena and the files when a request ends. A
//! write takes effect in pieces: one that fails may have written any part.
//!
//! Nothing here reads a clock or waits: who drives it ends requests one by one, or rings the
//! doorbell with a wait.
//!
//! What the real device relies on without a check is checked here, and stops the run: no two
//! requests in flight that change the same bytes, nothing beside a buffered write, at most one
//! request that moves a file's end, whole pages for direct writes, whole sectors for direct reads,
//! and frames that do not change while they are written.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use forebay_block::limits::PAGE;
use forebay_block::{
    Bio, Completion, Device, Errno, Frame, Moment, Operation, Refused, Segment, Tag, Target, Wait,
};

use crate::arena::Arena;
use crate::clock::Clock;
use crate::faults::{Faults, Latency, NO_SPACE};
use crate::random::Random;
use crate::stored::{DISCARDED, SECTOR, StoredFile};

/// A request at the device.
#[derive(Debug)]
struct Flying {
    tag: Tag,
    bio: Bio,
    due: Duration,
    /// In the order taken.
    number: u64,
    /// What a write writes, as it was when it was taken.
    data: Vec<u8>,
    /// What had ended when it was taken: what a flush covers.
    covers: u64,
}

/// What a file suffers from others.
#[derive(Clone, Default, Debug)]
struct Others {
    /// Somebody may have it mapped.
    are_there: bool,
    /// The kernel could not drop a page, and will say so once.
    error: bool,
    /// Pages of ours that were written over by what it could not drop.
    undone: BTreeSet<u64>,
    /// The journal did not take its size: no flush of it ends well any more.
    aborted: bool,
}

/// The device.
#[derive(Debug)]
pub struct Disk {
    clock: Clock,
    random: Random,
    faults: Faults,
    latency: Latency,
    arena: Arena,
    files: Vec<StoredFile>,
    /// Per file, the pages no write succeeds on.
    bad: Vec<Range<u64>>,
    /// Which files are devices of their own: what they hold never changes its size.
    devices: Vec<bool>,
    /// Per file, what comes of other programs that have it open.
    others: Vec<Others>,
    space_pages: u64,
    staged: Vec<(Tag, Bio)>,
    flying: Vec<Flying>,
    completed: Vec<Completion>,
    taken: u64,
    /// Changes so far: the order of versions.
    sequence: u64,
    transitions: u64,
}

impl Disk {
    /// An empty device with so many files, and space for so many pages.
    #[must_use]
    pub fn new(
        files: u32,
        frames: u32,
        space_pages: u64,
        latency: Latency,
        random: Random,
    ) -> Self {
        Self {
            clock: Clock::default(),
            random,
            faults: Faults::NONE,
            latency,
            arena: Arena::new(frames),
            files: (0..files).map(|_| StoredFile::new()).collect(),
            bad: (0..files).map(|_| 0..0).collect(),
            devices: vec![false; files as usize],
            others: vec![Others::default(); files as usize],
            space_pages,
            staged: Vec::new(),
            flying: Vec::new(),
            completed: Vec::new(),
            taken: 0,
            sequence: 0,
            transitions: 0,
        }
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.clock.now()
    }

    /// Lets time pass.
    pub fn advance_to(&mut self, time: Duration) {
        self.clock.advance_to(time);
    }

    /// What it does wrong from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// How many pages it has space for from now on.
    pub fn set_space_pages(&mut self, pages: u64) {
        self.space_pages = pages;
    }

    /// Pages of a file that no write succeeds on from now on.
    pub fn set_bad(&mut self, target: Target, pages: Range<u64>) {
        self.bad[target.0 as usize] = pages;
    }

    /// Makes a file a device of so many bytes, all zero and durable.
    pub fn make_device(&mut self, target: Target, bytes: u64) {
        let file = &mut self.files[target.0 as usize];
        assert_eq!(file.size(), 0, "it is a file already");
        file.set_size(bytes, self.sequence);
        file.flush(self.sequence);
        self.devices[target.0 as usize] = true;
    }

    /// Whether other programs may have a file mapped from now on.
    pub fn set_others(&mut self, target: Target, are_there: bool) {
        self.others[target.0 as usize].are_there = are_there;
    }

    /// A file is opened anew, after whatever went wrong with it before.
    pub fn open(&mut self, target: Target) {
        self.others[target.0 as usize] = Others::default();
    }

    /// Pages of a file that were written and are as they were before.
    #[must_use]
    pub fn undone(&self, target: Target) -> &BTreeSet<u64> {
        &self.others[target.0 as usize].undone
    }

    /// The memory of the frames.
    pub fn arena(&mut self) -> &mut Arena {
        &mut self.arena
    }

    /// A file as it is stored.
    #[must_use]
    pub fn file(&self, target: Target) -> &StoredFile {
        &self.files[target.0 as usize]
    }

    /// Pages that have no file.
    #[must_use]
    pub fn free_pages(&self) -> u64 {
        let allocated: usize = self.files.iter().map(|file| file.allocated().len()).sum();
        self.space_pages.saturating_sub(allocated as u64)
    }

    /// Allocates space for a range at once, as a caller's own call does.
    ///
    /// # Errors
    /// No space left.
    pub fn allocate(&mut self, target: Target, bytes: Range<u64>) -> Result<(), Errno> {
        let page = PAGE as u64;
        let pages = bytes.start / page..bytes.end.div_ceil(page);
        let allocated = self.file(target).allocated();
        let missing = pages.clone().filter(|at| !allocated.contains(at)).count() as u64;
        if missing > self.free_pages() {
            return Err(NO_SPACE);
        }
        self.files[target.0 as usize].allocate(pages);
        Ok(())
    }

    /// Times the state of the device has changed: a request taken, or ended.
    #[must_use]
    pub fn transitions(&self) -> u64 {
        self.transitions
    }

    /// Requests at the device.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.flying.len()
    }

    /// What is at the device, and what it has not been told of yet.
    pub fn flying(&self) -> impl Iterator<Item = &Bio> {
        self.flying.iter().map(|flying| &flying.bio).chain(self.staged.iter().map(|(_, bio)| bio))
    }

    /// Whether something has ended that was not reaped.
    #[must_use]
    pub fn has_completed(&self) -> bool {
        !self.completed.is_empty()
    }

    /// Ends the request that is due next, and makes it as late as that is.
    pub fn complete_next(&mut self) {
        let next =
            (0..self.flying.len()).min_by_key(|&at| (self.flying[at].due, self.flying[at].number));
        let Some(next) = next else { return };
        let flying = self.flying.swap_remove(next);
        self.clock.advance_to(flying.due);
        self.transitions += 1;
        self.sequence += 1;
        let result = self.serve(&flying);
        self.completed.push(Completion { tag: flying.tag, result });
    }

    fn serve(&mut self, flying: &Flying) -> Result<u64, Errno> {
        let bio = &flying.bio;
        if self.random.happens(self.faults.interrupt) {
            return Err(*self.random.pick(&[Errno::INTERRUPTED, Errno::WOULD_BLOCK]));
        }
        let (sequence, file) = (self.sequence, bio.target.0 as usize);
        match bio.operation {
            Operation::Read => self.serve_read(bio),
            Operation::Write | Operation::WriteBuffered => self.serve_write(flying),
            Operation::FlushData | Operation::FlushAll => {
                let others = &mut self.others[file];
                if others.aborted || self.random.happens(self.faults.flush) {
                    others.aborted |= self.files[file].forsake(flying.covers);
                    return Err(Errno::IO);
                }
                self.files[file].flush(flying.covers);
                if std::mem::take(&mut others.error) { Err(Errno::IO) } else { Ok(0) }
            }
            Operation::FlushDirectory => {
                if self.random.happens(self.faults.flush_directory) {
                    return Err(Errno::IO);
                }
                Ok(0)
            }
            Operation::Allocate => {
                if self.random.happens(self.faults.allocate) {
                    return Err(NO_SPACE);
                }
                self.allocate(bio.target, bio.offset..bio.end()).map(|()| 0)
            }
            Operation::Punch => {
                if self.random.happens(self.faults.allocate) {
                    return Err(Errno::IO);
                }
                let there = self.files[file].read(bio.offset, bio.length);
                assert!(
                    there.iter().all(|byte| *byte == 0),
                    "contract 9: data is punched out: {bio:?}"
                );
                self.files[file].punch(bio.offset..bio.end(), sequence);
                Ok(0)
            }
            Operation::SetLength => {
                if self.random.happens(self.faults.set_length) {
                    return Err(Errno::IO);
                }
                self.files[file].set_size(bio.offset, sequence);
                Ok(0)
            }
            Operation::Discard => {
                if self.random.happens(self.faults.allocate) {
                    return Err(Errno::IO);
                }
                self.files[file].write(bio.offset, &vec![DISCARDED; bio.length as usize], sequence);
                Ok(0)
            }
            Operation::WriteFua | Operation::WriteZeroes => {
                panic!("the cache asks for none of these: {bio:?}")
            }
        }
    }

    fn serve_read(&mut self, bio: &Bio) -> Result<u64, Errno> {
        if self.random.happens(self.faults.read) {
            return Err(Errno::IO);
        }
        let file = &self.files[bio.target.0 as usize];
        if bio.offset >= file.size() {
            return Ok(0);
        }
        if !bio.offset.is_multiple_of(SECTOR as u64) || !bio.length.is_multiple_of(SECTOR as u64) {
            return Err(Errno::INVALID);
        }
        let mut data = file.read(bio.offset, bio.length);
        if self.random.happens(self.faults.shorten) && data.len() > SECTOR {
            let sectors = self.random.within(1..(data.len() / SECTOR) as u64 + 1) as usize;
            data.truncate(sectors * SECTOR);
        }
        self.arena.scatter(&bio.segments, &data);
        Ok(data.len() as u64)
    }

    fn serve_write(&mut self, flying: &Flying) -> Result<u64, Errno> {
        let bio = &flying.bio;
        let now = self.arena.gather(&bio.segments);
        assert!(now == flying.data, "contract 11: a frame has changed in flight: {bio:?}");
        let unit = SECTOR as u64;
        let bad = &self.bad[bio.target.0 as usize];
        let (bad_start, bad_end) = (bad.start * PAGE as u64, bad.end * PAGE as u64);
        let is_bad = bio.offset < bad_end && bad_start < bio.end();
        if is_bad || self.random.happens(self.faults.write) {
            let most = if is_bad { bad_start.saturating_sub(bio.offset) } else { bio.length };
            let written = self.random.below(most / unit + 1) * unit;
            let errno = self.store(flying, written).err().unwrap_or(Errno::IO);
            return Err(errno);
        }
        let mut length = bio.length;
        if self.random.happens(self.faults.shorten) && length > unit {
            length = self.random.within(1..length / unit + 1) * unit;
        }
        let file = bio.target.0 as usize;
        let is_mapped = bio.operation == Operation::Write && self.others[file].are_there;
        if is_mapped && self.random.happens(self.faults.invalidate) {
            return self.store_under_a_mapping(flying, length);
        }
        self.store(flying, length)
    }

    /// Writes, and one of the pages is then written over by what another program's mapping still
    /// has of it.
    fn store_under_a_mapping(&mut self, flying: &Flying, length: u64) -> Result<u64, Errno> {
        let (file, page) = (flying.bio.target.0 as usize, PAGE as u64);
        let at = flying.bio.offset + self.random.below(length.div_ceil(page)) * page;
        let mut older = self.files[file].read(at, page);
        older.resize(PAGE, 0);
        let written = self.store(flying, length)?;
        let end = (flying.bio.offset + written).min(at + page);
        if at < end {
            self.sequence += 1;
            self.files[file].write(at, &older[..(end - at) as usize], self.sequence);
            self.others[file].error = true;
            self.others[file].undone.insert(at / page);
        }
        Ok(written)
    }

    /// Writes the first `length` bytes of a request, as far as there is space.
    fn store(&mut self, flying: &Flying, length: u64) -> Result<u64, Errno> {
        let (bio, page) = (&flying.bio, PAGE as u64);
        let mut end = bio.offset + length;
        let mut free = self.free_pages();
        let file = &mut self.files[bio.target.0 as usize];
        let missing = if self.devices[bio.target.0 as usize] {
            0..0
        } else {
            bio.offset / page..end.div_ceil(page)
        };
        for at in missing {
            if file.allocated().contains(&at) {
                continue;
            }
            if free == 0 {
                end = end.min((at * page).max(bio.offset));
                break;
            }
            free -= 1;
            file.allocate(at..at + 1);
        }
        let written = end - bio.offset;
        if written > 0 {
            // A part of a page does not bring back the rest of it.
            let is_end = end >= file.size();
            let whole = if is_end { end.div_ceil(page) } else { end / page };
            let pages = bio.offset.div_ceil(page)..whole;
            self.others[bio.target.0 as usize].undone.retain(|at| !pages.contains(at));
            file.write(bio.offset, &flying.data[..written as usize], self.sequence);
        } else if length > 0 {
            return Err(NO_SPACE);
        }
        Ok(written)
    }

    /// Stops at a request that must not be at the device together with what is there.
    fn check(&self, tag: Tag, bio: &Bio) {
        let page = PAGE as u64;
        let there = || {
            let flying = self.flying.iter().map(|flying| (flying.tag, &flying.bio));
            flying.chain(self.staged.iter().map(|(tag, bio)| (*tag, bio)))
        };
        assert!(there().all(|(other, _)| other != tag), "contract 16: {tag:?} is in two places");
        let mine = || there().map(|(_, other)| other).filter(|other| other.target == bio.target);
        let is_alone =
            |bio: &Bio| matches!(bio.operation, Operation::WriteBuffered | Operation::SetLength);
        if let Some(other) = mine().find(|other| is_alone(bio) || is_alone(other)) {
            panic!("contract 8: {bio:?} is in flight together with {other:?}");
        }
        if self.devices[bio.target.0 as usize] {
            let is_of_files = matches!(
                bio.operation,
                Operation::WriteBuffered
                    | Operation::SetLength
                    | Operation::Allocate
                    | Operation::Punch
            );
            assert!(!is_of_files, "contract 10: a device has no end to be cared for: {bio:?}");
            assert!(
                bio.end() <= self.file(bio.target).size(),
                "contract 10: beyond the end of the device: {bio:?}"
            );
        }
        let changes = |bio: &Bio| {
            let (write, discard) = (Operation::Write, Operation::Discard);
            [write, discard, Operation::Allocate, Operation::Punch].contains(&bio.operation)
        };
        let touches =
            |other: &&Bio| bio.length > 0 && other.offset < bio.end() && bio.offset < other.end();
        if let Some(other) = mine().filter(touches).find(|other| changes(bio) || changes(other)) {
            panic!("contract 15: {bio:?} is in flight together with {other:?}");
        }
        if bio.operation == Operation::Write {
            let is_end =
                self.devices[bio.target.0 as usize] && bio.end() == self.file(bio.target).size();
            let is_whole = bio.offset.is_multiple_of(page)
                && (bio.length.is_multiple_of(page)
                    || is_end && bio.length.is_multiple_of(SECTOR as u64));
            assert!(is_whole, "contract 8: not whole pages: {bio:?}");
            let size = self.file(bio.target).size();
            let extends = |bio: &Bio| bio.operation == Operation::Write && bio.end() > size;
            assert!(
                !extends(bio) || !mine().any(extends),
                "contract 8: two requests move the end of one file: {bio:?}"
            );
        }
        let frames = |bio: &Bio| bio.segments.iter().filter_map(frames_of).collect::<Vec<_>>();
        let wanted = frames(bio);
        for (_, other) in there() {
            let used = frames(other);
            let shared = wanted.iter().find(|one| used.iter().any(|two| overlap(one, two)));
            assert!(
                shared.is_none(),
                "contract 11: frames {shared:?} are in two requests: {bio:?}, {other:?}"
            );
        }
    }

    fn take_staged(&mut self) {
        for (tag, bio) in std::mem::take(&mut self.staged) {
            let (least, most) = (self.latency.least, self.latency.most);
            let span = most.saturating_sub(least).as_nanos() as u64;
            let due = self.clock.now() + least + Duration::from_nanos(self.random.below(span + 1));
            let is_write = matches!(bio.operation, Operation::Write | Operation::WriteBuffered);
            let data = if is_write { self.arena.gather(&bio.segments) } else { Vec::new() };
            self.taken += 1;
            self.transitions += 1;
            self.flying.push(Flying {
                tag,
                bio,
                due,
                number: self.taken,
                data,
                covers: self.sequence,
            });
        }
    }
}

impl Device for Disk {
    fn now(&mut self) -> Moment {
        Moment::default() + self.clock.now()
    }

    fn prepare(&mut self, tag: Tag, request: &Bio) -> Result<(), Refused> {
        self.check(tag, request);
        // Only a queue that is not empty can be full.
        if !self.flying.is_empty() && self.random.happens(self.faults.refuse) {
            return Err(Refused);
        }
        self.staged.push((tag, request.clone()));
        Ok(())
    }

    fn doorbell(&mut self, wait: Wait) -> Result<(), Errno> {
        self.take_staged();
        if let Wait::Something(most) | Wait::Batch { limit: most, .. } = wait {
            let due = self.flying.iter().map(|flying| flying.due).min();
            let limit = most.map(|most| self.clock.now() + most);
            match (due, limit) {
                (Some(due), limit) if limit.is_none_or(|limit| due <= limit) => {
                    self.complete_next();
                }
                (_, Some(limit)) => self.clock.advance_to(limit),
                (_, None) => {}
            }
        }
        Ok(())
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        completions.append(&mut self.completed);
    }
}

fn frames_of(segment: &Segment) -> Option<Range<u64>> {
    let Segment::Frames { first: Frame(first), offset, length } = *segment else { return None };
    let start = u64::from(first) * PAGE as u64 + u64::from(offset);
    Some(start..start + u64::from(length))
}

fn overlap(one: &Range<u64>, two: &Range<u64>) -> bool {
    one.start < two.end && two.start < one.end
}
