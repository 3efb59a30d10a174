//! Fast, predictable buffered file I/O from user space on Linux.
//!
//! An [`Engine`] keeps written data in a fixed memory budget of its own and writes it out over
//! io_uring: gathered in offset order into large direct requests, with space reserved ahead so that
//! files lie in one piece, and with syncs that go before bulk writeback. Files stay ordinary files.
//!
//! **Until a sync (or `close`) returns, written data lives in this process**: `kill -9`, an abort
//! or an exit without `close` loses it, which the kernel's page cache would not, unless a second
//! process stands by ([`keeper`]). Other programs may not see it before that either.
//!
//! ```no_run
//! use forebay::{Engine, Open};
//!
//! # fn main() -> forebay::Result<()> {
//! let engine = Engine::new()?;                       // safe defaults; Engine::builder() for the rest
//! let log = engine.open("a.log", Open::append())?;
//! let at = log.append(b"record\n")?;                 // memory speed
//! log.sync_data()?;                                  // or .sync_data_async().await
//! log.close()?;                                      // the last chance to hear an error
//! # let _ = at; Ok(())
//! # }
//! ```
//!
//! Every verb has a blocking and an asynchronous form; the futures run on any executor, and the
//! blocking form is the asynchronous one driven on the caller's thread.
//!
//! # Past the cache
//!
//! [`Engine::open_direct`] gives a [`DirectFile`], whose reads and writes go from the caller's own
//! buffer to the device, submitted from any thread and awaited or not; [`Engine::plug`] hands
//! several over together.
//!
//! ```no_run
//! use forebay::{Engine, Open};
//!
//! # fn main() -> forebay::Result<()> {
//! let engine = Engine::new()?;
//! let table = engine.open_direct("table", Open::create())?;
//! let plug = engine.plug();
//! let one = table.write_at_async(engine.buffer(4096)?, 0); // its buffer is aligned; any Vec<u8> will do
//! let other = table.read_at_async(vec![0; 100], 4096);
//! drop(plug);                                              // both reach the device together
//! let (written, buffer) = one.wait();                      // or one.await
//! let (read, bytes) = other.wait();
//! written?;
//! table.sync_data()?;
//! # let _ = (buffer, read?, bytes); Ok(())
//! # }
//! ```
//!
//! # Where a write is, in order
//! `file` the verbs, `inode` the cache of one file under its lock, `level` who may have frames,
//! `pool` where frame numbers become memory, `home` which context has it, `context` the thread
//! through which everything reaches the device, `contexts` all of them; and around them `engine`,
//! `builder`, `settings` and `knobs`, `layout`, `table` (open inodes), `volume` (room on the file
//! system), `shared`, `wait`, `control` (others' way to the knobs).
#![deny(unsafe_code)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("forebay needs Linux 5.15 or newer on a 64-bit processor");

mod adapters;
mod builder;
mod context;
mod contexts;
mod control;
mod counters;
mod direct;
mod engine;
mod entries;
mod error;
mod failing;
mod file;
mod flight;
mod home;
mod inode;
pub mod keeper;
mod knobs;
mod layout;
mod level;
mod limits;
#[cfg(feature = "metrics")]
mod metrics;
mod mutex;
mod open;
pub mod policy;
#[allow(unsafe_code, reason = "where frame numbers become memory; the cache's rules make it sound")]
mod pool;
mod settings;
mod shared;
mod slices;
mod stats;
mod table;
mod volume;
mod wait;
mod wakers;

pub use adapters::cursor::Cursor;
pub use builder::Builder;
pub use control::client::Control;
pub use direct::buffer::{Buffer, DirectBuffer};
pub use direct::file::DirectFile;
pub use direct::plug::Plug;
pub use direct::transfer::Transfer;
pub use engine::Engine;
pub use engine::adopt::Adopted;
pub use error::{Error, ErrorKind, Result};
pub use file::File;
pub use keeper::{Keeper, KeeperState, WhenLost};
pub use knobs::{Change, Knob};
pub use layout::Layout;
#[cfg(feature = "metrics")]
pub use metrics::Metrics;
pub use open::Open;
pub use stats::Stats;
