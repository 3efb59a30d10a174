//! Copies between frames of an arena and the simulated device: the device's own access to memory.
//!
//! The only module of the simulated machine with `unsafe` code. A real device reads and writes
//! frames while other threads run; here a request moves its bytes in one step, between two steps of
//! the scheduler. Nothing here blocks, preempts, or keeps an address.

use forebay_block::{Frame, Segment};
use forebay_uring::Arena;

/// Copies from a frame, and on from the following frames.
fn read(arena: &Arena, first: Frame, at: usize, into: &mut [u8]) {
    // SAFETY: all tasks of a world run on this thread, and this call does not switch to another
    // one. An arena hands out no references, so no other access can be under way.
    unsafe { arena.copy_out(first, at, into) };
}

/// Copies into a frame, and on into the following frames.
fn write(arena: &Arena, first: Frame, at: usize, from: &[u8]) {
    // SAFETY: as for `read`: there is one thread, it does not switch in this call, and an arena
    // hands out no references.
    unsafe { arena.copy_in(first, at, from) };
}

/// Appends a part of a frame.
pub(crate) fn gather_part(
    arena: &Arena,
    frame: Frame,
    at: usize,
    length: usize,
    data: &mut Vec<u8>,
) {
    let start = data.len();
    data.resize(start + length, 0);
    read(arena, frame, at, &mut data[start..]);
}

/// Appends the bytes of a segment of the arena.
pub(crate) fn gather(arena: &Arena, segment: Segment, data: &mut Vec<u8>) {
    let Segment::Frames { first, offset, length } = segment else {
        panic!("not memory of the arena: {segment:?}")
    };
    gather_part(arena, first, offset as usize, length as usize, data);
}

/// Reads a part of a frame.
#[cfg(not(test))]
pub(crate) fn read_part(arena: &Arena, frame: Frame, at: usize, into: &mut [u8]) {
    assert!(at + into.len() <= forebay_block::limits::PAGE, "a part of one frame");
    read(arena, frame, at, into);
}

/// Stores bytes at the start of a segment of the arena.
pub(crate) fn scatter(arena: &Arena, segment: Segment, data: &[u8]) {
    let Segment::Frames { first, offset, length } = segment else {
        panic!("not memory of the arena: {segment:?}")
    };
    assert!(data.len() <= length as usize, "{} bytes for {segment:?}", data.len());
    write(arena, first, offset as usize, data);
}

#[cfg(test)]
mod tests {
    use forebay_block::limits::PAGE;

    use super::*;

    #[test]
    fn a_segment_spans_frames() {
        let arena = Arena::private(3).unwrap();
        let segment = Segment::Frames { first: Frame(0), offset: 4000, length: PAGE as u32 + 200 };
        let bytes: Vec<u8> = (0..PAGE + 200).map(|at| (at % 251) as u8).collect();
        scatter(&arena, segment, &bytes);
        let mut found = vec![9];
        gather(&arena, segment, &mut found);
        assert_eq!((found[0], &found[1..]), (9, &bytes[..]));
        let mut last = Vec::new();
        gather(&arena, Segment::frames(Frame(2), 104), &mut last);
        assert_eq!(last, bytes[PAGE + 96..]);
    }
}
