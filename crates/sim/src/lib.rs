//! The engine in a simulated machine, where every run replays from its seed.
//!
//! The engine's core is compiled a second time here ([`run`] drives it), with [`platform`] in the
//! place of the real machine: tasks instead of threads, virtual time, and files and devices that
//! tear, reorder, shorten, refuse and fail, and whose power can go at any moment. Nothing here
//! reads a clock, starts a thread or opens a file.
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
//! has it, [`ledger`] the promises made, [`plan`] and [`run`], [`trace`] and [`marks`].
//! [`request`] is the way of a request alone.
#![deny(unsafe_code)]

// Without the unit tests of this crate: the core has its own, which need the real machine.
#[cfg(not(test))]
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
pub mod faults;
pub mod ledger;
pub mod marks;
pub mod plan;
pub mod platform;
pub mod random;
pub mod request;
#[cfg(not(test))]
pub mod run;
pub mod seed;
pub mod stored;
pub mod trace;
pub mod world;

pub use faults::Faults;
pub use ledger::Ledger;
pub use marks::Marks;
pub use plan::Plan;
pub use random::{PerMille, Random};
