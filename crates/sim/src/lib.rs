//! The engine in a simulated machine, where every run replays from its seed; and queueing models.
//!
//! The engine's core is compiled a second time here ([`run`] drives it), with [`platform`] in the
//! place of the real machine: tasks instead of threads, virtual time, and files and devices that
//! tear, reorder, shorten, refuse and fail, and whose power can go at any moment. Nothing here reads
//! a clock, starts a thread or opens a file.
//!
//! ```text
//! callers --File--> Engine --contexts--> Backend --> machine --flush--> durable
//!    |              (crate::core, unchanged)            |
//!    +--> ledger: accepted and synced bytes  <--compare-+
//! ```
//!
//! The tests run some thousand seeds. `FOREBAY_SIM_SEEDS=N` runs N times as many,
//! `FOREBAY_SIM_SEEDS=A..B` the seeds from A up to B, and `FOREBAY_SIM_SEED=2:S` the seed S alone,
//! with its trace if it fails.
//!
//! In order: [`random`] and [`seed`], [`world`] tasks and time, [`world::machine`] files and
//! devices, [`platform`] the names that the engine uses, [`faults`], [`stored`] a file as a device
//! has it, [`ledger`] the promises made, [`plan`] and [`run`], [`trace`] and [`marks`]. [`disk`],
//! [`arena`] and [`clock`] drive parts of the cache alone. [`request`] is the way of a request
//! alone. [`setting`], [`writeback`] and [`order`] are models, which run no code of the engine.
//!
//! Without the feature `machine` only the models are built: the program `forebay` needs no more.
#![deny(unsafe_code)]

#[cfg(feature = "machine")]
pub mod arena;
#[cfg(feature = "machine")]
pub mod clock;
// Without the unit tests of this crate: the core has its own, which need the real machine.
#[cfg(all(feature = "machine", not(test)))]
#[allow(
    dead_code,
    missing_docs,
    unexpected_cfgs,
    unreachable_pub,
    unused_imports,
    unused_qualifications,
    unsafe_code,
    reason = "the engine's own source, of which the simulation uses a part"
)]
mod core;
#[cfg(feature = "machine")]
pub mod disk;
#[cfg(feature = "machine")]
pub mod faults;
#[cfg(feature = "machine")]
pub mod ledger;
#[cfg(feature = "machine")]
pub mod marks;
pub mod order;
#[cfg(feature = "machine")]
pub mod plan;
#[cfg(feature = "machine")]
pub mod platform;
pub mod random;
#[cfg(feature = "machine")]
pub mod request;
#[cfg(all(feature = "machine", not(test)))]
pub mod run;
#[cfg(feature = "machine")]
pub mod seed;
pub mod setting;
#[cfg(feature = "machine")]
pub mod stored;
#[cfg(feature = "machine")]
pub mod trace;
#[cfg(feature = "machine")]
pub mod world;
pub mod writeback;

#[cfg(feature = "machine")]
pub use disk::Disk;
#[cfg(feature = "machine")]
pub use faults::Faults;
#[cfg(feature = "machine")]
pub use ledger::Ledger;
#[cfg(feature = "machine")]
pub use marks::Marks;
#[cfg(feature = "machine")]
pub use plan::Plan;
pub use random::{PerMille, Random};
