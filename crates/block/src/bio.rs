//! Bio: one operation of one caller, with its range, its buffers and its owner.
//!
//! Buffers are numbers, not addresses: a [`Segment`] is a place in the arena, in lent memory, or a
//! run of zeroes. Only the device that owns the memory turns it into an address, so nothing here
//! can outlive its memory.

use core::fmt;

use smallvec::SmallVec;

use crate::limits::{PAGE, REQUEST_SEGMENTS};

/// Number of a frame of the arena: the memory that holds one page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Frame(pub u32);

/// Number of the file or block device that a bio is for: a slot in the file table of the device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Target(pub u32);

/// Number of the source of a bio, such as a file or a thread. Sources of the same class share the
/// device fairly by bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Source(pub u32);

/// Number of a piece of memory that its owner has lent to the device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BufferId(pub u32);

/// Error number of the operating system (`errno`), as the device reported it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Errno(pub i32);

impl Errno {
    /// The call was interrupted before it transferred a byte (`EINTR`).
    pub const INTERRUPTED: Errno = Errno(4);
    /// The device failed (`EIO`).
    pub const IO: Errno = Errno(5);
    /// The call would have blocked (`EAGAIN`).
    pub const WOULD_BLOCK: Errno = Errno(11);
    /// The device rejects the operation as invalid, such as a wrong alignment (`EINVAL`).
    pub const INVALID: Errno = Errno(22);
    /// The device does not support the operation (`EOPNOTSUPP`).
    pub const UNSUPPORTED: Errno = Errno(95);

    /// Returns whether the same call may succeed when it is repeated (`EINTR`, `EAGAIN`).
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

/// Kind of operation that a bio asks for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// Reads `length` bytes at `offset` into the segments. Short at the end of the file.
    Read,
    /// Writes the segments at `offset` with direct I/O. Offset and length are multiples of a page.
    Write,
    /// Writes the segments at `offset` through the page cache of the kernel, for the block that
    /// contains the end of the file. Nothing else may be in flight on the target, because the
    /// descriptor is switched to buffered mode meanwhile.
    WriteBuffered,
    /// As `Write`, and these bytes are durable when it ends (force unit access).
    WriteFua,
    /// Makes the range read as zeroes. The range is below the end of the file and aligned as for a
    /// direct write. Zeroes are written if the device cannot make them by itself.
    WriteZeroes,
    /// Tells the device that the range is no longer needed. Its content is unspecified afterwards.
    Discard,
    /// Makes data durable, and the metadata needed to read it (`fdatasync`). Covers only bios that
    /// ended before the flush was submitted.
    FlushData,
    /// As `FlushData`, with all metadata (`fsync`).
    FlushAll,
    /// Makes the directory entry of the target durable (`fsync` of its directory).
    FlushDirectory,
    /// Allocates space for the range without changing the file size (`fallocate`,
    /// `FALLOC_FL_KEEP_SIZE`).
    Allocate,
    /// Frees the space of the range without changing the file size (`FALLOC_FL_PUNCH_HOLE`).
    Punch,
    /// Sets the file size to `offset` (`ftruncate`). Space beyond it is freed.
    SetLength,
}

impl Operation {
    /// Returns whether adjacent bios of this operation may merge.
    #[must_use]
    pub fn merges(self) -> bool {
        matches!(self, Operation::Read | Operation::Write)
    }

    /// Returns whether the operation changes its target.
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

    /// Returns whether the operation makes earlier operations durable.
    #[must_use]
    pub fn is_flush(self) -> bool {
        matches!(self, Operation::FlushData | Operation::FlushAll | Operation::FlushDirectory)
    }

    /// Returns whether the operation transfers bytes, so that a completion may be short.
    #[must_use]
    pub fn moves_bytes(self) -> bool {
        matches!(
            self,
            Operation::Read | Operation::Write | Operation::WriteFua | Operation::WriteBuffered
        )
    }
}

/// Priority of a bio.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// A caller waits for it: a sync or a read. Served first.
    Waited,
    /// No caller waits: background writeback.
    Background,
}

/// Contiguous part of the data of a bio.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Segment {
    /// `length` bytes of the arena, from byte `offset` of frame `first` on. Frames with consecutive
    /// numbers are contiguous in memory, so one segment may span many.
    Frames {
        /// The first frame.
        first: Frame,
        /// Bytes of the first frame to skip, less than [`PAGE`]. Not 0 only in the rest of a short
        /// request.
        offset: u32,
        /// Number of bytes.
        length: u32,
    },
    /// `length` bytes of lent memory, from byte `offset` of it on.
    Lent {
        /// The memory.
        buffer: BufferId,
        /// Bytes of the memory to skip.
        offset: u32,
        /// Number of bytes.
        length: u32,
    },
    /// `length` zero bytes, for writes only.
    Zeroes {
        /// Number of bytes.
        length: u32,
    },
}

impl Segment {
    /// Returns a segment of `length` bytes from the start of frame `first` on.
    #[must_use]
    pub fn frames(first: Frame, length: u32) -> Self {
        Segment::Frames { first, offset: 0, length }
    }

    /// Returns the number of bytes in the segment.
    #[must_use]
    pub fn length(self) -> u32 {
        match self {
            Segment::Frames { length, .. }
            | Segment::Lent { length, .. }
            | Segment::Zeroes { length } => length,
        }
    }

    /// Returns one segment equal to this one followed by `next`, or `None` if they are not
    /// contiguous.
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

    /// Returns the rest of the segment after its first `bytes` bytes, which must be fewer than it
    /// has.
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

/// Data of a bio, in order. A single segment, as most bios have, needs no allocation.
pub type Segments = SmallVec<[Segment; 1]>;

/// Appends segments. A segment that continues the last one is fused with it.
pub(crate) fn append(segments: &mut Segments, more: &[Segment]) {
    for &segment in more {
        let fused = segments.last().and_then(|last| last.fused(segment));
        match (segments.last_mut(), fused) {
            (Some(last), Some(fused)) => *last = fused,
            _ => segments.push(segment),
        }
    }
}

/// Returns the segments that follow the first `bytes` bytes.
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

/// One operation of one caller on one range of one target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bio {
    /// Kind of operation.
    pub operation: Operation,
    /// File or device that it is for.
    pub target: Target,
    /// First byte of the range.
    pub offset: u64,
    /// Bytes in the range. If the operation transfers bytes, equal to the sum of the segments.
    pub length: u64,
    /// Memory that is read or written.
    pub segments: Segments,
    /// Priority.
    pub class: Class,
    /// Source, for fair sharing within the class.
    pub source: Source,
    /// Value of the caller, returned with the result and not interpreted here.
    pub owner: u64,
}

impl Bio {
    /// Returns the number of bytes to transfer: 0 for a flush, an allocation or a new size.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        if self.operation.moves_bytes() { self.length } else { 0 }
    }

    /// Returns the number of bytes in segments of zeroes.
    #[must_use]
    #[inline]
    pub fn zero_bytes(&self) -> u64 {
        let zeroes = |segment: &Segment| match *segment {
            Segment::Zeroes { length } => u64::from(length),
            Segment::Frames { .. } | Segment::Lent { .. } => 0,
        };
        self.segments.iter().map(zeroes).sum()
    }

    /// Returns the first byte after the range.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset + self.length
    }

    /// Panics if no device could serve the bio, which is a bug of the caller.
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
            "the range of a bio must end below 2^64: {self:?}"
        );
        if !self.operation.moves_bytes() {
            return;
        }
        assert!(self.length > 0, "a bio that transfers bytes must not be empty: {self:?}");
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
        assert!(!reads_into_zeroes, "a read needs memory, not zeroes: {self:?}");
    }
}
