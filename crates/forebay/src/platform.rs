//! The machine, as the engine's core sees it: files, rings, memory, clocks, threads and locks.
//!
//! The core (`core/`) uses the machine only through this module. It is compiled twice: here, over
//! `forebay_uring` and `std`, and in the crate `forebay-sim`, where a module with the same names
//! simulates the machine. So the shipped engine is the simulated engine. The shipped one pays
//! nothing: every name here is a re-export or an inlined function. Decision 22 explains why this is
//! a module and not a type parameter.

pub(crate) mod clock;
pub(crate) mod files;
pub(crate) mod sync;
pub(crate) mod thread;

/// Hash tables.
pub(crate) mod collections {
    pub(crate) use std::collections::{HashMap, HashSet};
}

pub(crate) use forebay_cache::limits::MIN_CACHE_PAGES;
/// Minimum of `dirty_bytes`, in pages: four large requests. The simulation has a smaller limit, so
/// that a short run reaches it.
pub(crate) const MIN_DIRTY_PAGES: u64 = 4 * forebay_cache::limits::GATHER_PAGES;

pub(crate) use forebay_uring::frames::{MOST_PARTS, Part};
pub(crate) use forebay_uring::probe::{jiffy, memory_limit};
pub(crate) use forebay_uring::{
    Access, AlignedMemory, Alignment, Alive, Arena, Backend, BackendError, Buffers, Coverage,
    Create, Direct, Extents, FILE_RECORDS, FileRecord, ForkGuard, FrameState, Geometry, Header,
    How, Identity, Inline, Kind, LeaseWatch, Lock, Memory, Named, OpenDirectory, OpenFile, Opened,
    Piece, PrivateFile, Replace, Rewrite, Truncate, Waker,
};
/// Time in an attribute of a file.
pub(crate) use std::time::SystemTime as FileTime;

pub use forebay_uring::{Choice, Times};
