//! A device for tests that refuses, shortens, interrupts, fails and reorders at random, over files
//! in memory.
#![allow(dead_code, reason = "each test uses its own part")]

use forebay_block::layers::Fraction;
use forebay_block::limits::{PAGE, SECTOR, TAGS};
use forebay_block::random::Random;
use forebay_block::{
    Bio, Completion, Device, Errno, Moment, Operation, Refused, Segment, Tag, Wait,
};

/// Behaviour of a device; rates are in per cent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Temper {
    pub(crate) capacity: usize,
    pub(crate) refuses: u32,
    pub(crate) shortens: u32,
    pub(crate) interrupts: u32,
}

pub(crate) const CALM: Temper = Temper { capacity: TAGS, refuses: 0, shortens: 0, interrupts: 0 };

/// A device over byte arrays that shortens, refuses, interrupts, fails and reorders.
pub(crate) struct Erratic {
    pub(crate) files: Vec<Vec<u8>>,
    /// Per file, the page that every read and write fails on.
    pub(crate) bad_pages: Vec<Option<u64>>,
    pub(crate) arena: Vec<u8>,
    pub(crate) doorbells: u64,
    /// Requests taken, in order.
    pub(crate) taken: Vec<Bio>,
    temper: Temper,
    random: Random,
    staged: Vec<(Tag, Bio)>,
    moments: u64,
    active: Vec<(Tag, Bio)>,
    completed: Vec<Completion>,
}

impl Erratic {
    pub(crate) fn new(temper: Temper, seed: u64, files: Vec<Vec<u8>>, frames: usize) -> Self {
        Self {
            bad_pages: vec![None; files.len()],
            files,
            arena: vec![0; frames * PAGE],
            doorbells: 0,
            taken: Vec::new(),
            temper,
            random: Random::new(seed),
            staged: Vec::new(),
            moments: 0,
            active: Vec::new(),
            completed: Vec::new(),
        }
    }

    pub(crate) fn set_capacity(&mut self, capacity: usize) {
        self.temper.capacity = capacity;
    }

    /// Completes one request at the device: the oldest if calm, otherwise a random one.
    fn complete_one(&mut self) {
        let is_calm = self.temper.shortens == 0;
        let which = if is_calm { 0 } else { self.random.below(self.active.len() as u64) as usize };
        let (tag, bio) = self.active.remove(which);
        let result = self.serve(&bio);
        self.completed.push(Completion { tag, result });
    }

    fn serve(&mut self, bio: &Bio) -> Result<u64, Errno> {
        if self.random.happens(Fraction::percent(self.temper.interrupts)) {
            return Err(if self.random.happens(Fraction::percent(50)) {
                Errno::INTERRUPTED
            } else {
                Errno::WOULD_BLOCK
            });
        }
        let target = bio.target.0 as usize;
        if bio.operation.moves_bytes() {
            return self.serve_bytes(bio, target);
        }
        let file = &mut self.files[target];
        match bio.operation {
            Operation::SetLength => file.resize(bio.offset as usize, 0),
            Operation::Punch => file[bio.offset as usize..bio.end() as usize].fill(0),
            _ => {}
        }
        Ok(0)
    }

    fn serve_bytes(&mut self, bio: &Bio, target: usize) -> Result<u64, Errno> {
        let mut length = bio.length;
        if self.random.happens(Fraction::percent(self.temper.shortens)) {
            length = 1 + self.random.below(length);
            let torn = (bio.offset + length) % SECTOR as u64;
            if bio.operation == Operation::Read && torn > 0 {
                // A read stops between sectors.
                length = length.checked_sub(torn).filter(|left| *left > 0).unwrap_or(bio.length);
            }
        }
        if let Some(page) = self.bad_pages[target] {
            let (start, end) = (page * PAGE as u64, (page + 1) * PAGE as u64);
            if bio.offset < end && start < bio.offset + length {
                if start <= bio.offset || self.random.happens(Fraction::percent(50)) {
                    return Err(Errno::IO);
                }
                length = length.min(start - bio.offset);
            }
        }
        if bio.operation == Operation::Read {
            length = length.min((self.files[target].len() as u64).saturating_sub(bio.offset));
        }
        let mut at = bio.offset as usize;
        let mut left = length as usize;
        for &segment in &bio.segments {
            let count = left.min(segment.length() as usize);
            let file = &mut self.files[target][..];
            match segment {
                _ if count == 0 => break,
                Segment::Frames { first, offset, .. } => {
                    let place = first.0 as usize * PAGE + offset as usize;
                    let memory = &mut self.arena[place..place + count];
                    match bio.operation {
                        Operation::Read => memory.copy_from_slice(&file[at..at + count]),
                        _ => file[at..at + count].copy_from_slice(memory),
                    }
                }
                Segment::Zeroes { .. } => file[at..at + count].fill(0),
                Segment::Lent { .. } => unreachable!("these tests lend nothing"),
            }
            at += count;
            left -= count;
        }
        Ok(length)
    }
}

fn overlap_with_a_change(one: &Bio, other: &Bio) -> bool {
    let both_move = one.operation.moves_bytes() && other.operation.moves_bytes();
    let both_read = one.operation == Operation::Read && other.operation == Operation::Read;
    let is_same = one.target == other.target;
    is_same && both_move && !both_read && one.offset < other.end() && other.offset < one.end()
}

impl Device for Erratic {
    fn now(&mut self) -> Moment {
        self.moments += 1000;
        Moment::from_nanoseconds(self.moments)
    }

    fn prepare(&mut self, tag: Tag, request: &Bio) -> Result<(), Refused> {
        let mut there = self.staged.iter().chain(&self.active);
        assert!(there.all(|(other, _)| *other != tag), "{tag:?} is in two places");
        let mut there = self.staged.iter().chain(&self.active);
        assert!(
            there.all(|(_, bio)| !overlap_with_a_change(bio, request)),
            "the device keeps no order in flight"
        );
        let segments: u64 =
            request.segments.iter().map(|segment| u64::from(segment.length())).sum();
        assert_eq!(segments, request.bytes());
        let is_full = self.staged.len() + self.active.len() >= self.temper.capacity;
        if is_full || self.random.happens(Fraction::percent(self.temper.refuses)) {
            return Err(Refused);
        }
        self.staged.push((tag, request.clone()));
        self.taken.push(request.clone());
        Ok(())
    }

    fn doorbell(&mut self, wait: Wait) -> Result<(), Errno> {
        self.doorbells += 1;
        self.active.append(&mut self.staged);
        let least = usize::from(wait != Wait::Not);
        let count = least.max(self.random.below(self.active.len() as u64 + 1) as usize);
        for _ in 0..count.min(self.active.len()) {
            self.complete_one();
        }
        Ok(())
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        completions.append(&mut self.completed);
    }
}
