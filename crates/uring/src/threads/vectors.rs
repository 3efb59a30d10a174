//! The shape of a request in memory, as the system calls take it.

use forebay_block::limits::REQUEST_SEGMENTS;
use forebay_block::{Bio, Operation, Segment};

use crate::arena::{Arena, ZERO_BYTES};

/// One entry of the vector a scattered request is described by.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(super) struct IoVector(libc::iovec);

// SAFETY: the address is into an arena, whose memory belongs to no thread; it is only ever handed to the kernel.
unsafe impl Send for IoVector {}

impl IoVector {
    fn end(&self) -> *const u8 {
        self.0.iov_base.cast::<u8>().wrapping_add(self.0.iov_len).cast_const()
    }
}

/// Describes the segments to the kernel. Neighbours in memory become one entry. What does not fit the kernel's bound
/// of 1024 entries is left out, so the request ends short and its rest comes as another.
pub(super) fn describe(vectors: &mut Vec<IoVector>, arena: &Arena, request: &Bio) {
    let sum: u64 = request.segments.iter().map(|segment| u64::from(segment.length())).sum();
    assert_eq!(sum, request.length, "the segments are the request's length");
    for &segment in &request.segments {
        let fits = match segment {
            Segment::Frames { first, offset, length } => {
                arena.assert_holds(first, offset + length);
                // SAFETY: the bytes from the frame's start on are within the arena, as just asserted.
                let address = unsafe { arena.address(first).add(offset as usize) };
                append(vectors, address, length as usize)
            }
            Segment::Lent { .. } => panic!("no memory was lent"),
            Segment::Zeroes { length } => {
                assert!(request.operation != Operation::Read, "nothing can be read into zeroes");
                append_zeroes(vectors, arena, length as usize)
            }
        };
        if !fits {
            return;
        }
    }
}

fn append_zeroes(vectors: &mut Vec<IoVector>, arena: &Arena, mut length: usize) -> bool {
    while length > 0 {
        let part = length.min(ZERO_BYTES);
        if !append(vectors, arena.zero_address(), part) {
            return false;
        }
        length -= part;
    }
    true
}

fn append(vectors: &mut Vec<IoVector>, address: *const u8, length: usize) -> bool {
    if let Some(last) = vectors.last_mut()
        && last.end() == address
    {
        last.0.iov_len += length;
        return true;
    }
    if vectors.len() == REQUEST_SEGMENTS {
        return false;
    }
    vectors.push(IoVector(libc::iovec { iov_base: address.cast_mut().cast(), iov_len: length }));
    true
}

#[cfg(test)]
mod tests {
    use forebay_block::limits::PAGE;
    use forebay_block::{Class, Frame, Source, Target};

    use super::*;

    fn shape(arena: &Arena, segments: &[Segment]) -> Vec<usize> {
        let request = Bio {
            operation: Operation::Write,
            target: Target(0),
            offset: 0,
            length: segments.iter().map(|segment| u64::from(segment.length())).sum(),
            segments: segments.into(),
            class: Class::Waited,
            source: Source(0),
            owner: 0,
        };
        let mut vectors = Vec::new();
        describe(&mut vectors, arena, &request);
        vectors.iter().map(|vector| vector.0.iov_len).collect()
    }

    #[test]
    fn neighbours_join_and_zeroes_repeat() {
        let arena = Arena::new(8).unwrap();
        let page = u32::try_from(PAGE).unwrap();
        let frames = |first: u32, count: u32| Segment::frames(Frame(first), count * page);
        let zeroes = Segment::Zeroes { length: 150 << 10 };
        let lengths = shape(&arena, &[frames(1, 2), frames(3, 1), zeroes, frames(0, 1)]);
        assert_eq!(lengths, [3 * PAGE, ZERO_BYTES, ZERO_BYTES, (150 << 10) - 2 * ZERO_BYTES, PAGE]);
        let rest = Segment::Frames { first: Frame(2), offset: 96, length: 4000 };
        assert_eq!(shape(&arena, &[rest, frames(3, 1)]), [4000 + PAGE]);
    }

    #[test]
    fn too_many_pieces_end_short() {
        let arena = Arena::new(4000).unwrap();
        let segments: Vec<Segment> = (0..1500).map(|index| Segment::frames(Frame(index * 2), 4096)).collect();
        assert_eq!(shape(&arena, &segments).len(), REQUEST_SEGMENTS);
    }

    #[test]
    #[should_panic(expected = "beyond the arena")]
    fn memory_beyond_the_arena_is_refused() {
        shape(&Arena::new(2).unwrap(), &[Segment::frames(Frame(1), 4097)]);
    }
}
