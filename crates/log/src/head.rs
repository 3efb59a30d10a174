//! The head of a log: where reading begins.
//!
//! Two heads alternate, so a torn one leaves the other. The newer one counts.

use crate::bytes::{Reader, put_u32, put_u64};
use crate::identity::{FileId, LogId};
use crate::point::Point;
use crate::time::Wall;
use crate::{BLOCK, HEADS, MAX_RING, MIN_RING, VERSION};

const MAGIC: &[u8; 8] = b"FbyHead\n";

/// Bytes that the checksum covers, and that end with it: less than a sector, so a head is written
/// as a whole or not at all.
const BYTES: usize = 128;

/// The head of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// Identity of the log.
    pub log: LogId,
    /// Number of this head; the newer head has the larger one.
    pub number: u64,
    /// Identity of the log's own file. A copy of the file has another one.
    pub file: FileId,
    /// Number of blocks of the ring.
    pub ring: u64,
    /// Where reading begins.
    pub start: Point,
    /// No file of this log is changed in place by its engine after this time.
    pub promise: Wall,
}

/// The reason why a block is not a head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoHead {
    /// It has no head of any version.
    Missing,
    /// It has a head of another version of the format.
    Version(u32),
    /// Its checksum or a field is wrong.
    Damaged,
}

impl Head {
    /// Returns the block of the file for this head: 0 or 1.
    #[must_use]
    pub fn slot(&self) -> u64 {
        self.number % HEADS
    }

    /// Returns the block that stores this head.
    #[must_use]
    pub fn encode(&self) -> [u8; BLOCK] {
        let mut bytes = [0; BLOCK];
        bytes[..8].copy_from_slice(MAGIC);
        put_u32(&mut bytes, 8, VERSION);
        put_u32(&mut bytes, 12, BLOCK as u32);
        bytes[16..32].copy_from_slice(&self.log.0);
        put_u64(&mut bytes, 32, self.number);
        self.file.put(&mut bytes[40..40 + FileId::BYTES]);
        put_u64(&mut bytes, 64, self.ring);
        put_u64(&mut bytes, 72, self.start.position);
        put_u64(&mut bytes, 80, self.start.sequence);
        put_u32(&mut bytes, 88, self.start.chain);
        put_u64(&mut bytes, 96, self.promise.0.cast_unsigned());
        let sum = crc32c::crc32c(&bytes[..BYTES - 4]);
        put_u32(&mut bytes, BYTES - 4, sum);
        bytes
    }

    /// Returns the head that a block stores.
    ///
    /// # Errors
    /// The reason why it stores none.
    pub fn decode(block: &[u8]) -> Result<Self, NoHead> {
        let bytes = block.get(..BYTES).ok_or(NoHead::Missing)?;
        let mut from = Reader(bytes);
        if from.bytes(8) != Some(MAGIC) {
            return Err(NoHead::Missing);
        }
        let version = from.u32().ok_or(NoHead::Damaged)?;
        let sum = u32::from_le_bytes(bytes[BYTES - 4..].try_into().expect("four bytes"));
        if sum != crc32c::crc32c(&bytes[..BYTES - 4]) {
            return Err(NoHead::Damaged);
        }
        if version != VERSION {
            return Err(NoHead::Version(version));
        }
        Self::fields(from).ok_or(NoHead::Damaged)
    }

    fn fields(mut from: Reader<'_>) -> Option<Self> {
        let block = from.u32()?;
        let log = LogId(from.id()?);
        let number = from.u64()?;
        let file = FileId::take(&mut from)?;
        let ring = from.u64()?;
        let (position, sequence, chain) = (from.u64()?, from.u64()?, from.u32()?);
        from.u32()?;
        let promise = Wall(from.u64()?.cast_signed());
        let is_possible = block as usize == BLOCK
            && (MIN_RING..=MAX_RING).contains(&ring)
            // Far from any overflow, and far beyond what a disk can be written.
            && position.max(sequence).max(number) < u64::MAX / 4;
        let start = Point { position, sequence, chain };
        is_possible.then_some(Self { log, number, file, ring, start, promise })
    }

    /// Returns the head that counts, of the two blocks of a log.
    ///
    /// # Errors
    /// If neither block has one: [`NoHead::Version`] if one of them has a head of another version.
    pub fn newest(blocks: [&[u8]; 2]) -> Result<Self, NoHead> {
        match blocks.map(Self::decode) {
            // Nothing of a log of another version is guessed, nor of two logs in one file.
            [Err(NoHead::Version(version)), _] | [_, Err(NoHead::Version(version))] => {
                Err(NoHead::Version(version))
            }
            [Ok(one), Ok(other)] if one.log != other.log || one.ring != other.ring => {
                Err(NoHead::Damaged)
            }
            [Ok(one), Ok(other)] => Ok(if one.number > other.number { one } else { other }),
            [Ok(only), Err(_)] | [Err(_), Ok(only)] => Ok(only),
            [Err(NoHead::Missing), Err(NoHead::Missing)] => Err(NoHead::Missing),
            [Err(_), Err(_)] => Err(NoHead::Damaged),
        }
    }
}
