//! A batch: records that one write makes durable together, all or none.

use std::ops::Range;

use crate::bytes::{Reader, put_u32, put_u64};
use crate::identity::{FileId, LogId};
use crate::point::Point;
use crate::record::{self, Record};
use crate::time::Wall;
use crate::{BLOCK, MAX_BATCH};

const MAGIC: &[u8; 4] = b"FbyB";

/// Bytes of the header of a batch.
pub(crate) const HEADER: usize = 64;

/// The checksum covers the bytes from here on.
const COVERED: usize = 8;

/// A batch that is being filled.
#[derive(Clone, Debug)]
pub struct Batch {
    bytes: Vec<u8>,
    records: u32,
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl Batch {
    /// Creates an empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self { bytes: vec![0; HEADER], records: 0 }
    }

    /// Removes all records, and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.resize(HEADER, 0);
        self.records = 0;
    }

    /// Returns the number of records.
    #[must_use]
    pub fn records(&self) -> u32 {
        self.records
    }

    /// Returns the number of blocks that it takes in the ring.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.bytes.len().div_ceil(BLOCK) as u64
    }

    /// Returns whether a record of this size (see [`record::size`]) still fits.
    #[must_use]
    pub fn has_room(&self, size: usize) -> bool {
        self.bytes.len() + size <= MAX_BATCH
    }

    /// Adds a record of a file. Returns its data, zeroed, for the caller to fill: the bytes of all
    /// ranges, one after the other.
    ///
    /// # Panics
    /// If there is no room for it, no range, or an empty one.
    pub fn add(&mut self, file: &FileId, path: &[u8], ranges: &[Range<u64>]) -> &mut [u8] {
        self.put(file, path, ranges, None)
    }

    /// Adds a record as [`Batch::add`], of a file of `size` bytes. A range that ends there is
    /// marked: if a later write has made the file longer, a replay zeroes the rest of its sector.
    ///
    /// # Panics
    /// As [`Batch::add`].
    pub fn add_at_end(
        &mut self,
        file: &FileId,
        path: &[u8],
        ranges: &[Range<u64>],
        size: u64,
    ) -> &mut [u8] {
        self.put(file, path, ranges, Some(size))
    }

    fn put(
        &mut self,
        file: &FileId,
        path: &[u8],
        ranges: &[Range<u64>],
        size: Option<u64>,
    ) -> &mut [u8] {
        assert!(!ranges.is_empty(), "a record without bytes");
        assert!(self.has_room(record::size(path, ranges)), "the batch is full");
        let data = record::put(&mut self.bytes, file, path, ranges, size);
        self.records += 1;
        &mut self.bytes[data]
    }

    /// Completes the batch for a place in the ring of a log. Returns its bytes, whole blocks, and
    /// the point behind it.
    pub fn seal(&mut self, log: &LogId, at: &Point, promise: Wall) -> (&[u8], Point) {
        let length = self.bytes.len();
        let bytes = &mut self.bytes;
        bytes[..4].copy_from_slice(MAGIC);
        put_u32(bytes, 8, length as u32);
        put_u32(bytes, 12, self.records);
        bytes[16..32].copy_from_slice(&log.0);
        put_u64(bytes, 32, at.sequence);
        put_u64(bytes, 40, at.position);
        put_u64(bytes, 48, promise.0.cast_unsigned());
        put_u32(bytes, 56, at.chain);
        let sum = crc32c::crc32c(&bytes[COVERED..]);
        put_u32(bytes, 4, sum);
        bytes.resize(length.next_multiple_of(BLOCK), 0);
        let next = Point {
            position: at.position + (bytes.len() / BLOCK) as u64,
            sequence: at.sequence + 1,
            chain: sum,
        };
        (&self.bytes, next)
    }
}

/// The header of a batch as it was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Checksum of the batch.
    pub sum: u32,
    /// Bytes, with the header.
    pub length: usize,
    /// Number of records.
    pub records: u32,
    /// Log that it belongs to.
    pub log: LogId,
    /// Its place, its number, and the checksum of the batch before it.
    pub at: Point,
    /// As [`Head::promise`](crate::Head::promise).
    pub promise: Wall,
}

impl Header {
    /// Returns the header at the beginning of a block, if one is there. Its checksum is not looked
    /// at.
    #[must_use]
    pub fn decode(block: &[u8]) -> Option<Self> {
        let mut from = Reader(block.get(..HEADER)?);
        if from.bytes(4)? != MAGIC {
            return None;
        }
        let (sum, length, records) = (from.u32()?, from.u32()? as usize, from.u32()?);
        let log = LogId(from.id()?);
        let (sequence, position) = (from.u64()?, from.u64()?);
        let promise = Wall(from.u64()?.cast_signed());
        let (chain, reserved) = (from.u32()?, from.u32()?);
        let is_possible = (HEADER..=MAX_BATCH).contains(&length) && reserved == 0;
        let at = Point { position, sequence, chain };
        is_possible.then_some(Self { sum, length, records, log, at, promise })
    }

    /// Returns the number of blocks of the batch.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.length.div_ceil(BLOCK) as u64
    }

    /// Returns the point behind the batch.
    #[must_use]
    pub fn next(&self) -> Point {
        Point {
            position: self.at.position + self.blocks(),
            sequence: self.at.sequence + 1,
            chain: self.sum,
        }
    }

    /// Returns whether the bytes of a batch have its checksum.
    #[must_use]
    pub fn fits(&self, batch: &[u8]) -> bool {
        batch.get(COVERED..self.length).is_some_and(|bytes| crc32c::crc32c(bytes) == self.sum)
    }

    /// Returns the records of a batch whose checksum fits, or `None` if they are not as this
    /// version of the format writes them.
    #[must_use]
    pub fn records_of(&self, batch: &[u8]) -> Option<Vec<Record>> {
        let batch = batch.get(..self.length)?;
        let mut at = HEADER;
        let mut records = Vec::new();
        for _ in 0..self.records {
            let (record, next) = record::take(batch, at)?;
            records.push(record);
            at = next;
        }
        (at == batch.len()).then_some(records)
    }
}
