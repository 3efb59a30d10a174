//! Buffered file I/O in user space for Linux, over io_uring.
//!
//! An [`Engine`] keeps written data in a fixed amount of memory and writes it to ordinary files in
//! large, ordered requests. It is for programs that write a lot and sync: databases, log stores,
//! backups, checkpoints. Files stay ordinary files that every program can read.
//!
//! ```
//! use forebay::{Engine, OpenOptions};
//!
//! # fn main() -> forebay::Result<()> {
//! # let directory = tempfile::tempdir_in(".").unwrap();
//! # let path = directory.path().join("a.log");
//! let engine = Engine::new()?;                     // defaults; Engine::start(options) for others
//! let log = engine.open(&path, OpenOptions::new().append(true).create(true))?;
//! let offset = log.append(b"record\n")?;             // a copy into memory
//! log.sync_data()?;                                  // durable from here on
//! log.close()?;                                      // reports the last errors
//! # assert_eq!(offset, 0);
//! # Ok(())
//! # }
//! ```
//!
//! # What is durable, and when
//!
//! | after | survives the death of this process | survives a power cut |
//! |---|---|---|
//! | a write returned | only with a [`keeper`] | no |
//! | [`File::write_out`], [`File::close`] or [`Engine::shutdown`] returned `Ok` | yes | no |
//! | [`File::sync_data`] returned `Ok` | yes | yes |
//!
//! **Without a keeper, `kill -9`, an abort or an exit without `close` loses what was not written
//! yet.** The page cache of the kernel would keep it. [`Builder::survive`] starts a keeper, a
//! second process that finishes the writing. The engine starts to write data after `dirty_age` (1
//! s) at the latest.
//!
//! A sync covers every write that returned before the sync was called, by any handle of the file.
//! The first sync of a file created by this engine also syncs its directory.
//!
//! # What others see before a sync
//!
//! - *This engine*: every handle of a file sees each write as soon as it returned. [`File::len`]
//!   counts it.
//! - *The path*: [`Engine::open`] creates the file at once, so the path exists. Its directory entry
//!   is durable after the first sync.
//! - *`stat`*: the size grows as data is written back, and is exact after a sync. It is never
//!   larger than the end of the accepted data.
//! - *Another program that opens the file*: on a file system with write leases (XFS, ext4) its
//!   `open` waits, up to a second, while the engine writes out what it holds. An open with
//!   `O_NONBLOCK` fails with `EAGAIN` instead. From then on the file is *shared*: the other program
//!   sees later writes after a sync, and the engine sees changes of the other program only in pages
//!   it does not hold.
//!
//! # What blocks
//!
//! - [`File::write_at`] and [`File::append`] copy into memory. They wait while the dirty limit is
//!   reached, or while space is allocated on a nearly full file system.
//! - [`File::read_at`] waits for the device unless the pages are in memory.
//! - All other calls that change, sync or close a file wait for the device or the file system. So
//!   do the start of an engine, [`Engine::shutdown`], every open, and all calls of a [`Batch`].
//!
//! In a task, [`File::asynchronous`] and [`Engine::asynchronous`] have the calls of a file and of a
//! running engine as futures with the same names. They are `Send` and run on any executor. A call
//! of a [`DirectFile`] only submits an operation, which can be waited for or awaited.
//!
//! A call that would wait on a thread of the engine, such as in [`Builder::on_error`], fails with
//! [`ErrorKind::WouldDeadlock`].
//!
//! # Errors
//!
//! An [`Error`] has a kind, and names the file, the cause and a remedy. [`ErrorKind`] says what the
//! caller does after a write or sync that failed. Errors that no caller waits for go to
//! [`Builder::on_error`].
//!
//! # Dropped futures, panics and forks
//!
//! - A dropped write or append has accepted a prefix of its data. A dropped sync is still made, but
//!   nobody gets its result. [`AsyncFile`] lists every call.
//! - A dropped operation of a [`DirectFile`] is still carried out, and the next sync or close of
//!   the handle reports its error.
//! - A panic of the program that unwinds drops handles and engine: dropping a [`File`] starts its
//!   writeback, and dropping the last [`Engine`] writes everything out. A program that aborts on
//!   panic loses what is not written, as with `kill -9`.
//! - A panic in [`Builder::on_error`] or in a waker is caught and logged, and the engine continues.
//!   A panic of the engine in a change of a file ends that file: its calls fail with
//!   [`ErrorKind::Poisoned`]. Any other panic of the engine stops it: every call fails with
//!   [`ErrorKind::Shutdown`]. Unwritten data is left to the keeper, or lost without one.
//! - In a child made by `fork`, every call fails with [`ErrorKind::Forked`].
//!
//! # When not to use it
//!
//! - The data fits in memory and may be lost: the page cache of the kernel is faster.
//! - Several programs write the file, or write it through `mmap`. That is detected and stays
//!   correct, but it is slow.
//! - Other programs open the file with `O_NONBLOCK` while it is open here: they get `EAGAIN` at
//!   first.
//! - Kernels before 5.15. Without io_uring (in many containers) a thread pool takes its place:
//!   [`Engine::describe`] says so.
//!
//! # Past the cache
//!
//! [`Engine::open_direct`] opens a file for reads and writes that go from the caller's buffer
//! straight to the device. [`Engine::plug`] submits several of them together.
//!
//! ```
//! use forebay::{Engine, OpenOptions};
//!
//! # fn main() -> forebay::Result<()> {
//! # let directory = tempfile::tempdir_in(".").unwrap();
//! # let path = directory.path().join("table");
//! let engine = Engine::new()?;
//! let table = engine.open_direct(&path, OpenOptions::new().read(true).write(true).create(true))?;
//! table.set_len(8192).wait()?;
//! let plug = engine.plug();
//! let write = table.write_at(engine.buffer(4096)?, 0);         // a buffer that needs no copy
//! let read = table.read_at(vec![0; 100], 4096);                // any other works, too
//! drop(plug);                                                  // submits both together
//! let (written, _buffer) = write.wait();                       // or write.await
//! let (read, bytes) = read.wait();
//! assert_eq!((written?, read?, bytes.len()), (4096, 100, 100));
//! table.sync_data().wait()?;
//! # table.close().wait()
//! # }
//! ```
//!
//! # Features
//!
//! None is on by default.
//!
//! - `bytes`: direct operations with `bytes::BytesMut`.
//! - `metrics`: the counters of an engine as OpenMetrics, from a `prometheus_client` registry or as
//!   text.
//! - `serde`: [`Options`] in configuration files.
//! - `tokio`: `AsyncRead`, `AsyncWrite` and `AsyncSeek` for [`Cursor`]. The traits work on any
//!   executor.
#![deny(unsafe_code)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("forebay needs Linux 5.15 or newer on a 64-bit processor");

// `core` is the engine, and uses the machine only through `platform`; its `mod.rs` lists the
// modules of a write. Around it: `builder` makes an engine, `adapters` has standard traits,
// `control` the control socket, `keeper` the survival of the process, `metrics` counters for a
// registry, `intent_log` the recovery of a log. `fuzzed` is for a fuzzer alone.

mod adapters;
mod builder;
mod control;
mod core;
#[cfg(any(test, fuzzing))]
pub mod fuzzed;
#[doc(hidden)]
pub mod inside;
pub mod intent_log;
pub mod keeper;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(test)]
mod panic_tests;
mod platform;

pub use crate::core::batch::Batch;
pub use crate::core::batch::batch_file::BatchFile;
pub use crate::core::batch::commit::{CommitError, Outcome};
pub use crate::core::direct::buffer::{Buffer, DirectBuffer};
pub use crate::core::direct::direct_file::DirectFile;
pub use crate::core::direct::plug::Plug;
pub use crate::core::direct::transfer::{Submitted, Transfer};
pub use crate::core::engine::Engine;
pub use crate::core::error::{Error, ErrorKind, Result};
pub use crate::core::file::File;
pub use crate::core::file::attributes::Metadata;
pub use crate::core::knobs::{Change, Knob};
pub use crate::core::open::adoption::Adopted;
pub use crate::core::open::open_options::OpenOptions;
pub use crate::core::options::{self, Options};
pub use crate::core::recovery::KeeperState;
pub use crate::core::stats::Stats;
pub use crate::core::sync::together::SyncManyError;
pub use adapters::asynchronous::{AsyncEngine, AsyncFile};
pub use adapters::cursor::Cursor;
pub use builder::Builder;
pub use control::client::Control;
pub use keeper::{Keeper, WhenLost};
pub use platform::Times;
