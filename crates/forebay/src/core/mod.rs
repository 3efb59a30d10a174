//! The engine without the machine. It uses files, rings, clocks, threads and locks only through
//! [`crate::platform`]. It is compiled twice: over the real machine, and over the simulated one
//! (`crates/sim`).

// ARCHITECTURE.md describes the layers. The modules, in the order of a write's life:
//
// - `file`: the handle. `write`: the steps of the write.
// - `inode`: the cache of one file under its lock.
// - `level`: the dirty limit and its waiters. `pool`: the memory of pages.
// - `message` and `directory`: the messages to a context. `home`: the context of a file.
// - `context`: the thread that submits to the device. `flight`: the requests in flight.
// - `failing`: pages that could not be written.
//
// The other modules:
//
// - `engine`, `settings`, `knobs`, `policy`, `stats`: the engine and its options.
// - `leader` and `kits`: syncs that their callers make themselves.
// - `read`, `bypass`, `ticket`, `room`, `discard`, `lease`, `renew`, `closing`, `adopt`, `alarm`:
//   the other operations.
// - `base` and `shared`: the state of all threads. `table`: the open inodes.
// - `evict`: eviction of clean pages. `entries`: the directory entries to sync.
// - `spread` and `contexts`: the number of contexts, which `load` and `finder` find.
// - `volume`: the free space of a file system. `share`: its part of the level.
// - `layout`: the extents of a file. `direct`: files past the cache. `batch`: new files that become
//   durable together. `together`: a sync of many files.
// - `count`: counts of several threads. `wait` and `wakers`: blocking calls. `aside`: calls that
//   may block a context. `offload`: calls that may block an executor.
// - `standby`: the keeper as the engine sees it. `user_code`: wakers and callbacks.

pub(crate) mod adopt;
mod alarm;
pub(crate) mod aside;
pub(crate) mod base;
pub(crate) mod batch;
mod bypass;
pub(crate) mod closing;
pub(crate) mod context;
pub(crate) mod contexts;
pub(crate) mod count;
pub(crate) mod counters;
pub(crate) mod direct;
pub(crate) mod directory;
pub(crate) mod discard;
pub(crate) mod ended;
pub(crate) mod engine;
pub(crate) mod entries;
pub(crate) mod error;
mod evict;
pub(crate) mod failing;
pub(crate) mod file;
mod finder;
pub(crate) mod flight;
pub(crate) mod home;
pub(crate) mod inode;
mod kits;
pub(crate) mod knobs;
pub(crate) mod layout;
mod leader;
mod lease;
pub(crate) mod level;
pub(crate) mod limits;
mod load;
pub(crate) mod message;
pub(crate) mod offload;
pub(crate) mod open;
pub mod policy;
#[allow(
    unsafe_code,
    reason = "frame numbers become memory here; the rules of the cache make it sound"
)]
pub(crate) mod pool;
pub(crate) mod priority;
pub(crate) mod read;
pub(crate) mod recovery;
mod renew;
pub(crate) mod room;
pub(crate) mod settings;
pub(crate) mod share;
pub(crate) mod shared;
pub(crate) mod slices;
mod spread;
pub(crate) mod standby;
pub(crate) mod stats;
pub(crate) mod table;
pub(crate) mod ticket;
mod together;
pub(crate) mod user_code;
pub(crate) mod volume;
pub(crate) mod wait;
pub(crate) mod wakers;
pub(crate) mod write;
