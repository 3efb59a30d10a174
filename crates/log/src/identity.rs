//! The identity of a file and of a log.

use crate::bytes::{Reader, put_u32, put_u64};
use crate::time::Wall;

/// Random identity of a log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LogId(pub [u8; 16]);

impl std::fmt::Display for LogId {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

/// Identity of a file on its file system. Inode numbers are reused; the generation and the birth
/// time tell the users of one number apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId {
    /// Inode number.
    pub inode: u64,
    /// Generation of the inode, if the file system reports one (`FS_IOC_GETVERSION`).
    pub generation: Option<u32>,
    /// Birth time, if the file system keeps one (`statx`).
    pub born: Option<Wall>,
}

const HAS_GENERATION: u32 = 1;
const HAS_BORN: u32 = 2;

impl FileId {
    /// Bytes of an encoded identity.
    pub const BYTES: usize = 24;

    /// Returns whether both may be one file: equal in everything that both have.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        fn agree<T: PartialEq>(one: Option<T>, other: Option<T>) -> bool {
            one.zip(other).is_none_or(|(one, other)| one == other)
        }
        self.inode == other.inode
            && agree(self.generation, other.generation)
            && agree(self.born, other.born)
    }

    pub(crate) fn put(&self, into: &mut [u8]) {
        put_u64(into, 0, self.inode);
        put_u32(into, 8, self.generation.unwrap_or(0));
        let has = |is_there, flag| if is_there { flag } else { 0 };
        let flags =
            has(self.generation.is_some(), HAS_GENERATION) | has(self.born.is_some(), HAS_BORN);
        put_u32(into, 12, flags);
        put_u64(into, 16, self.born.map_or(0, |born| born.0.cast_unsigned()));
    }

    pub(crate) fn take(from: &mut Reader<'_>) -> Option<Self> {
        let inode = from.u64()?;
        let generation = from.u32()?;
        let flags = from.u32()?;
        let born = Wall(from.u64()?.cast_signed());
        if flags & !(HAS_GENERATION | HAS_BORN) != 0 {
            return None;
        }
        Some(Self {
            inode,
            generation: (flags & HAS_GENERATION != 0).then_some(generation),
            born: (flags & HAS_BORN != 0).then_some(born),
        })
    }
}
