//! Writeback from several contexts over the allocation groups of a file system, in virtual time.
//!
//! The question is the lists': of what writeback gains by having several contexts, how much is plain concurrency and
//! more in flight at the device, how much is affinity to allocation groups, and how much is layout, the work a
//! fragmented file makes? Here each can be changed alone, and the same seed gives the same run.
//!
//! ```text
//! files --window of dirty pages--> contexts --gather, allocate--> plug --merge--> device
//!   ^        bound by affinity        |  cores, groups' locks                       |
//!   +---- settle <---- workers: conversion at the end of I/O, the same cores and locks
//! ```
//!
//! What is modelled, and on what assumption:
//!
//! - **Groups.** Each has one lock, first come first served, and hands it over to whoever is first: who waited is
//!   woken and holds it while it wakes, so a lock that is fought over is slower than its work. Blocks are taken one
//!   after the other, so what is allocated together lies together, whatever its offset in the file.
//! - **Layouts** are three amounts of work. Over *written* blocks nothing is done. *Unwritten* ones are converted when
//!   the I/O has ended, under the lock. A *hole* is allocated under the lock before, and converted after.
//! - **Cores** are shared by contexts and workers, first come first served, until each has done its step. Who waits
//!   for a lock or for the device has none.
//! - **Workers** convert, one for each file, all that has ended of it, neighbours together.
//! - **The device** takes requests in order, each for the longer of one by rate and one by bandwidth, and ends each a
//!   latency after; so many are in flight at most. It writes whole units: less than one costs as much as one.
//! - **Files** are in directories, and each directory's in a group. Their writers cost nothing, and keep a window
//!   full of dirty pages each.
//!
//! What is not: the log, metadata that has to be read, a limit on the dirty pages of all files together, the page
//! cache's own locks, and free space that is in pieces. A file system where one of these decides behaves in another
//! way; `docs/measurements/writeback.md` has what was measured beside it.
//!
//! It is pure queueing, and none of the `block` and `cache` code runs here: allocation is inside the file system, which
//! they never see, and the contexts modelled are the kernel's.
//!
//! In order: [`model`] what is modelled; [`agenda`] and [`cores`] time and who works in it, [`space`] and [`lock`] the
//! groups, [`device`] the drive; [`file`] what is dirty, [`context`] who writes it, [`worker`] who converts; [`run`]
//! all of it, [`figures`] what came out, [`study`] the questions.

mod agenda;
mod context;
mod cores;
pub mod device;
pub mod figures;
mod file;
mod lock;
pub mod model;
mod run;
mod space;
pub mod study;
mod worker;

pub use device::Drive;
pub use figures::Figures;
pub use model::{Affinity, Layout, Model};

/// Works a model through. The same seed gives the same figures.
///
/// # Errors
/// What does not fit in the model, with a remedy.
///
/// # Panics
/// When the run itself is wrong: a byte is lost or written twice, a lock is two's, or something is left at the end.
pub fn simulate(model: &Model, seed: u64) -> Result<Figures, String> {
    model.check()?;
    Ok(run::Run::new(model, seed).finish())
}
