//! The format of the intent log, and the plan of its replay.
//!
//! Pure: no file, clock or thread. A log is a preallocated file: two head blocks, then a ring of
//! blocks that holds batches. `docs/intent-log-format.md` describes every byte and the reasons.
//!
//! ```text
//! block 0     1      2                                            2 + ring
//!       head  head   |  free  | batch 7 | batch 8 | batch 9 | free  |
//!                             ^ start                       ^ next
//! ```
//!
//! In order: [`time`] and [`identity`] of a file, [`point`] a place in the ring, [`head`],
//! [`batch`] and [`record`], [`ring`] the space, [`mark`] of a file, [`mod@scan`] reading a log,
//! [`replay`] the newest bytes per file. `fuzzed` is for a fuzzer alone.
#![forbid(unsafe_code)]

pub mod batch;
mod bytes;
#[cfg(any(test, fuzzing))]
pub mod fuzzed;
pub mod head;
pub mod identity;
pub mod mark;
pub mod point;
pub mod record;
pub mod replay;
pub mod ring;
pub mod scan;
pub mod time;

pub use batch::Batch;
pub use head::Head;
pub use identity::{FileId, LogId};
pub use mark::{Counts, Mark};
pub use point::Point;
pub use record::{Piece, Record};
pub use replay::{FilePlan, Replay};
pub use ring::Ring;
pub use scan::{Damage, Found, ScanError, Source, scan};
pub use time::Wall;

/// Bytes of a block: the unit of heads and batches.
pub const BLOCK: usize = 4096;

/// Number of blocks before the ring.
pub const HEADS: u64 = 2;

/// Version of the format.
pub const VERSION: u32 = 1;

/// Name of the log in its directory.
pub const NAME: &str = ".forebay-log";

/// Extended attribute that holds the mark of a file.
pub const MARK_ATTRIBUTE: &str = "user.forebay.log";

/// Maximum of bytes of a batch, with its headers.
pub const MAX_BATCH: usize = 32 << 20;

/// Minimum number of blocks of a ring.
pub const MIN_RING: u64 = 16;

/// Maximum number of blocks of a ring: 64 GiB.
pub const MAX_RING: u64 = 1 << 24;

/// Maximum time that a promise may lie in the future, in nanoseconds: below the 45 s after which
/// the kernel takes a lease by force.
pub const MAX_PROMISE: i64 = 40_000_000_000;
