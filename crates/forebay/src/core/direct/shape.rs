//! The shape of a direct operation: the bytes that go straight to the device, and those that need
//! whole blocks.
//!
//! ```text
//! file      |....block....|....block....|....block....|....block....|
//! asked            [------------------------------------------)
//! body      |-head edge-|--- the caller's memory ---|-tail edge-|   one range of whole blocks
//! tail                                                  [-----)   or, at the end of the file:
//!                                                                 exact bytes, page cache
//! ```
//!
//! A partly written block is read, changed and written whole, in separate memory beside the
//! caller's. A block that would then reach beyond the end of the file is an exception: the file
//! would grow to its end. Its exact bytes go buffered, which is right wherever the end is by then.
//! Pure: numbers in, numbers out.

use std::ops::Range;

use forebay_block::limits::REQUEST_BYTES;
use forebay_block::{BufferId, Segment, Segments};

/// Range of bytes of a file, with the block size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) offset: u64,
    pub(crate) length: u64,
    /// Block size in bytes: offsets and lengths of direct requests are multiples of it.
    pub(crate) block: u64,
}

impl Span {
    pub(crate) fn end(self) -> u64 {
        self.offset + self.length
    }

    /// Returns the range of whole blocks that contains it.
    pub(crate) fn blocks(self) -> Range<u64> {
        floor(self.offset, self.block)..self.end().next_multiple_of(self.block)
    }

    /// Returns where the first whole block in it begins, counted from its start, if it has one.
    pub(crate) fn first_whole(self) -> Option<u64> {
        let start = self.offset.next_multiple_of(self.block);
        (start + self.block <= self.end()).then(|| start - self.offset)
    }
}

/// Range of whole blocks to move. Only a part of the first and last block may be the caller's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Body {
    /// Range in whole blocks.
    pub(crate) blocks: Range<u64>,
    /// The caller's bytes in them.
    pub(crate) bytes: Range<u64>,
    block: u64,
}

/// Parts of a write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Shape {
    /// Part that goes direct.
    pub(crate) body: Option<Body>,
    /// Part that goes buffered: in the block that contains the end of the file.
    pub(crate) tail: Option<Range<u64>>,
}

impl Shape {
    /// Splits a write into a file of `size` bytes.
    pub(crate) fn of_write(span: Span, size: u64) -> Self {
        let (start, end) = (span.offset, span.end());
        let reaches_beyond =
            !end.is_multiple_of(span.block) && end.next_multiple_of(span.block) > size;
        let split = if reaches_beyond { floor(end, span.block).max(start) } else { end };
        Self {
            body: (split > start).then(|| Body::new(start..split, span.block)),
            tail: (end > split).then_some(split..end),
        }
    }
}

impl Body {
    /// Creates the body of at least one byte.
    pub(crate) fn new(bytes: Range<u64>, block: u64) -> Self {
        debug_assert!(bytes.start <= bytes.end && block > 0, "{bytes:?} in blocks of {block}");
        let blocks = floor(bytes.start, block)..bytes.end.next_multiple_of(block);
        Self { blocks, bytes, block }
    }

    /// Returns the blocks that contain only a part of the bytes: the first, the last, none, or one
    /// that is both.
    pub(crate) fn edges(&self) -> Edges {
        let head = self.bytes.start > self.blocks.start;
        let tail = self.bytes.end < self.blocks.end;
        let first = self.blocks.start..self.blocks.start + self.block;
        let last = self.blocks.end - self.block..self.blocks.end;
        match (head, tail) {
            (true, true) if first == last => Edges { head: Some(first), tail: None },
            (false, true) if first == last => Edges { head: Some(first), tail: None },
            (head, tail) => Edges { head: head.then_some(first), tail: tail.then_some(last) },
        }
    }

    /// Returns the offsets and segments of its bios. Edges are in the memory beside: the head at
    /// its start, the tail one block later. The rest is in the caller's memory, where byte `skew`
    /// is the first one of the operation.
    pub(crate) fn pieces(&self, memory: Place, beside: Option<BufferId>) -> Vec<(u64, Segments)> {
        let edges = self.edges();
        let beside = |offset: u64| Segment::Lent {
            buffer: beside.expect("edges have memory beside"),
            offset: narrow(offset),
            length: narrow(self.block),
        };
        let mut segments: Vec<Segment> = Vec::with_capacity(3);
        segments.extend(edges.head.as_ref().map(|_| beside(0)));
        let middle = edges.head.as_ref().map_or(self.blocks.start, |head| head.end)
            ..edges.tail.as_ref().map_or(self.blocks.end, |tail| tail.start);
        if middle.start < middle.end {
            segments.push(memory.segment(&middle));
        }
        segments.extend(edges.tail.as_ref().map(|_| beside(self.block)));
        cut(self.blocks.start, &segments)
    }
}

/// Blocks that contain only a part of the bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Edges {
    pub(crate) head: Option<Range<u64>>,
    pub(crate) tail: Option<Range<u64>>,
}

impl Edges {
    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_none() && self.tail.is_none()
    }
}

/// Place of an operation's bytes in lent memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) buffer: BufferId,
    /// Offset in the file of the byte at `skew`.
    pub(crate) offset: u64,
    /// Number of bytes before it.
    pub(crate) skew: usize,
}

impl Place {
    pub(crate) fn segment(self, range: &Range<u64>) -> Segment {
        let offset = narrow(range.start - self.offset + self.skew as u64);
        Segment::Lent { buffer: self.buffer, offset, length: narrow(range.end - range.start) }
    }
}

/// Cuts segments into ranges of at most one request each.
fn cut(mut offset: u64, segments: &[Segment]) -> Vec<(u64, Segments)> {
    let mut pieces = Vec::with_capacity(1);
    let (mut piece, mut room) = (Segments::new(), REQUEST_BYTES as u32);
    for &whole in segments {
        let mut rest = Some(whole);
        while let Some(segment) = rest {
            let length = segment.length().min(room);
            piece.push(shortened(segment, length));
            rest = (length < segment.length()).then(|| segment.after(length));
            room -= length;
            if room == 0 {
                pieces.push((offset, std::mem::take(&mut piece)));
                offset += REQUEST_BYTES;
                room = REQUEST_BYTES as u32;
            }
        }
    }
    if !piece.is_empty() {
        pieces.push((offset, piece));
    }
    pieces
}

fn shortened(segment: Segment, length: u32) -> Segment {
    match segment {
        Segment::Lent { buffer, offset, .. } => Segment::Lent { buffer, offset, length },
        other => unreachable!("direct operations use lent memory, not {other:?}"),
    }
}

pub(crate) fn floor(offset: u64, block: u64) -> u64 {
    offset / block * block
}

fn narrow(bytes: u64) -> u32 {
    u32::try_from(bytes).expect("the bytes of an operation fit 32 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 512;

    fn span(offset: u64, length: u64) -> Span {
        Span { offset, length, block: BLOCK }
    }

    #[test]
    fn contract_08_only_the_part_in_the_last_block_goes_buffered() {
        let size = 1000;
        let shape = |offset, length| Shape::of_write(span(offset, length), size);
        let parts = |offset, length| {
            let Shape { body, tail } = shape(offset, length);
            (body.map(|body| body.bytes), tail)
        };
        assert_eq!(parts(0, 512), (Some(0..512), None), "whole blocks");
        assert_eq!(parts(3, 5), (Some(3..8), None), "inside, read and written whole");
        assert_eq!(parts(0, 1024), (Some(0..1024), None), "the last block is full now");
        assert_eq!(parts(0, 600), (Some(0..512), Some(512..600)), "in the block of the end");
        assert_eq!(parts(600, 100), (None, Some(600..700)), "all of it");
        assert_eq!(parts(5, 3000), (Some(5..2560), Some(2560..3005)), "beyond the end");
        assert_eq!(parts(4096, 512), (Some(4096..4608), None));
    }

    #[test]
    fn edges_are_the_blocks_touched_in_part() {
        let edges = |start, end| {
            let Edges { head, tail } = Body::new(start..end, BLOCK).edges();
            (head, tail)
        };
        assert_eq!(edges(0, 1024), (None, None));
        assert_eq!(edges(3, 8), (Some(0..512), None));
        assert_eq!(edges(0, 8), (Some(0..512), None), "one block, its end not asked for");
        assert_eq!(edges(3, 600), (Some(0..512), Some(512..1024)));
        assert_eq!(edges(512, 1030), (None, Some(1024..1536)));
    }

    #[test]
    fn pieces_cover_the_blocks_once_and_stay_within_a_request() {
        let mib = REQUEST_BYTES;
        for (offset, length) in
            [(0, 3 * mib), (7, 100), (512, 512), (100, 2 * mib), (0, 10), (511, 2)]
        {
            let body = Body::new(offset..offset + length, BLOCK);
            let memory = Place { buffer: BufferId(1), offset, skew: 5 };
            let mut at = body.blocks.start;
            for (start, segments) in body.pieces(memory, Some(BufferId(2))) {
                assert_eq!(start, at);
                let bytes: u64 = segments.iter().map(|segment| u64::from(segment.length())).sum();
                assert!(bytes <= mib);
                for segment in &segments {
                    let Segment::Lent { buffer, offset: place, length } = *segment else {
                        unreachable!()
                    };
                    if buffer == BufferId(1) {
                        assert_eq!(u64::from(place), at - offset + 5);
                    } else {
                        assert_eq!(u64::from(length), BLOCK);
                    }
                    at += u64::from(length);
                }
            }
            assert_eq!(at, body.blocks.end);
        }
    }

    #[test]
    fn the_first_whole_block_is_where_alignment_matters() {
        assert_eq!(span(0, 512).first_whole(), Some(0));
        assert_eq!(span(100, 2000).first_whole(), Some(412));
        assert_eq!(span(100, 900).first_whole(), None);
    }
}
