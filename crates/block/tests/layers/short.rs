//! Short: the device gets the first part of a request, the caller gets no more bytes than that, and
//! a caller that continues from there reaches every byte.

use forebay_block::layers::{Fraction, Short, Shortfalls};
use forebay_block::limits::{PAGE, SECTOR};
use forebay_block::{Bio, BufferId, Device, Errno, Frame, Operation, Segment, Segments, Tag, Wait};
use proptest::prelude::*;

use crate::timed::{Timed, bio, operation};

fn shortfalls() -> impl Strategy<Value = Shortfalls> {
    (0..=100u32, 0..=100u32, 0..50u32, 0..50u32).prop_map(
        |(read, write, interrupted, would_block)| Shortfalls {
            read: Fraction::percent(read),
            write: Fraction::percent(write),
            interrupted: Fraction::percent(interrupted),
            would_block: Fraction::percent(would_block),
        },
    )
}

/// Any bio with segments of all kinds; each byte has a place of its own.
fn asked() -> impl Strategy<Value = Bio> {
    let parts = prop::collection::vec((0..3u8, 1..3 * PAGE as u32), 1..5);
    (operation(), 0..40u64, parts).prop_map(|(operation, sector, parts)| {
        let mut segments = Segments::new();
        for (number, &(kind, length)) in parts.iter().enumerate() {
            segments.push(match kind {
                0 => Segment::Frames { first: Frame(100 * number as u32), offset: 7, length },
                1 => Segment::Lent { buffer: BufferId(number as u32), offset: 3, length },
                _ => Segment::Zeroes { length },
            });
        }
        let length = segments.iter().map(|segment| u64::from(segment.length())).sum();
        let offset = sector * SECTOR as u64 / 2;
        if operation.moves_bytes() {
            Bio { segments, ..bio(operation, offset, length) }
        } else {
            bio(operation, offset, length)
        }
    })
}

/// Returns the place of every byte of a bio.
fn places(bio: &Bio) -> Vec<(u8, u32, u32)> {
    let mut places = Vec::new();
    for &segment in &bio.segments {
        let (kind, memory, offset) = match segment {
            Segment::Frames { first, offset, .. } => (0, first.0, offset),
            Segment::Lent { buffer, offset, .. } => (1, buffer.0, offset),
            Segment::Zeroes { .. } => (2, 0, 0),
        };
        let step = if kind == 2 { 0 } else { 1 };
        places.extend((0..segment.length()).map(|at| (kind, memory, offset + step * at)));
    }
    places
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn contract_13_a_short_request_is_its_own_beginning(
        bios in prop::collection::vec(asked(), 1..30),
        shortfalls in shortfalls(),
        seed: u64,
    ) {
        let mut device = Short::new(Timed::default(), shortfalls, seed);
        for (number, bio) in bios.iter().enumerate() {
            let (tag, taken) = (Tag(number as u16), device.inner().taken.len());
            prop_assert!(device.prepare(tag, bio).is_ok());
            device.doorbell(Wait::Not).unwrap();
            let mut completions = Vec::new();
            device.reap(&mut completions);
            prop_assert_eq!(completions.len(), 1);
            prop_assert_eq!(completions[0].tag, tag);
            let reached = &device.inner().taken[taken..];
            let bytes = match completions[0].result {
                Ok(bytes) => bytes,
                Err(errno) => {
                    prop_assert!(errno == Errno::INTERRUPTED || errno == Errno::WOULD_BLOCK);
                    prop_assert!(reached.is_empty(), "an interrupted request does not reach the device");
                    continue;
                }
            };
            let asked = &reached[0].1;
            prop_assert_eq!(places(asked), &places(bio)[..asked.bytes() as usize]);
            let beginning = Bio { length: asked.length, segments: asked.segments.clone(), ..bio.clone() };
            prop_assert_eq!(asked, &beginning);
            prop_assert!(bytes <= asked.bytes());
            if !bio.operation.moves_bytes() || bytes == bio.length {
                prop_assert_eq!(asked, bio);
                continue;
            }
            prop_assert!(bytes > 0, "a short request has at least one byte");
            match bio.operation {
                Operation::Read => prop_assert!((bio.offset + bytes).is_multiple_of(SECTOR as u64)),
                Operation::Write | Operation::WriteFua => {
                    let is_whole = asked.length.is_multiple_of(PAGE as u64) || asked.length == bio.length;
                    prop_assert!(is_whole, "a direct write is of whole pages");
                }
                _ => prop_assert_eq!(bytes, asked.length),
            }
        }
    }

    #[test]
    fn continuing_reaches_the_end(
        length in 1..200_000u64, sector in 0..40u64, seed: u64,
        kind in prop::sample::select(&[Operation::Read, Operation::WriteBuffered][..]),
    ) {
        let most = Shortfalls {
            read: Fraction::ALL,
            write: Fraction::ALL,
            interrupted: Fraction::percent(30),
            would_block: Fraction::percent(30),
        };
        let mut device = Short::new(Timed::default(), most, seed);
        let (mut at, mut tag) = (0, 0);
        while at < length {
            let left = bio(kind, sector * SECTOR as u64 + at, length - at);
            prop_assert!(device.prepare(Tag(tag % 256), &left).is_ok());
            device.doorbell(Wait::Not).unwrap();
            let mut completions = Vec::new();
            device.reap(&mut completions);
            at += completions[0].result.unwrap_or(0);
            tag += 1;
        }
        let moved: u64 = device.inner().taken.iter().map(|(_, bio)| bio.length).sum();
        prop_assert_eq!((at, moved), (length, length), "each byte is transferred once");
    }
}

#[test]
fn without_shortfalls_everything_passes_whole_and_rates_can_be_changed() {
    let mut device = Short::new(Timed::default(), Shortfalls::default(), 9);
    let mut completions = Vec::new();
    for tag in 0..100 {
        if tag == 50 {
            device.set_shortfalls(Shortfalls { write: Fraction::ALL, ..Shortfalls::default() });
        }
        device.prepare(Tag(tag), &bio(Operation::Write, 0, 1 << 16)).expect("no limit");
    }
    device.doorbell(Wait::Not).unwrap();
    device.reap(&mut completions);
    let whole = completions.iter().filter(|completion| completion.result == Ok(1 << 16)).count();
    assert_eq!(whole, 50);
    assert!(completions[..50].iter().all(|completion| completion.result == Ok(1 << 16)));
}
