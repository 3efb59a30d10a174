//! A bio: what one caller asks. Operation, range, buffers, whom to tell.
//!
//! Buffers are named, not pointed at: a [`Segment`] is a place in the arena or a run of zeroes, and
//! only the device that owns the arena turns it into an address. So nothing here can outlive its
//! memory.

use core::fmt;

use smallvec::SmallVec;

use crate::limits::{PAGE, REQUEST_SEGMENTS};

/// One frame of the arena: the memory that holds a page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Frame(pub u32);

/// The file (or device) a bio is for: a slot in the device's file table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Target(pub u32);

/// Who asks: a file's writeback, a connection, a thread. Within a class of one queue, sources share
/// the device by bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Source(pub u32);

/// Memory lent to the device by its owner, under a number the device gave it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Buffer(pub u32);

/// An error number of the operating system, as the device reported it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Errno(pub i32);

impl Errno {
    /// The call was interrupted before it moved a byte (`EINTR`).
    pub const INTERRUPTED: Errno = Errno(4);
    /// The device failed (`EIO`).
    pub const IO: Errno = Errno(5);
    /// The device would have had to block (`EAGAIN`).
    pub const WOULD_BLOCK: Errno = Errno(11);
    /// The device does not take this as it is (`EINVAL`).
    pub const INVALID: Errno = Errno(22);
    /// The device cannot do this (`EOPNOTSUPP`).
    pub const UNSUPPORTED: Errno = Errno(95);

    /// Whether the same call may succeed when simply made again.
    #[must_use]
    pub fn is_passing(self) -> bool {
        self == Errno::INTERRUPTED || self == Errno::WOULD_BLOCK
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "error {}", self.0)
    }
}

/// What is asked of the device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// Read `length` bytes at `offset` into the segments. Ends short at the end of the file.
    Read,
    /// Write the segments at `offset`, direct: page-aligned offset and length.
    Write,
    /// Write the segments at `offset` through the kernel's page cache: the block that contains the
    /// end of file. The caller has nothing else in flight on the target, because the descriptor's
    /// mode is switched for it.
    WriteBuffered,
    /// As `Write`, and durable when it ends (force unit access): these bytes alone, no others.
    WriteFua,
    /// Make the range read as zeroes, without moving any; the size stays. The range is below the
    /// end, and aligned as for a direct write: where the device cannot make zeroes by itself, they
    /// are written.
    WriteZeroes,
    /// Tell the device that the range is not needed (what it reads as afterwards is not said). The
    /// size stays.
    Discard,
    /// Make the target's data durable, and what is needed to find it (`fdatasync`). Covers the bios
    /// that ended before the flush was submitted, no others.
    FlushData,
    /// As `FlushData`, and all metadata too (`fsync`).
    FlushAll,
    /// Make the target's directory entry durable (`fsync` of its directory).
    FlushDirectory,
    /// Allocate space for `length` bytes at `offset`; the size stays (`fallocate`,
    /// `FALLOC_FL_KEEP_SIZE`).
    Allocate,
    /// Give allocated space back: `length` bytes at `offset` (`FALLOC_FL_PUNCH_HOLE`, the size
    /// stays).
    Punch,
    /// Set the file's size to `offset` (`ftruncate`). Space beyond it is given back.
    SetLength,
}

impl Operation {
    /// Whether neighbouring bios of this operation may merge.
    #[must_use]
    pub fn merges(self) -> bool {
        matches!(self, Operation::Read | Operation::Write)
    }

    /// Whether the operation changes its target.
    #[must_use]
    pub fn changes(self) -> bool {
        !matches!(
            self,
            Operation::Read
                | Operation::FlushData
                | Operation::FlushAll
                | Operation::FlushDirectory
        )
    }

    /// Whether the operation makes durable what was done before.
    #[must_use]
    pub fn is_flush(self) -> bool {
        matches!(self, Operation::FlushData | Operation::FlushAll | Operation::FlushDirectory)
    }

    /// Whether the operation moves bytes, so that a completion may be short.
    #[must_use]
    pub fn moves_bytes(self) -> bool {
        matches!(
            self,
            Operation::Read | Operation::Write | Operation::WriteFua | Operation::WriteBuffered
        )
    }
}

/// Who is served first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// Somebody waits for it: a sync or a read.
    Waited,
    /// Nobody waits: background writeback.
    Background,
}

/// A part of a bio's data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Segment {
    /// `length` bytes of the arena, from byte `offset` of frame `first` on; frames of consecutive
    /// numbers are consecutive in memory, so one segment may span many.
    Frames {
        /// The first frame.
        first: Frame,
        /// Bytes of the first frame to leave out: 0 but in what is left of a short request. Below
        /// [`PAGE`].
        offset: u32,
        /// Bytes, from there on.
        length: u32,
    },
    /// `length` bytes of lent memory, from byte `offset` of it on.
    Lent {
        /// Which memory.
        buffer: Buffer,
        /// Bytes to leave out.
        offset: u32,
        /// Bytes, from there on.
        length: u32,
    },
    /// `length` bytes of zeroes. For writes only.
    Zeroes {
        /// Bytes.
        length: u32,
    },
}

impl Segment {
    /// `length` bytes of the arena from the start of a frame on.
    #[must_use]
    pub fn frames(first: Frame, length: u32) -> Self {
        Segment::Frames { first, offset: 0, length }
    }

    /// Bytes in the segment.
    #[must_use]
    pub fn length(self) -> u32 {
        match self {
            Segment::Frames { length, .. }
            | Segment::Lent { length, .. }
            | Segment::Zeroes { length } => length,
        }
    }

    /// The one segment that says the same as this one and then `next`, where there is one: the
    /// frames follow each other and the ones before are full, or both are zeroes.
    #[must_use]
    pub fn fused(self, next: Segment) -> Option<Segment> {
        match (self, next) {
            (
                Segment::Frames { first, offset, length },
                Segment::Frames { first: next, offset: 0, length: more },
            ) => {
                let end = u64::from(offset) + u64::from(length);
                let page = PAGE as u64;
                let follows = end.is_multiple_of(page)
                    && u64::from(first.0) + end / page == u64::from(next.0);
                let length = length.checked_add(more).filter(|_| follows)?;
                Some(Segment::Frames { first, offset, length })
            }
            (
                Segment::Lent { buffer, offset, length },
                Segment::Lent { buffer: next, offset: from, length: more },
            ) => {
                let follows = buffer == next && offset.checked_add(length) == Some(from);
                let length = length.checked_add(more).filter(|_| follows)?;
                Some(Segment::Lent { buffer, offset, length })
            }
            (Segment::Zeroes { length }, Segment::Zeroes { length: more }) => {
                Some(Segment::Zeroes { length: length.checked_add(more)? })
            }
            _ => None,
        }
    }

    /// What is left of the segment after its first `bytes`, of which there are fewer than it has.
    #[must_use]
    pub fn after(self, bytes: u32) -> Segment {
        debug_assert!(bytes < self.length());
        match self {
            Segment::Frames { first, offset, length } => {
                let start = u64::from(offset) + u64::from(bytes);
                let page = PAGE as u64;
                Segment::Frames {
                    first: Frame(first.0 + (start / page) as u32),
                    offset: (start % page) as u32,
                    length: length - bytes,
                }
            }
            Segment::Lent { buffer, offset, length } => {
                Segment::Lent { buffer, offset: offset + bytes, length: length - bytes }
            }
            Segment::Zeroes { length } => Segment::Zeroes { length: length - bytes },
        }
    }
}

/// The parts of a bio's data, in order. Most bios have one, which then needs no memory of its own.
pub type Segments = SmallVec<[Segment; 1]>;

/// Appends segments, fused with the last one where they continue it.
pub(crate) fn append(segments: &mut Segments, more: &[Segment]) {
    for &segment in more {
        let fused = segments.last().and_then(|last| last.fused(segment));
        match (segments.last_mut(), fused) {
            (Some(last), Some(fused)) => *last = fused,
            _ => segments.push(segment),
        }
    }
}

/// What is left of a list of segments after its first `bytes`.
pub(crate) fn after(segments: &[Segment], mut bytes: u64) -> Segments {
    let mut left = Segments::new();
    for &segment in segments {
        let length = u64::from(segment.length());
        if bytes >= length {
            bytes -= length;
            continue;
        }
        left.push(if bytes == 0 { segment } else { segment.after(bytes as u32) });
        bytes = 0;
    }
    left
}

/// What one caller asks of one target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bio {
    /// What to do.
    pub operation: Operation,
    /// To which file.
    pub target: Target,
    /// From which byte on.
    pub offset: u64,
    /// How many bytes; the sum of the segments where the operation moves bytes.
    pub length: u64,
    /// Where the bytes are, or go.
    pub segments: Segments,
    /// Who is served first.
    pub class: Class,
    /// Who asks: within a class, sources share by bytes.
    pub source: Source,
    /// Whom to tell: given back with the result, not looked at here.
    pub owner: u64,
}

impl Bio {
    /// Bytes that move between the segments and the device: none for a flush, an allocation or a
    /// new size.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        if self.operation.moves_bytes() { self.length } else { 0 }
    }

    /// Bytes of zeroes among the segments.
    #[must_use]
    #[inline]
    pub fn zero_bytes(&self) -> u64 {
        let zeroes = |segment: &Segment| match *segment {
            Segment::Zeroes { length } => u64::from(length),
            Segment::Frames { .. } | Segment::Lent { .. } => 0,
        };
        self.segments.iter().map(zeroes).sum()
    }

    /// The first byte after the range.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset + self.length
    }

    /// Stops at a bio that no device could serve: a bug of whoever made it.
    #[inline]
    pub(crate) fn check(&self) {
        let whole = match self.segments.as_slice() {
            [Segment::Frames { length, .. } | Segment::Lent { length, .. }] => {
                u64::from(*length) == self.length
            }
            _ => false,
        };
        let ends = self.offset.checked_add(self.length).is_some();
        if !(whole && ends && self.length > 0 && self.operation.moves_bytes()) {
            self.check_closely();
        }
    }

    fn check_closely(&self) {
        assert!(
            self.offset.checked_add(self.length).is_some(),
            "the range of a bio must end: {self:?}"
        );
        if !self.operation.moves_bytes() {
            return;
        }
        assert!(self.length > 0, "a bio that moves bytes must have some: {self:?}");
        assert!(
            self.segments.len() <= REQUEST_SEGMENTS,
            "more segments than one request carries: {self:?}"
        );
        let sum: u64 = self.segments.iter().map(|segment| u64::from(segment.length())).sum();
        assert!(sum == self.length, "the segments hold {sum} bytes: {self:?}");
        let ends = |segment: &Segment| match *segment {
            Segment::Frames { offset, length, .. } | Segment::Lent { offset, length, .. } => {
                offset.checked_add(length).is_some()
            }
            Segment::Zeroes { .. } => true,
        };
        assert!(
            self.segments.iter().all(ends),
            "a segment must end below 4 GiB of its memory: {self:?}"
        );
        let reads_into_zeroes = self.operation == Operation::Read && self.zero_bytes() > 0;
        assert!(!reads_into_zeroes, "zeroes cannot be read into: {self:?}");
    }
}
