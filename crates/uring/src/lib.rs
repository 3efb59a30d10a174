//! System calls of Forebay: rings, the thread pool that replaces them, files, memory, leases,
//! probes.
//!
//! [`Backend`] is the device over real files: a [`Ring`], or [`Threads`] if io_uring is missing or
//! forbidden. [`OpenFile`] is an open file, [`Arena`] the memory of its pages, [`LeaseWatch`]
//! reports other programs that open a file. [`Null`] and [`Modelled`] are devices without files, for
//! tests and measurements.
//!
//! The `unsafe` code that the engine needs is here and in `lists`, except for one module of
//! `forebay`.

// Modules in order of a page's life. Memory: `arena`, its `layout`, `header` which page a frame
// holds, `masks` its written bytes, `records` its file; `lent`, `aligned` and `buffers` the memory
// of callers. Files: `open`, `file`, `private` past the cache, `append` at the end, `directory`
// names, `direct` alignment, `logged` files of an intent log, `lease`, `coverage` of a lease,
// `lock`, `extents`, `geometry` allocation groups, `status` attributes, `accessed` the time of
// reads, `free_space`, `mark` of reserved space, `rewrite` what a second write needs, `longest`
// sizes.
// I/O: `ring`, `setup`, `fixed` registered files, `waker`, `offer`
// features, `threads`, `backend` either of the two. Devices without files: `null`,
// `modelled`. Other processes: `fork`, `local` and `passing` sockets, `alive` whether the rings of
// a process are gone, `detached` a process that outlives its parent, `signals` that it ignores,
// `frames` writing without a ring. `fuse` the device of a mount, `fuse_ring` its requests in a
// ring. `clock`, `probe` and `mounts` the machine, `priority` of a thread.

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
compile_error!("Forebay runs on Linux 5.15 or newer, on 64-bit x86 and Arm");

mod accessed;
pub mod aligned;
pub mod alive;
mod append;
pub mod arena;
pub mod backend;
mod block_device;
pub mod buffers;
mod burst;
pub mod clock;
pub mod coverage;
pub mod detached;
pub mod direct;
pub mod directory;
mod enter;
pub mod extents;
pub mod file;
pub mod fixed;
mod fork;
pub mod frames;
pub mod free_space;
pub mod fuse;
pub mod fuse_ring;
pub mod geometry;
pub mod header;
pub mod inline;
mod job;
pub mod layout;
pub mod lease;
pub mod lent;
pub mod local;
pub mod lock;
pub mod logged;
pub mod longest;
mod mapping;
mod mark;
mod masks;
mod min_wait;
pub mod modelled;
pub mod mounts;
pub mod null;
pub mod offer;
pub mod open;
pub mod page_cache;
pub mod passing;
pub mod priority;
pub mod private;
pub mod probe;
pub mod records;
pub mod rewrite;
pub mod ring;
mod saving;
mod setup;
pub mod sharing;
pub mod signals;
mod slot;
pub mod status;
mod targets;
pub mod threads;
mod vectors;
pub mod waker;

pub use aligned::AlignedMemory;
pub use alive::{Alive, Gone};
pub use arena::{Arena, ZERO_BYTES};
pub use backend::{Backend, BackendError, Choice};
pub use buffers::{Buffers, Piece};
pub use coverage::Coverage;
pub use direct::{Alignment, Direct, Mode};
pub use directory::{Entry, EntryKind, Named, OpenDirectory, Replace};
pub use enter::Enters;
pub use extents::Extents;
pub use file::{Identity, Kind, OpenFile, free_bytes};
pub use fixed::Register;
pub use fork::Home;
pub use free_space::FreeSpace;
pub use geometry::Geometry;
pub use header::{FrameState, Header};
pub use inline::Inline;
pub use layout::ImageError;
pub use lease::LeaseWatch;
pub use lent::{Lent, Memory};
pub use lock::Lock;
pub use logged::Lasting;
pub use modelled::{Modelled, Profile};
pub use null::Null;
pub use offer::{Feature, Offer, Offers};
pub use open::{Access, Create, How, LEASE_PATIENCE, Opened, Truncate};
pub use passing::{Channel, Process};
pub use private::PrivateFile;
pub use records::{FILE_RECORDS, FileRecord, Flush};
pub use rewrite::Rewrite;
pub use ring::Ring;
pub use setup::SetupError;
pub use status::{Status, Times};
pub use threads::Threads;
pub use waker::Waker;
