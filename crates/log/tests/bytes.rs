//! Heads and marks as bytes, and everything that may be wrong with them.

use forebay_log::head::NoHead;
use forebay_log::{BLOCK, Batch, Counts, FileId, Head, LogId, Mark, Point, Wall, record};
use proptest::prelude::*;

fn file() -> FileId {
    FileId { inode: 12, generation: None, born: Some(Wall(1_700_000_000_123_456_789)) }
}

fn head(number: u64) -> Head {
    let start = Point { position: 40, sequence: 9, chain: 0xfeed };
    let log = LogId(*b"0123456789abcdef");
    Head { log, number, file: file(), ring: 64, start, promise: Wall(77) }
}

fn mark(counts: Counts) -> Mark {
    Mark { log: LogId([3; 16]), file: file(), counts, promise: Wall(-1) }
}

#[test]
fn the_newer_head_counts_and_a_torn_one_leaves_the_other() {
    let (one, other) = (head(4).encode(), head(5).encode());
    assert_eq!((head(4).slot(), head(5).slot()), (0, 1));
    assert_eq!(Head::newest([&one, &other]), Ok(head(5)));
    let mut torn = other;
    torn[100] ^= 1;
    assert_eq!(Head::decode(&torn), Err(NoHead::Damaged));
    assert_eq!(Head::newest([&one, &torn]), Ok(head(4)));
    assert_eq!(Head::newest([&torn, &torn]), Err(NoHead::Damaged));
    let empty = [0; BLOCK];
    assert_eq!(Head::newest([&empty, &one]), Ok(head(4)));
    assert_eq!(Head::newest([&empty, &empty]), Err(NoHead::Missing));
    assert_eq!(Head::decode(&one[..100]), Err(NoHead::Missing));
}

#[test]
fn heads_of_two_logs_are_not_chosen_from() {
    let other = Head { log: LogId([1; 16]), ..head(5) };
    assert_eq!(Head::newest([&head(4).encode(), &other.encode()]), Err(NoHead::Damaged));
    let other = Head { ring: 128, ..head(5) };
    assert_eq!(Head::newest([&head(4).encode(), &other.encode()]), Err(NoHead::Damaged));
}

#[test]
fn another_version_is_named() {
    let mut bytes = head(4).encode();
    bytes[8] = 9;
    let sum = crc32c::crc32c(&bytes[..124]);
    bytes[124..128].copy_from_slice(&sum.to_le_bytes());
    assert_eq!(Head::decode(&bytes), Err(NoHead::Version(9)));
    assert_eq!(Head::newest([&bytes, &head(5).encode()]), Err(NoHead::Version(9)));
}

#[test]
fn a_path_is_cut_to_the_length_of_a_path() {
    let path = vec![b'p'; record::MAX_PATH + 9];
    let mut batch = Batch::new();
    batch.add(&file(), &path, std::slice::from_ref(&(5..6))).fill(1);
    let at = Point { position: 0, sequence: 1, chain: 0 };
    let (bytes, _) = batch.seal(&LogId([1; 16]), &at, Wall(0));
    let header = forebay_log::batch::Header::decode(bytes).unwrap();
    let records = header.records_of(bytes).unwrap();
    assert_eq!(records[0].path.len(), record::MAX_PATH);
    assert_eq!(bytes[records[0].pieces[0].at as usize], 1);
}

#[test]
fn files_are_told_apart_by_what_both_have() {
    let known = FileId { generation: Some(1), ..file() };
    assert!(known.is_same(&file()));
    assert!(!known.is_same(&FileId { generation: Some(2), ..file() }));
    assert!(!known.is_same(&FileId { born: Some(Wall(1)), ..known }));
    assert!(!known.is_same(&FileId { inode: 13, ..known }));
    assert!(known.is_same(&FileId { born: None, ..known }));
}

proptest! {
    #[test]
    fn a_head_is_read_as_it_was_written(
        number in 0_u64..1 << 40, position in 0_u64..1 << 40, sequence in 0_u64..1 << 40,
        chain in any::<u32>(), promise in any::<i64>(), flip in 0_usize..128 * 8,
    ) {
        let start = Point { position, sequence, chain };
        let head = Head { start, promise: Wall(promise), ..head(number) };
        let mut bytes = head.encode();
        prop_assert_eq!(Head::decode(&bytes), Ok(head));
        bytes[flip / 8] ^= 1 << (flip % 8);
        prop_assert!(Head::decode(&bytes).is_err());
    }

    #[test]
    fn a_mark_is_read_as_it_was_written(
        first in any::<u64>(), is_saved in any::<bool>(), flip in 0..Mark::BYTES * 8,
    ) {
        let mark = mark(if is_saved { Counts::SavedFrom(first) } else { Counts::From(first) });
        let mut bytes = mark.encode();
        prop_assert_eq!(Mark::decode(&bytes), Some(mark));
        bytes[flip / 8] ^= 1 << (flip % 8);
        prop_assert_eq!(Mark::decode(&bytes), None);
        prop_assert_eq!(Mark::decode(&bytes[1..]), None);
    }
}

/// Returns the pieces of records of one file, the newest over the older ones.
fn newest(records: &[(std::ops::Range<u64>, u64)]) -> Vec<(u64, u64, u64)> {
    let piece = |(range, size): &(std::ops::Range<u64>, u64)| {
        let (offset, length) = (range.start, range.end - range.start);
        record::Piece { offset, length, at: 0, ends_file: *size == range.end }
    };
    let pieces = records.iter().map(piece).collect();
    let record = record::Record { file: file(), path: Vec::new(), pieces };
    let (offset, promise) = (0, Wall(0));
    let batch = forebay_log::Found { sequence: 1, offset, promise, records: vec![record] };
    let plans = forebay_log::Replay::new(&[batch]).files;
    let copies = plans[0].newest_from(0).into_iter();
    copies.map(|copy| (copy.offset, copy.end(), copy.zeroes_behind(10_000))).collect()
}

#[test]
fn only_the_sector_behind_the_end_of_a_file_is_zeroed() {
    assert_eq!(newest(&[(0..100, 100)]), [(0, 100, 412)]);
    assert_eq!(newest(&[(0..100, 200)]), [(0, 100, 0)]);
    assert_eq!(newest(&[(0..1024, 1024)]), [(0, 1024, 0)]);
    // Of a piece that is overwritten in part, the end stays the end.
    assert_eq!(newest(&[(0..100, 100), (0..50, 100)]), [(0, 50, 0), (50, 100, 412)]);
    assert_eq!(newest(&[(0..100, 100), (90..300, 300)]), [(0, 90, 0), (90, 300, 212)]);
    // It also stays the end beside a later piece.
    assert_eq!(newest(&[(0..100, 100), (4096..5000, 5000)]), [(0, 100, 412), (4096, 5000, 120)]);
}
