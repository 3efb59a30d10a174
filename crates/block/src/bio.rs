//! A bio: what one caller asks. Operation, range, buffers, whom to tell.
//!
//! Buffers are named, not pointed at: a [`Segment`] is a place in the arena or a run of zeroes, and only the
//! device that owns the arena turns it into an address. So nothing here can outlive its memory.

use core::fmt;

/// One frame of the arena: the memory that holds a page.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Frame(pub u32);

/// The file (or device) a bio is for: a slot in the device's file table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Target(pub u32);

/// An error number of the operating system, as the device reported it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Errno(pub i32);

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
    /// Write the segments at `offset` through the kernel's page cache: the block that contains the end of file.
    /// The caller has nothing else in flight on the target, because the descriptor's mode is switched for it.
    WriteBuffered,
    /// Make the target's data durable, and what is needed to find it (`fdatasync`).
    FlushData,
    /// As `FlushData`, and all metadata too (`fsync`).
    FlushAll,
    /// Make the target's directory entry durable (`fsync` of its directory).
    FlushDirectory,
    /// Allocate space for `length` bytes at `offset`; the size stays (`fallocate`, `FALLOC_FL_KEEP_SIZE`).
    Allocate,
    /// Give allocated space back: `length` bytes at `offset` (`FALLOC_FL_PUNCH_HOLE`, the size stays).
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

    /// Whether the operation moves bytes, so that a completion may be short.
    #[must_use]
    pub fn moves_bytes(self) -> bool {
        matches!(self, Operation::Read | Operation::Write | Operation::WriteBuffered)
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
    /// `length` bytes of the arena, from the start of frame `first` on; frames of consecutive numbers are
    /// consecutive in memory, so one segment may span many.
    Frames {
        /// The first frame.
        first: Frame,
        /// Bytes from the frame's start.
        length: u32,
    },
    /// `length` bytes of zeroes. For writes only.
    Zeroes {
        /// Bytes.
        length: u32,
    },
}

impl Segment {
    /// Bytes in the segment.
    #[must_use]
    pub fn length(self) -> u32 {
        match self {
            Segment::Frames { length, .. } | Segment::Zeroes { length } => length,
        }
    }
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
    pub segments: Vec<Segment>,
    /// Who is served first.
    pub class: Class,
    /// Whom to tell: given back with the result, not looked at here.
    pub owner: u64,
}
