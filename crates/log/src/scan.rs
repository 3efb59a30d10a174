//! Reading the batches of a log.

use crate::batch::Header;
use crate::head::Head;
use crate::point::Point;
use crate::record::Record;
use crate::ring::next_lap;
use crate::time::Wall;
use crate::{BLOCK, HEADS};

/// Blocks that are read at a time while looking for later batches.
const LOOK_BLOCKS: u64 = 256;

/// The blocks of a log.
pub trait Source {
    /// Error of a read.
    type Error;

    /// Reads whole blocks of the file from block `block` on.
    ///
    /// # Errors
    /// If not all of them can be read.
    fn read(&mut self, block: u64, into: &mut [u8]) -> Result<(), Self::Error>;
}

/// A batch that counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Sequence number.
    pub sequence: u64,
    /// Offset of the batch in the file, in bytes.
    pub offset: u64,
    /// Promise of this batch.
    pub promise: Wall,
    /// Its records.
    pub records: Vec<Record>,
}

/// The batches of a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scanned {
    /// Batches that count, in order.
    pub batches: Vec<Found>,
    /// The point behind the last one.
    pub end: Point,
    /// The latest promise of head and batches.
    pub promise: Wall,
}

/// A valid batch behind the end of the log, or one that cannot be read: the log is damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Damage {
    /// The batch that was expected.
    pub expected: Point,
    /// The batch that was found.
    pub found: Point,
}

/// The reason why a log cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScanError<E> {
    /// A block could not be read.
    Read {
        /// First block of the read.
        block: u64,
        /// The error.
        error: E,
    },
    /// A record is missing before a later one.
    Damage(Damage),
}

/// Reads the batches of a log from its head on.
///
/// # Errors
/// An error of the source, or damage.
pub fn scan<S: Source>(head: &Head, source: &mut S) -> Result<Scanned, ScanError<S::Error>> {
    let mut scanned = Scanned { batches: Vec::new(), end: head.start, promise: head.promise };
    let limit = head.start.position + head.ring;
    let mut bytes = Vec::new();
    while let Some(header) = next(head, source, scanned.end, limit, &mut bytes)? {
        let found = header.at;
        let damage = ScanError::Damage(Damage { expected: scanned.end, found });
        let records = header.records_of(&bytes).ok_or(damage)?;
        let offset = (HEADS + found.position % head.ring) * BLOCK as u64;
        let (sequence, promise) = (found.sequence, header.promise);
        scanned.batches.push(Found { sequence, offset, promise, records });
        scanned.promise = scanned.promise.max(header.promise);
        scanned.end = header.next();
    }
    match later(head, source, &scanned.end)? {
        Some(found) => Err(ScanError::Damage(Damage { expected: scanned.end, found })),
        None => Ok(scanned),
    }
}

/// Returns the batch that fits at a point: there, or at the beginning of the next lap.
fn next<S: Source>(
    head: &Head,
    source: &mut S,
    at: Point,
    limit: u64,
    bytes: &mut Vec<u8>,
) -> Result<Option<Header>, ScanError<S::Error>> {
    for position in [at.position, next_lap(at.position, head.ring)] {
        let at = Point { position, ..at };
        if position >= limit {
            break;
        }
        if let Some(header) = whole(head, source, position, limit, bytes)?
            && header.at == at
        {
            return Ok(Some(header));
        }
    }
    Ok(None)
}

/// Returns the batch of this log at a position, if all of it is there.
fn whole<S: Source>(
    head: &Head,
    source: &mut S,
    position: u64,
    limit: u64,
    bytes: &mut Vec<u8>,
) -> Result<Option<Header>, ScanError<S::Error>> {
    let block = HEADS + position % head.ring;
    bytes.resize(BLOCK, 0);
    read(source, block, bytes)?;
    let Some(header) = Header::decode(bytes).filter(|header| {
        let end = position % head.ring + header.blocks();
        header.log == head.log
            && header.at.position == position
            && end <= head.ring
            && position + header.blocks() <= limit
    }) else {
        return Ok(None);
    };
    bytes.resize(header.blocks() as usize * BLOCK, 0);
    read(source, block, bytes)?;
    Ok(header.fits(bytes).then_some(header))
}

/// Looks for a batch that is not older than the one expected at the end.
fn later<S: Source>(
    head: &Head,
    source: &mut S,
    end: &Point,
) -> Result<Option<Point>, ScanError<S::Error>> {
    let mut blocks = vec![0; LOOK_BLOCKS as usize * BLOCK];
    let mut bytes = Vec::new();
    for first in (0..head.ring).step_by(LOOK_BLOCKS as usize) {
        let count = LOOK_BLOCKS.min(head.ring - first) as usize;
        let blocks = &mut blocks[..count * BLOCK];
        read(source, HEADS + first, blocks)?;
        for (block, at) in blocks.chunks_exact(BLOCK).zip(first..) {
            let Some(header) = Header::decode(block) else { continue };
            let (position, sequence) = (header.at.position, header.at.sequence);
            if header.log != head.log || sequence < end.sequence || position % head.ring != at {
                continue;
            }
            // Its place says where it is; the limit is that of its own lap.
            if whole(head, source, position, u64::MAX, &mut bytes)?.is_some() {
                return Ok(Some(header.at));
            }
        }
    }
    Ok(None)
}

fn read<S: Source>(source: &mut S, block: u64, into: &mut [u8]) -> Result<(), ScanError<S::Error>> {
    source.read(block, into).map_err(|error| ScanError::Read { block, error })
}
