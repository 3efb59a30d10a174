//! Files in memory: a device whose bytes can be looked at, for testing the layers above it without
//! a file system.
//!
//! Why not a file on tmpfs: that is the kernel again, with its own rounding and its own caching.
//! Here a request does exactly what its operation says, at the doorbell, one after the other in the
//! order staged; only the caller's own mistakes fail. Any alignment works, as without direct I/O.
//!
//! What each operation does to a file of n bytes:
//!
//! ```text
//! Read                     ends short at n
//! Write, Fua, Buffered     n grows to the end of the range; what is skipped reads as zeroes
//! WriteZeroes, Punch       the part of the range before n reads as zeroes; n stays
//! Discard                  the part of the range before n reads as 0xd5, so that who counts on zeroes is found out
//! SetLength                n is cut or grows; what is gained reads as zeroes
//! Allocate, Flush*         nothing; allocating beyond the device's bound fails
//! ```
//!
//! A range that would take all files together beyond the bound ends short, or with `ENOSPC` where
//! not a byte fits.

use std::mem;
use std::sync::Arc;

use forebay_block::limits::PAGE;
use forebay_block::{
    Bio, Completion, Device, Errno, Frame, Moment, Operation, Refused, Segment, Tag, Target, Wait,
};

use crate::arena::Arena;
use crate::clock;

/// Value of discarded bytes.
pub const DISCARDED: u8 = 0xd5;

const NO_SPACE: Errno = Errno(libc::ENOSPC);

/// Device whose files are in memory.
#[derive(Debug)]
pub struct MemoryDevice {
    arena: Arc<Arena>,
    files: Vec<Option<Vec<u8>>>,
    /// Bytes all files may have together.
    bound: u64,
    /// Bytes they have.
    used: u64,
    staged: Vec<(Tag, Bio)>,
    completed: Vec<Completion>,
}

impl MemoryDevice {
    /// Creates a device whose files have at most `bound` bytes in total.
    #[must_use]
    pub fn new(arena: Arc<Arena>, bound: u64) -> Self {
        Self { arena, files: Vec::new(), bound, used: 0, staged: Vec::new(), completed: Vec::new() }
    }

    /// Attaches a file with this content under the number of a target. Numbers index a table: use
    /// small ones.
    pub fn attach(&mut self, target: Target, content: Vec<u8>) {
        let index = target.0 as usize;
        if self.files.len() <= index {
            self.files.resize_with(index + 1, || None);
        }
        assert!(self.files[index].is_none(), "{target:?} is taken");
        self.used += content.len() as u64;
        assert!(self.used <= self.bound, "the content is more than the device holds");
        self.files[index] = Some(content);
    }

    /// Detaches a file and returns its content. No staged request may be for it.
    pub fn detach(&mut self, target: Target) -> Vec<u8> {
        assert!(
            self.staged.iter().all(|(_, bio)| bio.target != target),
            "{target:?} has requests staged"
        );
        let content = self.files[target.0 as usize].take().expect("the target is attached");
        self.used -= content.len() as u64;
        content
    }

    /// Returns the content of a file.
    #[must_use]
    pub fn content(&self, target: Target) -> &[u8] {
        self.files[target.0 as usize].as_deref().expect("the target is attached")
    }

    fn serve(&mut self, bio: &Bio) -> Result<u64, Errno> {
        match bio.operation {
            Operation::Read => Ok(self.read(bio)),
            Operation::Write | Operation::WriteFua | Operation::WriteBuffered => self.write(bio),
            Operation::WriteZeroes | Operation::Punch => Ok(self.fill(bio, 0)),
            Operation::Discard => Ok(self.fill(bio, DISCARDED)),
            Operation::SetLength => self.set_length(bio.target, bio.offset),
            Operation::Allocate => {
                let gained = bio.end().saturating_sub(self.content(bio.target).len() as u64);
                if gained > self.bound - self.used { Err(NO_SPACE) } else { Ok(0) }
            }
            Operation::FlushData | Operation::FlushAll | Operation::FlushDirectory => Ok(0),
        }
    }

    fn read(&self, bio: &Bio) -> u64 {
        let content = self.content(bio.target);
        let start = in_file(bio.offset, content);
        let mut left = &content[start..in_file(bio.end(), content)];
        let moved = left.len() as u64;
        for &segment in &bio.segments {
            let (part, rest) = left.split_at(left.len().min(segment.length() as usize));
            left = rest;
            let mut part = part;
            for (frame, at, length) in pieces(segment) {
                let (piece, rest) = part.split_at(part.len().min(length));
                part = rest;
                // SAFETY: the caller leaves the frames of a request alone until it has ended, and
                // this one has not; no other request of the caller uses them, for each is served
                // alone.
                unsafe { self.arena.copy_in(frame, at, piece) };
            }
        }
        moved
    }

    fn write(&mut self, bio: &Bio) -> Result<u64, Errno> {
        let length = self.content(bio.target).len() as u64;
        let most = length + (self.bound - self.used);
        let end = bio.end().min(most);
        if end <= bio.offset {
            return Err(NO_SPACE);
        }
        if end > length {
            self.set_length(bio.target, end)?;
        }
        let Self { arena, files, .. } = self;
        let content = files[bio.target.0 as usize].as_mut().expect("the target is attached");
        let range = in_file(bio.offset, content)..in_file(end, content);
        let mut left = &mut content[range];
        for &segment in &bio.segments {
            let length = left.len().min(segment.length() as usize);
            let (mut part, rest) = left.split_at_mut(length);
            left = rest;
            if let Segment::Zeroes { .. } = segment {
                part.fill(0);
                continue;
            }
            for (frame, at, length) in pieces(segment) {
                let length = part.len().min(length);
                let (piece, rest) = part.split_at_mut(length);
                part = rest;
                // SAFETY: the caller does not write the frames of a request until it has ended, and
                // this one has not; a request that reads into them would be another of the
                // caller's.
                unsafe { arena.copy_out(frame, at, piece) };
            }
        }
        Ok(end - bio.offset)
    }

    fn fill(&mut self, bio: &Bio, byte: u8) -> u64 {
        let content = self.files[bio.target.0 as usize].as_mut().expect("the target is attached");
        let range = in_file(bio.offset, content)..in_file(bio.end(), content);
        content[range].fill(byte);
        0
    }

    fn set_length(&mut self, target: Target, length: u64) -> Result<u64, Errno> {
        let before = self.content(target).len() as u64;
        if length > before && length - before > self.bound - self.used {
            return Err(NO_SPACE);
        }
        let content = self.files[target.0 as usize].as_mut().expect("the target is attached");
        content.resize(usize::try_from(length).map_err(|_| Errno(libc::EFBIG))?, 0);
        self.used = self.used - before + length;
        Ok(0)
    }
}

/// How far into the content an offset is, its end at most.
fn in_file(offset: u64, content: &[u8]) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX).min(content.len())
}

/// The parts of a segment of the arena, frame by frame: which, from which byte of it on, how many
/// bytes.
fn pieces(segment: Segment) -> impl Iterator<Item = (Frame, usize, usize)> {
    let (first, offset, length) = match segment {
        Segment::Frames { first, offset, length } => (first, offset as usize, length as usize),
        Segment::Lent { .. } => panic!("no memory was lent"),
        Segment::Zeroes { .. } => panic!("zeroes cannot be read into"),
    };
    let end = offset + length;
    (offset / PAGE..end.div_ceil(PAGE)).map(move |page| {
        let start = (page * PAGE).max(offset);
        let number = u32::try_from(page).expect("a segment's bytes are counted by 32 bits");
        (Frame(first.0 + number), start % PAGE, ((page + 1) * PAGE).min(end) - start)
    })
}

impl Device for MemoryDevice {
    fn now(&mut self) -> Moment {
        clock::now()
    }

    /// Refuses nothing: the tags bound the staged requests.
    fn prepare(&mut self, tag: Tag, request: &Bio) -> Result<(), Refused> {
        let attached = self.files.get(request.target.0 as usize).is_some_and(Option::is_some);
        assert!(attached, "{:?} is not attached", request.target);
        self.staged.push((tag, request.clone()));
        Ok(())
    }

    /// Does everything staged. Never waits: nothing is under way when it returns.
    fn doorbell(&mut self, _wait: Wait) -> Result<(), Errno> {
        let mut staged = mem::take(&mut self.staged);
        for (tag, bio) in staged.drain(..) {
            let result = self.serve(&bio);
            self.completed.push(Completion { tag, result });
        }
        self.staged = staged;
        Ok(())
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        completions.append(&mut self.completed);
    }
}

#[cfg(test)]
mod tests;
