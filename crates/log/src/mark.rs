//! The mark of a file: the log, and its records that count. An extended attribute stores it.

use crate::bytes::{Reader, put_u32, put_u64};
use crate::identity::{FileId, LogId};
use crate::time::Wall;

const MAGIC: &[u8; 4] = b"FbyM";
const VERSION: u32 = 1;

/// Whether records of the log count for a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counts {
    /// Batches with this sequence number or a later one count.
    From(u64),
    /// Batches with this sequence number or a later one hold bytes that are newer than the file,
    /// but may not be put into it: they are saved only.
    SavedFrom(u64),
}

/// The mark of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mark {
    /// The log.
    pub log: LogId,
    /// Identity of the file: a copy of the attribute to another file does not count.
    pub file: FileId,
    /// Records that count.
    pub counts: Counts,
    /// A recovery, or an engine that cannot write its log, changes the file no later than this.
    /// [`Wall::default`] stands for no promise.
    pub promise: Wall,
}

impl Mark {
    /// Bytes of an encoded mark.
    pub const BYTES: usize = 72;

    /// Returns the value of the attribute.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(MAGIC);
        let (state, first) = match self.counts {
            Counts::From(first) => (0, first),
            Counts::SavedFrom(first) => (1, first),
        };
        bytes[4] = VERSION as u8;
        bytes[5] = state;
        bytes[8..24].copy_from_slice(&self.log.0);
        self.file.put(&mut bytes[24..48]);
        put_u64(&mut bytes, 48, first);
        put_u64(&mut bytes, 56, self.promise.0.cast_unsigned());
        let sum = crc32c::crc32c(&bytes[..Self::BYTES - 4]);
        put_u32(&mut bytes, Self::BYTES - 4, sum);
        bytes
    }

    /// Returns the mark that an attribute stores, or `None` if it stores none of this version.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let (covered, sum) = bytes.split_at(Self::BYTES - 4);
        if Reader(sum).u32()? != crc32c::crc32c(covered) {
            return None;
        }
        let mut from = Reader(covered);
        if from.bytes(4)? != MAGIC {
            return None;
        }
        let [version, state, 0, 0] = *from.bytes(4)? else { return None };
        let log = LogId(from.id()?);
        let file = FileId::take(&mut from)?;
        let (first, promise) = (from.u64()?, Wall(from.u64()?.cast_signed()));
        let counts = match state {
            0 => Counts::From(first),
            1 => Counts::SavedFrom(first),
            _ => return None,
        };
        (u32::from(version) == VERSION).then_some(Self { log, file, counts, promise })
    }
}
