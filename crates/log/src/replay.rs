//! The plan of a replay: for each file the newest bytes of its records.

use std::collections::BTreeMap;

use crate::identity::FileId;
use crate::record::Piece;
use crate::scan::Found;

/// A piece of a file and the place of its bytes in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copy {
    /// Offset in the file.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// Offset of the bytes in the log's file.
    pub from: u64,
    /// Whether the file ended with these bytes when the record was made.
    pub ends_file: bool,
}

/// Bytes that a disk writes as a whole or not at all.
pub const SECTOR: u64 = 512;

impl Copy {
    /// Returns the end of the piece in the file.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset + self.length
    }

    /// Returns the number of zeroes that follow the piece in a file of this length.
    ///
    /// The file ended with the piece, inside a sector. If it is longer now, a later write that no
    /// sync covered has reached the disk. Without the zeroes the sector would be a mixture of two
    /// versions.
    #[must_use]
    pub fn zeroes_behind(&self, length: u64) -> u64 {
        let end = if self.ends_file { self.end().next_multiple_of(SECTOR) } else { 0 };
        end.min(length).saturating_sub(self.end())
    }
}

/// The records of one file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FilePlan {
    /// The file.
    pub file: FileId,
    /// Newest path hint.
    pub path: Vec<u8>,
    /// Sequence numbers of its batches and their pieces, in order.
    records: Vec<(u64, Copy)>,
}

/// The records of all files.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Replay {
    /// The files, in the order of their identities.
    pub files: Vec<FilePlan>,
}

impl Replay {
    /// Collects the records of batches by file.
    #[must_use]
    pub fn new(batches: &[Found]) -> Self {
        let mut files: BTreeMap<FileId, FilePlan> = BTreeMap::new();
        for batch in batches {
            for record in &batch.records {
                let empty =
                    || FilePlan { file: record.file, path: Vec::new(), records: Vec::new() };
                let plan = files.entry(record.file).or_insert_with(empty);
                plan.path.clone_from(&record.path);
                plan.records.extend(record.pieces.iter().map(|piece| {
                    let from = batch.offset + piece.at;
                    let Piece { offset, length, ends_file, .. } = *piece;
                    let copy = Copy { offset, length, from, ends_file };
                    (batch.sequence, copy)
                }));
            }
        }
        Self { files: files.into_values().collect() }
    }
}

impl FilePlan {
    /// Returns the newest bytes of batches from a sequence number on: pieces that do not overlap,
    /// in the order of the file.
    #[must_use]
    pub fn newest_from(&self, first: u64) -> Vec<Copy> {
        let mut newest: BTreeMap<u64, Copy> = BTreeMap::new();
        for (_, copy) in self.records.iter().filter(|(sequence, _)| *sequence >= first) {
            let end = copy.offset + copy.length;
            let before = newest.range(..copy.offset).next_back().map(|(start, _)| *start);
            let inside = newest.range(copy.offset..end).map(|(start, _)| *start);
            let overlapped: Vec<u64> = before.into_iter().chain(inside).collect();
            for start in overlapped {
                let old = newest.remove(&start).expect("the piece was just found");
                let old_end = old.offset + old.length;
                if old.offset < copy.offset {
                    let length = old.length.min(copy.offset - old.offset);
                    let ends_file = old.ends_file && length == old.length;
                    newest.insert(old.offset, Copy { length, ends_file, ..old });
                }
                if old_end > end {
                    let skipped = end.max(old.offset) - old.offset;
                    let (offset, from) = (old.offset + skipped, old.from + skipped);
                    let length = old_end - offset;
                    newest.insert(offset, Copy { offset, length, from, ..old });
                }
            }
            newest.insert(copy.offset, *copy);
        }
        newest.into_values().collect()
    }

    /// Returns the sequence number of the last batch with bytes of this file.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.records.last().map_or(0, |(sequence, _)| *sequence)
    }
}
