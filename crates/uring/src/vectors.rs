//! The shape of a request in memory, as the kernel takes it: through a ring or by a system call.

use forebay_block::limits::REQUEST_SEGMENTS;
use forebay_block::{Bio, BufferId, Operation, Segment};

use crate::arena::{Arena, ZERO_BYTES};
use crate::lent::Lent;

/// One entry of the vector a scattered request is described by.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct IoVector(libc::iovec);

// SAFETY: the address is into an arena or into lent memory, which belong to no thread; it is only
// ever handed to the kernel.
unsafe impl Send for IoVector {}

impl IoVector {
    pub(crate) fn start(&self) -> *mut u8 {
        self.0.iov_base.cast()
    }

    /// Bytes, as far as one request carries them: the kernel cuts at 2 GiB anyway.
    pub(crate) fn length(&self) -> u32 {
        u32::try_from(self.0.iov_len).unwrap_or(1 << 31)
    }

    fn end(&self) -> *const u8 {
        self.start().wrapping_add(self.0.iov_len).cast_const()
    }
}

/// A request's shape, and the lent memory it uses. Kept from use to use, so that a request in the
/// steady state allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct Shape {
    vectors: Vec<IoVector>,
    /// Once for each segment.
    lent: Vec<BufferId>,
}

impl Shape {
    /// Describes a request's segments to the kernel. Neighbours in memory become one entry. Entries
    /// beyond the kernel's bound of 1024 are left out, so the request ends short and its rest comes
    /// as another.
    pub(crate) fn describe(&mut self, arena: &Arena, lent: &mut Lent, request: &Bio) {
        let sum: u64 = request.segments.iter().map(|segment| u64::from(segment.length())).sum();
        assert_eq!(sum, request.length, "the segments are the request's length");
        debug_assert!(self.lent.is_empty(), "counted back when the last request ended");
        self.vectors.clear();
        for &segment in &request.segments {
            let vectors = &mut self.vectors;
            let fits = match segment {
                Segment::Frames { first, offset, length } => {
                    arena.assert_holds(first, u64::from(offset) + u64::from(length));
                    // SAFETY: the bytes from the frame's start on are within the arena, as just
                    // asserted.
                    let address = unsafe { arena.address(first).add(offset as usize) };
                    append(vectors, address, length as usize)
                }
                Segment::Lent { buffer, offset, length } => {
                    let address = lent.depart(buffer, offset, length);
                    self.lent.push(buffer);
                    append(vectors, address, length as usize)
                }
                Segment::Zeroes { length } => {
                    assert!(
                        request.operation != Operation::Read,
                        "nothing can be read into zeroes"
                    );
                    append_zeroes(vectors, arena, length as usize)
                }
            };
            if !fits {
                return;
            }
        }
    }

    /// The entries.
    pub(crate) fn vectors(&self) -> &[IoVector] {
        &self.vectors
    }

    /// The request has ended: the lent memory it used is counted back.
    pub(crate) fn arrive(&mut self, lent: &mut Lent) {
        self.lent.drain(..).for_each(|buffer| lent.arrive(buffer));
    }

    /// Keeps the first `length` bytes.
    pub(crate) fn cut(&mut self, length: u64) {
        let mut left = usize::try_from(length).unwrap_or(usize::MAX);
        self.vectors.retain_mut(|vector| {
            vector.0.iov_len = vector.0.iov_len.min(left);
            left -= vector.0.iov_len;
            vector.0.iov_len > 0
        });
    }

    /// Nothing is moved.
    pub(crate) fn clear(&mut self) {
        self.vectors.clear();
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

    fn request(segments: &[Segment]) -> Bio {
        Bio {
            operation: Operation::Write,
            target: Target(0),
            offset: 0,
            length: segments.iter().map(|segment| u64::from(segment.length())).sum(),
            segments: segments.into(),
            class: Class::Waited,
            source: Source(0),
            owner: 0,
        }
    }

    fn shape(arena: &Arena, segments: &[Segment]) -> Vec<usize> {
        let mut shape = Shape::default();
        shape.describe(arena, &mut Lent::new(), &request(segments));
        shape.vectors().iter().map(|vector| vector.0.iov_len).collect()
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
    fn a_cut_shape_has_the_first_bytes() {
        let arena = Arena::new(8).unwrap();
        let page = u32::try_from(PAGE).unwrap();
        let of = |length| {
            let mut shape = Shape::default();
            let segments = [0, 2, 4].map(|first| Segment::frames(Frame(first), page));
            shape.describe(&arena, &mut Lent::new(), &request(&segments));
            shape.cut(length);
            shape.vectors().iter().map(|vector| vector.0.iov_len).collect::<Vec<_>>()
        };
        assert_eq!(of(0), []);
        assert_eq!(of(4096), [PAGE]);
        assert_eq!(of(4608), [PAGE, 512]);
        assert_eq!(of(u64::MAX), [PAGE; 3]);
    }

    #[test]
    fn too_many_pieces_end_short() {
        let arena = Arena::new(4000).unwrap();
        let segments: Vec<Segment> =
            (0..1500).map(|index| Segment::frames(Frame(index * 2), 4096)).collect();
        assert_eq!(shape(&arena, &segments).len(), REQUEST_SEGMENTS);
    }

    #[test]
    #[should_panic(expected = "beyond the arena")]
    fn an_end_beyond_32_bits_is_beyond_the_arena() {
        let segment = Segment::Frames { first: Frame(0), offset: 4095, length: u32::MAX };
        shape(&Arena::new(1).unwrap(), &[segment]);
    }

    #[test]
    #[should_panic(expected = "beyond the arena")]
    fn memory_beyond_the_arena_is_refused() {
        shape(&Arena::new(2).unwrap(), &[Segment::frames(Frame(1), 4097)]);
    }

    #[test]
    fn contract_13_lent_memory_is_in_use_until_the_request_ends() {
        let arena = Arena::new(1).unwrap();
        let (mut shape, mut lent) = (Shape::default(), Lent::new());
        let buffer = lent.lend(vec![0; 100].into());
        let part = |offset, length| Segment::Lent { buffer, offset, length };
        let request = request(&[part(0, 10), part(10, 10), part(50, 50)]);
        shape.describe(&arena, &mut lent, &request);
        let lengths: Vec<usize> = shape.vectors().iter().map(|vector| vector.0.iov_len).collect();
        assert_eq!(lengths, [20, 50]);
        let early =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| lent.take_back(buffer)));
        assert!(early.is_err());
        shape.arrive(&mut lent);
        assert_eq!(lent.take_back(buffer).length(), 100);
    }
}
