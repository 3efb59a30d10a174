//! The device at the bottom: files in memory, a volatile cache that loses power, and requests that
//! complete in any order.
//!
//! Time is virtual: each doorbell takes a fixed time, and a wait lasts until a request is due.
//! Bytes are transferred when a request ends, so two requests that must not be in flight together
//! corrupt data here if they are. The observer checks that as well.
//!
//! Every read sees a change that has ended. Each sector of it survives a loss of power by chance,
//! until a flush that was taken after the change ended has succeeded. A durable write survives at
//! once. Memory is one array of frames. Lent memory is the same array; the number of a buffer is
//! its first frame.

use forebay_block::limits::{PAGE, SECTOR};
use forebay_block::{
    Bio, Completion, Device, Errno, Moment, Operation, Refused, Segment, Tag, Target, Wait,
};

use crate::faults::NO_SPACE;
use crate::random::{PerMille, Random};

/// Nanoseconds a doorbell takes.
const DOORBELL: u64 = 500;

/// Behaviour of the device.
#[derive(Clone, Copy, Debug)]
pub struct Temper {
    /// Maximum of requests at the device; at least 1.
    pub capacity: usize,
    /// Rate of requests refused although there is room.
    pub refuse: PerMille,
    /// Rate of requests that fail, a write after a part of it.
    pub fail: PerMille,
    /// Maximum of nanoseconds that a request takes.
    pub latency: u64,
    /// Whether the device can make zeroes by itself.
    pub zeroes: Zeroes,
}

/// Whether a device can make zeroes by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Zeroes {
    /// It makes them.
    Served,
    /// It fails with `EOPNOTSUPP`.
    Unsupported,
}

/// A change that is not durable.
#[derive(Debug)]
struct Change {
    offset: usize,
    bytes: Vec<u8>,
    sequence: u32,
}

#[derive(Debug)]
struct File {
    size: usize,
    /// Content that reads see; zeroes beyond the size.
    bytes: Vec<u8>,
    durable: Vec<u8>,
    /// Per sector, the sequence number of the last durable change.
    durable_at: Vec<u32>,
    changes: Vec<Change>,
}

#[derive(Debug)]
struct Flying {
    tag: Tag,
    bio: Bio,
    due: u64,
    /// Sequence number of the last change that had ended when this request was taken: a flush
    /// covers changes up to it.
    covers: u32,
}

/// Device over files in memory, in virtual time.
#[derive(Debug)]
pub struct MemoryDevice {
    now: u64,
    random: Random,
    temper: Temper,
    memory: Vec<u8>,
    files: Vec<File>,
    staged: Vec<(Tag, Bio)>,
    flying: Vec<Flying>,
    completed: Vec<Completion>,
    sequence: u32,
}

impl MemoryDevice {
    /// Creates a device over durable files that never grow beyond `most` bytes, with `frames`
    /// frames of memory.
    #[must_use]
    pub fn new(
        files: Vec<Vec<u8>>,
        most: usize,
        frames: usize,
        temper: Temper,
        random: Random,
    ) -> Self {
        let file = |mut bytes: Vec<u8>| {
            let size = bytes.len();
            bytes.resize(most, 0);
            let durable_at = vec![0; most.div_ceil(SECTOR)];
            File { size, durable: bytes.clone(), bytes, durable_at, changes: Vec::new() }
        };
        Self {
            now: 0,
            random,
            temper,
            memory: vec![0; frames * PAGE],
            files: files.into_iter().map(file).collect(),
            staged: Vec::new(),
            flying: Vec::new(),
            completed: Vec::new(),
            sequence: 0,
        }
    }

    /// Sets the behaviour, from the next request on.
    pub fn set_temper(&mut self, temper: Temper) {
        self.temper = temper;
    }

    /// Returns the behaviour.
    #[must_use]
    pub fn temper(&self) -> Temper {
        self.temper
    }

    /// Returns the memory of a segment.
    pub fn memory(&mut self, segment: Segment) -> &mut [u8] {
        let range = range_of(segment).expect("zeroes have no memory");
        &mut self.memory[range]
    }

    /// Returns the content of a file and its size.
    #[must_use]
    pub fn file(&self, target: Target) -> (&[u8], usize) {
        let file = &self.files[target.0 as usize];
        (&file.bytes, file.size)
    }

    /// Returns one content that a file may have after a loss of power now.
    #[must_use]
    pub fn survivor(&self, target: Target, random: &mut Random) -> Vec<u8> {
        let file = &self.files[target.0 as usize];
        let mut left = file.durable.clone();
        let often = PerMille(*random.pick(&[0, 300, 700, 1000]));
        let mut survive = |offset: usize, bytes: &[u8], sequence: u32| {
            for (range, place) in sectors(offset, bytes.len()) {
                if sequence > file.durable_at[range.start / SECTOR] && random.happens(often) {
                    left[range].copy_from_slice(&bytes[place]);
                }
            }
        };
        for change in &file.changes {
            survive(change.offset, &change.bytes, change.sequence);
        }
        let writes = |bio: &Bio| bio.operation.moves_bytes() && bio.operation != Operation::Read;
        for Flying { bio, .. } in &self.flying {
            if bio.target == target && writes(bio) {
                survive(bio.offset as usize, &self.gather(bio, bio.length), u32::MAX);
            }
        }
        left
    }

    /// Returns the first `length` bytes of a bio's data.
    fn gather(&self, bio: &Bio, length: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length as usize);
        for &segment in &bio.segments {
            let count = (length as usize - bytes.len()).min(segment.length() as usize);
            match range_of(segment) {
                Some(range) => bytes.extend_from_slice(&self.memory[range][..count]),
                None => bytes.resize(bytes.len() + count, 0),
            }
        }
        bytes
    }

    fn take_staged(&mut self) {
        for (tag, bio) in self.staged.drain(..) {
            let due = self.now + self.random.below(self.temper.latency + 1);
            self.flying.push(Flying { tag, bio, due, covers: self.sequence });
        }
    }

    /// Advances to `now` and completes requests that are due by then, in order.
    fn advance_to(&mut self, now: u64) {
        self.now = now;
        self.flying.sort_by_key(|flying| flying.due);
        let due = self.flying.partition_point(|flying| flying.due <= now);
        for flying in self.flying.drain(..due).collect::<Vec<_>>() {
            let result = self.serve(&flying.bio, flying.covers);
            self.completed.push(Completion { tag: flying.tag, result });
        }
    }

    fn serve(&mut self, bio: &Bio, covers: u32) -> Result<u64, Errno> {
        self.sequence += 1;
        let (start, end) = (bio.offset as usize, bio.end() as usize);
        let fails = self.random.happens(self.temper.fail);
        let errno = *self.random.pick(&[Errno::IO, NO_SPACE]);
        if bio.operation == Operation::WriteZeroes && self.temper.zeroes == Zeroes::Unsupported {
            return Err(Errno::UNSUPPORTED);
        }
        match bio.operation {
            Operation::Write | Operation::WriteFua | Operation::WriteBuffered if fails => {
                let part = self.random.below(bio.length / SECTOR as u64) * SECTOR as u64;
                let bytes = self.gather(bio, part);
                self.change(bio.target, start, bytes);
                return Err(errno);
            }
            _ if fails => return Err(errno),
            Operation::Read => return Ok(self.read(bio)),
            Operation::Write | Operation::WriteFua | Operation::WriteBuffered => {
                let bytes = self.gather(bio, bio.length);
                self.change(bio.target, start, bytes);
                if bio.operation == Operation::WriteFua {
                    self.keep(bio.target, start..end);
                }
                return Ok(bio.length);
            }
            Operation::WriteZeroes | Operation::Punch => self.zero(bio.target, start..end),
            Operation::Discard => {
                for page in (start..end).step_by(PAGE) {
                    if self.random.happens(PerMille(500)) {
                        self.zero(bio.target, page..page + PAGE);
                    }
                }
            }
            Operation::FlushData | Operation::FlushAll => self.flush(bio.target, covers),
            Operation::FlushDirectory | Operation::Allocate => {}
            Operation::SetLength => {
                let most = self.files[bio.target.0 as usize].bytes.len();
                self.zero(bio.target, start..most);
                self.files[bio.target.0 as usize].size = start;
            }
        }
        Ok(0)
    }

    fn read(&mut self, bio: &Bio) -> u64 {
        let file = &self.files[bio.target.0 as usize];
        let mut at = file.size.min(bio.offset as usize);
        let end = file.size.min(bio.end() as usize);
        for range in bio.segments.iter().filter_map(|&segment| range_of(segment)) {
            let count = range.len().min(end - at);
            self.memory[range][..count].copy_from_slice(&file.bytes[at..at + count]);
            at += count;
        }
        (end as u64).saturating_sub(bio.offset)
    }

    fn change(&mut self, target: Target, offset: usize, bytes: Vec<u8>) {
        let file = &mut self.files[target.0 as usize];
        if bytes.is_empty() {
            return;
        }
        let end = offset + bytes.len();
        file.bytes[offset..end].copy_from_slice(&bytes);
        file.size = file.size.max(end);
        file.changes.push(Change { offset, bytes, sequence: self.sequence });
    }

    /// Zeroes the part of a range that is below the size; the size stays.
    fn zero(&mut self, target: Target, range: std::ops::Range<usize>) {
        let size = self.files[target.0 as usize].size;
        let end = range.end.min(size);
        if range.start < end {
            self.change(target, range.start, vec![0; end - range.start]);
        }
    }

    /// Makes the present content of a range durable.
    fn keep(&mut self, target: Target, range: std::ops::Range<usize>) {
        let file = &mut self.files[target.0 as usize];
        file.durable[range.clone()].copy_from_slice(&file.bytes[range.clone()]);
        file.durable_at[range.start / SECTOR..range.end / SECTOR].fill(self.sequence);
    }

    /// Makes every change up to sequence number `covers` durable.
    fn flush(&mut self, target: Target, covers: u32) {
        let file = &mut self.files[target.0 as usize];
        let covered = file.changes.partition_point(|change| change.sequence <= covers);
        for change in file.changes.drain(..covered) {
            for (range, place) in sectors(change.offset, change.bytes.len()) {
                let at = &mut file.durable_at[range.start / SECTOR];
                if change.sequence >= *at {
                    *at = change.sequence;
                    file.durable[range].copy_from_slice(&change.bytes[place]);
                }
            }
        }
    }

    fn check(&self, bio: &Bio) {
        let unit = match bio.operation {
            Operation::Write | Operation::WriteFua => PAGE as u64,
            Operation::Read => SECTOR as u64,
            _ => return,
        };
        let is_whole = bio.offset.is_multiple_of(unit) && bio.length.is_multiple_of(unit);
        assert!(
            is_whole,
            "contract 13: no device takes a request in the middle of {unit} bytes: {bio:?}"
        );
    }
}

impl Device for MemoryDevice {
    fn now(&mut self) -> Moment {
        Moment::from_nanoseconds(self.now)
    }

    fn prepare(&mut self, tag: Tag, request: &Bio) -> Result<(), Refused> {
        self.check(request);
        let here = self.staged.len() + self.flying.len();
        // Refuses only if other requests are here: an empty queue is never full.
        if here >= self.temper.capacity || here > 0 && self.random.happens(self.temper.refuse) {
            return Err(Refused);
        }
        self.staged.push((tag, request.clone()));
        Ok(())
    }

    fn doorbell(&mut self, wait: Wait) -> Result<(), Errno> {
        self.take_staged();
        self.advance_to(self.now + DOORBELL);
        let (want, within, limit) = match wait {
            Wait::Not => return Ok(()),
            Wait::Something(limit) => (1, None, limit),
            Wait::Batch { want, within, limit } => (want.max(1) as usize, Some(within), limit),
        };
        let start = self.now;
        let after = |span: std::time::Duration| {
            start.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
        };
        while self.completed.len() < want {
            let end = if self.completed.is_empty() { limit } else { within }.map(after);
            let next = self.flying.iter().map(|flying| flying.due).min();
            match (next, end) {
                (Some(next), end) if end.is_none_or(|end| next <= end) => self.advance_to(next),
                (_, Some(u64::MAX) | None) => break,
                (_, Some(end)) => {
                    self.advance_to(end);
                    break;
                }
            }
        }
        Ok(())
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        completions.append(&mut self.completed);
    }
}

/// Returns the range of a segment in memory; `None` for zeroes.
fn range_of(segment: Segment) -> Option<std::ops::Range<usize>> {
    let (first, offset, length) = match segment {
        Segment::Frames { first, offset, length } => (first.0, offset, length),
        Segment::Lent { buffer, offset, length } => (buffer.0, offset, length),
        Segment::Zeroes { .. } => return None,
    };
    let start = first as usize * PAGE + offset as usize;
    Some(start..start + length as usize)
}

/// Returns the sectors of a range, each with its place in the range.
fn sectors(
    offset: usize,
    length: usize,
) -> impl Iterator<Item = (std::ops::Range<usize>, std::ops::Range<usize>)> {
    let end = offset + length;
    (offset / SECTOR..end.div_ceil(SECTOR)).map(move |sector| {
        let (from, to) = ((sector * SECTOR).max(offset), ((sector + 1) * SECTOR).min(end));
        (from..to, from - offset..to - offset)
    })
}
