//! The names through which the engine reaches the machine, on the simulated world.
//!
//! The crate `forebay` has a module of the same names on the real machine. Signatures are equal,
//! so that the same source compiles against both.

pub mod backend;
pub mod clock;
pub mod collections;
pub mod directory;
pub mod file;
pub mod files;
pub mod lease;
pub mod private_file;
pub mod sync;
pub mod thread;

pub use backend::{Backend, Inline, Waker};
pub use directory::OpenDirectory;
pub use file::{OpenFile, Opened};
pub use forebay_uring::frames::{MOST_PARTS, Part};
pub use forebay_uring::{
    Access, AlignedMemory, Alignment, Alive, Arena, BackendError, Buffers, Choice, Coverage,
    Create, Direct, EntryKind, Extents, FILE_RECORDS, FileRecord, Flush, FrameState, Geometry,
    Header, Home, How, Identity, Kind, Lasting, Lock, Memory, Mode, Named, Piece, Replace, Rewrite,
    Status, Times, Truncate,
};
pub use lease::LeaseWatch;
pub use private_file::PrivateFile;
pub use std::time::SystemTime as FileTime;

pub use crate::world::Gone;

/// Pages of the smallest cache. It is small so that a short run is throttled and evicts.
pub const MIN_CACHE_PAGES: u64 = 32;

/// Pages of the smallest limit of dirty pages.
pub const MIN_DIRTY_PAGES: u64 = 20;

/// Returns the length of a jiffy of the simulated kernel.
#[must_use]
pub fn jiffy() -> std::time::Duration {
    std::time::Duration::from_millis(4)
}

/// Returns 16 random bytes.
///
/// # Errors
/// None.
pub fn random_bytes() -> std::io::Result<[u8; 16]> {
    Ok(crate::world::draw(|random| {
        (u128::from(random.draw()) << 64 | u128::from(random.draw())).to_le_bytes()
    }))
}

/// Returns the memory that the engine may plan with, in bytes.
#[must_use]
pub fn memory_limit() -> u64 {
    1 << 30
}
