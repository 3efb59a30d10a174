//! The engine without the machine. It uses files, rings, clocks, threads and locks only through
//! [`crate::platform`]. It is compiled twice: over the real machine, and over the simulated one
//! (`crates/sim`).

// ARCHITECTURE.md describes the layers, and follows a byte through them.
//
// Calls on a file have one directory per verb, and the first page of each has the steps: `open`,
// `write`, `read`, `sync`, `space`, `lease`. `file` is the handle, and `engine` opens it.
//
// The state behind them:
//
// - `inode`: the cache of one file under its lock. `table`: the open inodes.
// - `context`: the threads that submit to the device, and the messages to them.
// - `shared` and, without files, `base`: the state of all threads.
// - `level`: the dirty limit and its waiters. `share`: the part of one file system.
// - `pool`: the memory of pages. `evict`: eviction of clean ones.
//
// The rest:
//
// - `options`, `knobs`: the options, typed and by name. `stats`: the numbers.
// - `direct`: files past the cache. `batch`: new files that become durable together.
// - `intent_log`: the log that makes small syncs durable, and its recovery. `logged`: the syncs of
//   the engine that go there.
// - `recovery`: the work of a keeper after the death of the program.
// - `wait`: blocking calls. `answer`: results on their way to a future.
// - `threads`: those that make calls that may block, and their end.
// - `slices`: memory of callers. `user_code`: wakers and callbacks.

pub(crate) mod answer;
pub(crate) mod base;
pub(crate) mod batch;
pub(crate) mod context;
pub(crate) mod direct;
pub(crate) mod engine;
pub(crate) mod error;
mod evict;
pub(crate) mod file;
pub(crate) mod inode;
#[allow(dead_code, reason = "the engine uses a part")]
pub(crate) mod intent_log;
pub(crate) mod knobs;
mod lease;
pub(crate) mod level;
pub(crate) mod limits;
pub(crate) mod logged;
pub(crate) mod open;
pub mod options;
#[allow(
    unsafe_code,
    reason = "frame numbers become memory here; the rules of the cache make it sound"
)]
pub(crate) mod pool;
pub(crate) mod read;
pub(crate) mod recovery;
pub(crate) mod share;
pub(crate) mod shared;
pub(crate) mod slices;
pub(crate) mod space;
pub(crate) mod stats;
pub(crate) mod sync;
pub(crate) mod table;
pub(crate) mod threads;
pub(crate) mod user_code;
pub(crate) mod wait;
pub(crate) mod write;
