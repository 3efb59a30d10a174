//! A record: new bytes of one file.
//!
//! A record has an identity, a path as a hint, the ranges, and their bytes.

use std::ops::Range;

use crate::bytes::{Reader, put_u32, put_u64};
use crate::identity::FileId;

/// Bytes of a record before its ranges.
pub(crate) const FIXED: usize = FileId::BYTES + 16;

/// Flag of a range: the file ends with it.
const ENDS_FILE: u32 = 1;

/// Bytes of a range.
const RANGE: usize = 16;

/// Every record begins at a multiple of this many bytes.
const ALIGN: usize = 8;

/// Maximum length of a path hint in bytes, as the kernel's.
pub const MAX_PATH: usize = 4096;

/// Largest end of a file.
const MAX_END: u64 = i64::MAX as u64;

/// A range of a file and the place of its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Offset in the file.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// Place of the bytes, counted from the beginning of the batch.
    pub at: u64,
    /// Whether the file ended with the range when the record was made.
    pub ends_file: bool,
}

/// A record as it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Identity of the file.
    pub file: FileId,
    /// A path that the file once had. A hint for messages alone.
    pub path: Vec<u8>,
    /// The ranges, in the order of the record.
    pub pieces: Vec<Piece>,
}

/// Returns the bytes of a record.
#[must_use]
pub fn size(path: &[u8], ranges: &[Range<u64>]) -> usize {
    let data: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    (FIXED + ranges.len() * RANGE + path.len().min(MAX_PATH) + data as usize)
        .next_multiple_of(ALIGN)
}

/// Appends a record with zeroes as its data. Returns the place of the data.
pub(crate) fn put(
    into: &mut Vec<u8>,
    file: &FileId,
    path: &[u8],
    ranges: &[Range<u64>],
    file_size: Option<u64>,
) -> Range<usize> {
    let path = &path[..path.len().min(MAX_PATH)];
    let start = into.len();
    into.resize(start + size(path, ranges), 0);
    let record = &mut into[start..];
    file.put(&mut record[..FileId::BYTES]);
    put_u32(record, FileId::BYTES, path.len() as u32);
    put_u32(record, FileId::BYTES + 4, ranges.len() as u32);
    let mut at = FIXED;
    let mut data = 0;
    for range in ranges {
        assert!(range.start < range.end && range.end <= MAX_END, "no range of a file: {range:?}");
        put_u64(record, at, range.start);
        let length = u32::try_from(range.end - range.start).expect("a batch has fewer bytes");
        put_u32(record, at + 8, length);
        put_u32(record, at + 12, if file_size == Some(range.end) { ENDS_FILE } else { 0 });
        data += range.end - range.start;
        at += RANGE;
    }
    put_u64(record, FileId::BYTES + 8, data);
    record[at..at + path.len()].copy_from_slice(path);
    let data_start = start + at + path.len();
    data_start..data_start + data as usize
}

/// Reads a record at a place of a batch. Returns it with the place of the next one.
pub(crate) fn take(batch: &[u8], at: usize) -> Option<(Record, usize)> {
    let mut from = Reader(batch.get(at..)?);
    let whole = from.0.len();
    let file = FileId::take(&mut from)?;
    let (path, count, data) = (from.u32()? as usize, from.u32()? as usize, from.u64()?);
    if path > MAX_PATH || count == 0 || count > from.0.len() / RANGE {
        return None;
    }
    let mut pieces = Vec::with_capacity(count);
    let mut place = (at + FIXED + count * RANGE + path) as u64;
    let first = place;
    for _ in 0..count {
        let (offset, length, flags) = (from.u64()?, u64::from(from.u32()?), from.u32()?);
        if length == 0 || offset.checked_add(length)? > MAX_END || flags & !ENDS_FILE != 0 {
            return None;
        }
        pieces.push(Piece { offset, length, at: place, ends_file: flags & ENDS_FILE != 0 });
        place = place.checked_add(length)?;
    }
    let path = from.bytes(path)?.to_vec();
    if data != place - first {
        return None;
    }
    from.bytes(usize::try_from(data).ok()?)?;
    let used = (whole - from.0.len()).next_multiple_of(ALIGN);
    Some((Record { file, path, pieces }, at + used))
}
