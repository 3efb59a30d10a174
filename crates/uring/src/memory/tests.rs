//! Each operation by itself, then many at random against a plain model of frames and bytes.

use forebay_block::random::Random;
use forebay_block::{Class, Segments, Source};

use super::*;

const FILE: Target = Target(2);

fn bio(operation: Operation, offset: u64, segments: &[Segment]) -> Bio {
    let length = segments.iter().map(|segment| u64::from(segment.length())).sum();
    Bio {
        operation,
        target: FILE,
        offset,
        length,
        segments: segments.into(),
        class: Class::Waited,
        source: Source(0),
        owner: 0,
    }
}

fn still(operation: Operation, offset: u64, length: u64) -> Bio {
    Bio { length, segments: Segments::new(), ..bio(operation, offset, &[]) }
}

fn device(content: &[u8], bound: u64) -> (MemoryDevice, Arc<Arena>) {
    let arena = Arc::new(Arena::new(16).unwrap());
    let mut memory = MemoryDevice::new(Arc::clone(&arena), bound);
    memory.attach(FILE, content.to_vec());
    (memory, arena)
}

fn ask(memory: &mut MemoryDevice, request: &Bio) -> Result<u64, i32> {
    memory.prepare(Tag(7), request).unwrap();
    let mut done = Vec::new();
    memory.doorbell(Wait::Something(None)).unwrap();
    memory.reap(&mut done);
    assert_eq!(done.len(), 1);
    assert_eq!(done[0].tag, Tag(7));
    done[0].result.map_err(|errno| errno.0)
}

fn fill(arena: &Arena, frame: u32, byte: u8) {
    // SAFETY: the test has one thread and nothing staged.
    unsafe { arena.copy_in(Frame(frame), 0, &[byte; PAGE]) };
}

fn bytes(arena: &Arena, frame: u32) -> Vec<u8> {
    let mut bytes = vec![0; PAGE];
    // SAFETY: as above.
    unsafe { arena.copy_out(Frame(frame), 0, &mut bytes) };
    bytes
}

#[test]
fn a_read_ends_short_at_the_end_and_touches_nothing_beyond() {
    let (mut memory, arena) = device(&[b'x'; 5000], 1 << 20);
    fill(&arena, 0, b'.');
    fill(&arena, 1, b'.');
    assert_eq!(
        ask(&mut memory, &bio(Operation::Read, 0, &[Segment::frames(Frame(0), 8192)])),
        Ok(5000)
    );
    assert!(bytes(&arena, 0).iter().all(|&byte| byte == b'x'));
    let second = bytes(&arena, 1);
    assert!(
        second[..904].iter().all(|&byte| byte == b'x')
            && second[904..].iter().all(|&byte| byte == b'.')
    );
    assert_eq!(
        ask(&mut memory, &bio(Operation::Read, 5000, &[Segment::frames(Frame(0), 10)])),
        Ok(0)
    );
    assert_eq!(
        ask(&mut memory, &bio(Operation::Read, u64::MAX - 9, &[Segment::frames(Frame(0), 9)])),
        Ok(0)
    );
}

#[test]
fn every_kind_of_write_grows_the_file_and_moves_its_pieces() {
    for operation in [Operation::Write, Operation::WriteFua, Operation::WriteBuffered] {
        let (mut memory, arena) = device(b"old", 1 << 20);
        fill(&arena, 3, b'c');
        fill(&arena, 4, b'd');
        let pieces = [
            Segment::Frames { first: Frame(3), offset: 4000, length: 100 },
            Segment::Zeroes { length: 5 },
            Segment::frames(Frame(4), 7),
        ];
        assert_eq!(ask(&mut memory, &bio(operation, 10, &pieces)), Ok(112));
        let mut expected = b"old".to_vec();
        expected.resize(10, 0);
        expected.extend([[b'c'; 96].as_slice(), &[b'd'; 4], &[0; 5], &[b'd'; 7]].concat());
        assert!(memory.content(FILE) == expected, "{operation:?}");
    }
}

#[test]
fn ranges_are_emptied_without_a_change_of_size() {
    for (operation, byte) in
        [(Operation::Punch, 0), (Operation::WriteZeroes, 0), (Operation::Discard, DISCARDED)]
    {
        let (mut memory, _) = device(&[9; 100], 1 << 20);
        assert_eq!(ask(&mut memory, &still(operation, 90, 1000)), Ok(0));
        assert_eq!(ask(&mut memory, &still(operation, 200, 50)), Ok(0));
        assert_eq!(memory.content(FILE), [[9; 90].as_slice(), &[byte; 10]].concat());
    }
}

#[test]
fn lengths_are_set_and_flushes_and_allocations_change_nothing() {
    let (mut memory, _) = device(b"abcdef", 100);
    assert_eq!(ask(&mut memory, &still(Operation::SetLength, 3, 0)), Ok(0));
    assert_eq!(ask(&mut memory, &still(Operation::SetLength, 5, 0)), Ok(0));
    for operation in [Operation::FlushData, Operation::FlushAll, Operation::FlushDirectory] {
        assert_eq!(ask(&mut memory, &still(operation, 0, 0)), Ok(0));
    }
    assert_eq!(ask(&mut memory, &still(Operation::Allocate, 0, 100)), Ok(0));
    assert_eq!(ask(&mut memory, &still(Operation::Allocate, 1, 100)), Err(libc::ENOSPC));
    assert_eq!(memory.detach(FILE), b"abc\0\0");
}

#[test]
fn a_full_device_ends_short_then_says_so_and_takes_again() {
    let (mut memory, arena) = device(b"", 6000);
    fill(&arena, 0, b'a');
    fill(&arena, 1, b'b');
    let write = bio(Operation::Write, 0, &[Segment::frames(Frame(0), 8192)]);
    assert_eq!(ask(&mut memory, &write), Ok(6000));
    let more = bio(Operation::Write, 6000, &[Segment::frames(Frame(0), 1)]);
    assert_eq!(ask(&mut memory, &more), Err(libc::ENOSPC));
    assert_eq!(ask(&mut memory, &still(Operation::SetLength, 6001, 0)), Err(libc::ENOSPC));
    assert_eq!(ask(&mut memory, &write), Ok(6000), "over what is there");
    assert_eq!(ask(&mut memory, &still(Operation::SetLength, 5999, 0)), Ok(0));
    assert_eq!(
        ask(&mut memory, &bio(Operation::Write, 5999, &[Segment::frames(Frame(0), 1)])),
        Ok(1)
    );
    assert_eq!(memory.content(FILE).len(), 6000);
}

#[test]
fn nothing_happens_before_the_doorbell_and_the_order_is_kept() {
    let (mut memory, arena) = device(b"", 1 << 20);
    fill(&arena, 0, b'1');
    fill(&arena, 1, b'2');
    for frame in 0..2u16 {
        let write = bio(Operation::Write, 0, &[Segment::frames(Frame(frame.into()), 4)]);
        memory.prepare(Tag(frame), &write).unwrap();
    }
    assert_eq!(memory.content(FILE), b"");
    memory.doorbell(Wait::Not).unwrap();
    assert_eq!(memory.content(FILE), b"2222");
    let mut done = Vec::new();
    memory.reap(&mut done);
    assert_eq!(done.iter().map(|done| done.tag.0).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn random_requests_agree_with_plain_copies() {
    const BOUND: usize = 60_000;
    let (mut memory, arena) = device(b"", BOUND as u64);
    let mut random = Random::new(4);
    let mut frames = vec![0u8; 16 * PAGE];
    for frame in 0..16u8 {
        fill(&arena, frame.into(), frame + 1);
        frames[usize::from(frame) * PAGE..][..PAGE].fill(frame + 1);
    }
    let mut file: Vec<u8> = Vec::new();
    for step in 0..4000 {
        let offset = random.below(BOUND as u64 + 3000) as usize;
        let first = random.below(12) as usize;
        let skip = random.below(PAGE as u64) as usize;
        let length = 1 + random.below(3 * PAGE as u64) as usize;
        let segment = Segment::Frames {
            first: Frame(first as u32),
            offset: skip as u32,
            length: length as u32,
        };
        let place = first * PAGE + skip..first * PAGE + skip + length;
        match random.below(6) {
            0..2 => {
                let result = ask(&mut memory, &bio(Operation::Write, offset as u64, &[segment]));
                let end = (offset + length).min(BOUND);
                if end <= offset {
                    assert_eq!(result, Err(libc::ENOSPC), "step {step}");
                    continue;
                }
                assert_eq!(result, Ok((end - offset) as u64), "step {step}");
                file.resize(file.len().max(end), 0);
                file[offset..end].copy_from_slice(&frames[place][..end - offset]);
            }
            2..4 => {
                let result = ask(&mut memory, &bio(Operation::Read, offset as u64, &[segment]));
                let moved = file.len().saturating_sub(offset).min(length);
                assert_eq!(result, Ok(moved as u64), "step {step}");
                frames[place][..moved].copy_from_slice(&file[offset.min(file.len())..][..moved]);
            }
            4 => {
                assert_eq!(
                    ask(&mut memory, &still(Operation::Punch, offset as u64, length as u64)),
                    Ok(0)
                );
                let end = (offset + length).min(file.len());
                if offset < end {
                    file[offset..end].fill(0);
                }
            }
            _ => {
                let length = offset.min(BOUND);
                assert_eq!(ask(&mut memory, &still(Operation::SetLength, length as u64, 0)), Ok(0));
                file.resize(length, 0);
            }
        }
        assert!(memory.content(FILE) == file, "step {step}");
    }
    for frame in 0..16 {
        assert!(bytes(&arena, frame) == frames[frame as usize * PAGE..][..PAGE], "frame {frame}");
    }
}
