//! A started direct operation: its bios, its lent memory, and its result.
//!
//! A write of part of a block takes two stages. The block is read into memory beside the caller's
//! and changed there. Then it is written together with the rest in one request. A read of part of a
//! block reads the whole block, and the part is copied.

use std::ops::Range;

use forebay_block::{Bio, BufferId, Class, Errno, Operation as Asked, Segments, Source};

use crate::core::direct::operation::{Operation, Verb};
use crate::core::direct::shape::{Body, Place, Shape, Span};
use crate::core::direct::turns::Turns;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::stats::Counters;
use crate::platform::Backend;
use crate::platform::{AlignedMemory, Memory};

/// A started operation.
#[derive(Debug)]
pub(crate) struct Active {
    operation: Operation,
    stage: Stage,
    /// Number that identifies its bios.
    owner: u64,
    /// Number of bios that have not ended.
    left: usize,
    /// Lent memory: the caller's bytes, and whole blocks beside them.
    memory: Option<BufferId>,
    beside: Option<BufferId>,
    /// Whether it moves the end of the file.
    extends: bool,
    /// End of the file, as a read found it.
    ends_at: u64,
    /// Lowest offset that failed, and its error.
    failed: Option<(u64, Errno)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Stage {
    /// Reads the blocks that a write changes in part.
    Edges(Shape),
    /// Reads the blocks of a read.
    Reading(Body),
    Writing,
    Setting,
    Flushing,
    FlushingDirectory,
}

/// Result of the end of a stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// More bios were submitted.
    Moving,
    /// The operation has to be ended.
    Over,
}

impl Active {
    pub(crate) fn new(operation: Operation, owner: u64, size: u64) -> Self {
        let (stage, extends) = match operation.verb {
            Verb::Read(span) => {
                (Stage::Reading(Body::new(span.offset..span.end(), span.block)), false)
            }
            Verb::Write(span) => (Stage::Edges(Shape::of_write(span, size)), span.end() > size),
            Verb::SetLength(_) => (Stage::Setting, false),
            Verb::FlushData | Verb::FlushAll | Verb::Settle => (Stage::Flushing, false),
        };
        let (memory, beside, failed) = (None, None, None);
        Self {
            operation,
            stage,
            owner,
            left: 0,
            memory,
            beside,
            extends,
            ends_at: u64::MAX,
            failed,
        }
    }

    pub(crate) fn operation(&self) -> &Operation {
        &self.operation
    }

    pub(crate) fn extends(&self) -> bool {
        self.extends
    }

    pub(crate) fn failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Returns the error of a failed flush of the file or its directory. Then no later sync can be
    /// trusted: the kernel reports a failed flush once, and the next one succeeds although data, or
    /// the entry, may be lost.
    pub(crate) fn flush_failure(&self) -> Option<Errno> {
        let flushes = matches!(self.stage, Stage::Flushing | Stage::FlushingDirectory);
        self.failed.filter(|_| flushes).map(|(_, errno)| errno)
    }

    /// Makes the first bios.
    pub(crate) fn start(&mut self, backend: &mut Backend, bios: &mut Turns, counters: &Counters) {
        let mut is_bounced = self.operation.is_copy;
        match (self.stage.clone(), self.operation.verb) {
            (Stage::Reading(body), Verb::Read(span)) => {
                if !body.edges().is_empty() {
                    is_bounced = true;
                    self.lend_beside(AlignedMemory::new(2 * span.block as usize), backend);
                }
                let place = self.lend(span, backend);
                self.push(bios, Asked::Read, body.pieces(place, self.beside));
            }
            (Stage::Edges(shape), Verb::Write(span)) => {
                let edges = shape.body.as_ref().map(Body::edges).filter(|edges| !edges.is_empty());
                match edges {
                    None => self.write(&shape, span, backend, bios),
                    Some(edges) => {
                        is_bounced = true;
                        self.lend_beside(AlignedMemory::new(2 * span.block as usize), backend);
                        let place = |range: &Range<u64>, skew| Place {
                            buffer: self.beside.expect("just lent"),
                            offset: range.start,
                            skew,
                        };
                        let both = [(edges.head, 0), (edges.tail, span.block as usize)];
                        let reads = both.into_iter().filter_map(|(edge, skew)| {
                            let edge = edge?;
                            Some((edge.start, [place(&edge, skew).segment(&edge)].into()))
                        });
                        let reads: Vec<(u64, Segments)> = reads.collect();
                        self.push(bios, Asked::Read, reads);
                    }
                }
            }
            (_, Verb::SetLength(length)) => {
                self.push_still(bios, Asked::SetLength, length);
            }
            (_, Verb::FlushAll) => self.push_still(bios, Asked::FlushAll, 0),
            _ => self.push_still(bios, Asked::FlushData, 0),
        }
        if is_bounced {
            Counters::add(&counters.bounced, 1);
        }
        if matches!(self.operation.verb, Verb::FlushAll | Verb::FlushData) {
            Counters::add(&counters.flushes, 1);
        }
    }

    /// Returns the blocks that no other operation may touch now: all of a write whose bios are not
    /// made yet, with its buffered tail.
    pub(crate) fn holds(&self) -> Option<Range<u64>> {
        match (&self.stage, self.operation.verb) {
            (Stage::Edges(_), Verb::Write(span)) => Some(span.blocks()),
            (Stage::Setting, _) => Some(0..u64::MAX),
            _ => None,
        }
    }

    /// Ends a bio. Returns true for the last one of its stage.
    pub(crate) fn end_bio(&mut self, bio: &Bio, result: std::result::Result<u64, Errno>) -> bool {
        match result {
            Err(errno) => {
                let before = self.failed.map_or(u64::MAX, |(offset, _)| offset);
                if self.failed.is_none() || bio.offset < before {
                    self.failed = Some((bio.offset, errno));
                }
            }
            Ok(bytes) if bio.operation == Asked::Read && bytes < bio.length => {
                self.ends_at = self.ends_at.min(bio.offset + bytes);
            }
            Ok(_) => {}
        }
        debug_assert_eq!(bio.owner, self.owner, "a bio ends its own operation");
        assert!(self.left > 0, "a bio ends once");
        self.left -= 1;
        self.left == 0
    }

    /// Starts the next stage, if any.
    pub(crate) fn advance(
        &mut self,
        backend: &mut Backend,
        bios: &mut Turns,
        is_new: bool,
    ) -> Next {
        debug_assert_eq!(self.left, 0, "the device would use memory that is changed now");
        if self.failed.is_some() {
            return Next::Over;
        }
        match (self.stage.clone(), self.operation.verb) {
            (Stage::Edges(shape), Verb::Write(span)) => {
                self.change_edges(&shape, span, backend);
                self.write(&shape, span, backend, bios);
                Next::Moving
            }
            (Stage::Flushing, _) if is_new => {
                self.stage = Stage::FlushingDirectory;
                self.push_still(bios, Asked::FlushDirectory, 0);
                Next::Moving
            }
            _ => Next::Over,
        }
    }

    /// Takes the lent memory back, once no bio is left. Returns the blocks beside the caller's
    /// memory.
    pub(crate) fn take_back(&mut self, backend: &mut Backend) -> Option<Memory> {
        if let Some(buffer) = self.memory.take() {
            self.operation.memory = Some(backend.take_back(buffer));
        }
        self.beside.take().map(|buffer| backend.take_back(buffer))
    }

    /// Returns the operation and its result. `beside` is from [`Active::take_back`].
    pub(crate) fn end(mut self, beside: Option<Memory>) -> (Operation, Result<usize>) {
        debug_assert_eq!(self.left, 0, "memory is taken back while the device uses it");
        let result = self.result();
        if let (Ok(bytes), Stage::Reading(body), Some(beside)) = (&result, &self.stage, &beside) {
            let asked = body.bytes.start..body.bytes.start + *bytes as u64;
            let skew = self.operation.skew;
            let into = self.operation.memory.as_mut().expect("a read has memory").bytes_mut();
            for (block, from) in edges_beside(body, beside) {
                let part = overlap(&block, &asked);
                into[at(&part, asked.start, skew)]
                    .copy_from_slice(&from[at(&part, block.start, 0)]);
            }
        }
        (self.operation, result)
    }

    /// Returns the result after the last stage.
    pub(crate) fn result(&self) -> Result<usize> {
        let inode = &self.operation.inode;
        // A failed read beyond the end of the file lost nothing. A failed write there lost its
        // data.
        let is_behind_end =
            |offset| matches!(self.operation.verb, Verb::Read(_)) && offset >= self.ends_at;
        if let Some((offset, errno)) = self.failed.filter(|(offset, _)| !is_behind_end(*offset)) {
            return Err(match (self.operation.verb, &self.stage) {
                (Verb::Read(_), _) => inode.io_error("could not read", offset, errno),
                (Verb::Write(_), Stage::Edges(_)) => inode.io_error(
                    "could not read the block that the write changes in part; nothing was written",
                    offset,
                    errno,
                ),
                (Verb::Write(_), _) => inode.io_error("could not write", offset, errno),
                (_, Stage::Flushing | Stage::FlushingDirectory) => {
                    Error::poisoned(&inode.path, errno)
                }
                _ => cannot(inode, "could not set the length", errno),
            });
        }
        match self.operation.verb {
            Verb::Read(span) => {
                let end = self.ends_at.min(span.end());
                Ok(end.saturating_sub(span.offset) as usize)
            }
            Verb::Write(span) => Ok(span.length as usize),
            _ => Ok(0),
        }
    }

    /// Copies the caller's bytes over the blocks that were read.
    fn change_edges(&mut self, shape: &Shape, span: Span, backend: &mut Backend) {
        let (Some(body), Some(buffer)) = (&shape.body, self.beside.take()) else { return };
        // The part beyond the end of the file is zero, as the memory was.
        self.ends_at = u64::MAX;
        let mut beside = backend.take_back(buffer);
        let from = self.operation.memory.as_ref().expect("not lent yet").bytes();
        let skew = self.operation.skew;
        for (block, into) in edges_beside_mut(body, &mut beside) {
            let part = overlap(&block, &body.bytes);
            into[at(&part, block.start, 0)].copy_from_slice(&from[at(&part, span.offset, skew)]);
        }
        self.beside = Some(backend.lend(beside));
    }

    fn write(&mut self, shape: &Shape, span: Span, backend: &mut Backend, bios: &mut Turns) {
        self.stage = Stage::Writing;
        let place = self.lend(span, backend);
        if let Some(body) = &shape.body {
            self.push(bios, Asked::Write, body.pieces(place, self.beside));
        }
        if let Some(tail) = &shape.tail {
            let segments = [place.segment(tail)].into();
            self.push(bios, Asked::WriteBuffered, vec![(tail.start, segments)]);
        }
    }

    fn lend(&mut self, span: Span, backend: &mut Backend) -> Place {
        let memory =
            self.operation.memory.take().expect("a transfer has memory, and lends it once");
        let buffer = backend.lend(memory);
        debug_assert!(self.memory.is_none(), "memory is lent once");
        self.memory = Some(buffer);
        Place { buffer, offset: span.offset, skew: self.operation.skew }
    }

    fn lend_beside(&mut self, memory: AlignedMemory, backend: &mut Backend) {
        debug_assert!(self.beside.is_none(), "memory that is lent would never come back");
        self.beside = Some(backend.lend(memory.into()));
    }

    fn push(&mut self, bios: &mut Turns, operation: Asked, pieces: Vec<(u64, Segments)>) {
        let target = self.operation.inode.target;
        self.left += pieces.len();
        for (offset, segments) in pieces {
            let length = segments.iter().map(|segment| u64::from(segment.length())).sum();
            let (class, source, owner) = (Class::Waited, Source(target.0), self.owner);
            bios.push(Bio { operation, target, offset, length, segments, class, source, owner });
        }
    }

    /// Adds a bio that moves no bytes.
    fn push_still(&mut self, bios: &mut Turns, operation: Asked, offset: u64) {
        let target = self.operation.inode.target;
        let (class, source, owner, segments) =
            (Class::Waited, Source(target.0), self.owner, Segments::new());
        let bio = Bio { operation, target, offset, length: 0, segments, class, source, owner };
        self.left += 1;
        match operation {
            Asked::SetLength => bios.push(bio),
            _ => bios.push_flush(bio),
        }
    }
}

/// Returns the memory of each block that is read beside, with its range in the file.
fn edges_beside<'a>(
    body: &Body,
    beside: &'a Memory,
) -> impl Iterator<Item = (Range<u64>, &'a [u8])> {
    let edges = body.edges();
    let (head, tail) = beside.bytes().split_at(beside.length() / 2);
    [edges.head.zip(Some(head)), edges.tail.zip(Some(tail))].into_iter().flatten()
}

fn edges_beside_mut<'a>(
    body: &Body,
    beside: &'a mut Memory,
) -> impl Iterator<Item = (Range<u64>, &'a mut [u8])> {
    let edges = body.edges();
    let middle = beside.length() / 2;
    let (head, tail) = beside.bytes_mut().split_at_mut(middle);
    [edges.head.zip(Some(head)), edges.tail.zip(Some(tail))].into_iter().flatten()
}

/// Returns the intersection of two ranges, which may be empty.
fn overlap(one: &Range<u64>, other: &Range<u64>) -> Range<u64> {
    let start = one.start.max(other.start);
    start..one.end.min(other.end).max(start)
}

/// Returns the place of a range in memory that begins, after `skew`, with the byte `first`. An
/// empty range may lie outside.
fn at(range: &Range<u64>, first: u64, skew: usize) -> Range<usize> {
    if range.is_empty() {
        return 0..0;
    }
    debug_assert!(range.start >= first, "{range:?} before {first}");
    let start = (range.start - first) as usize + skew;
    start..start + (range.end - range.start) as usize
}

fn cannot(
    inode: &crate::core::direct::direct_inode::DirectInode,
    what: &str,
    errno: Errno,
) -> Error {
    Error::new(ErrorKind::Io, what)
        .at_path(&inode.path)
        .because(std::io::Error::from_raw_os_error(errno.0))
}
