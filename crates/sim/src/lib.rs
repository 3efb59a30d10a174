//! A disk and a clock that replay, driving the code that drives the real ones.
//!
//! The block and cache crates are pure: they decide what goes to the device, when, and what its end
//! means, and touch neither clock nor thread nor file. So all of it runs here, unchanged, over a
//! simulated disk that tears, reorders, shortens, refuses and fails, whose power can go at any
//! moment, and which does the same thing again for the same seed. Nothing here reads a clock,
//! starts a thread or makes a system call.
//!
//! ```text
//! callers --begin, copy, publish, ask--> cached files --next bio--> queue --doorbell--> disk
//!    ^                                                                                    |
//!    +---- woken by what wakes them in the engine <---- settle <---- run <---- reap <-----+
//!                           the ledger: what each caller was told   <-- compared -->   what is on the disk
//! ```
//!
//! The tests run some thousand seeds. `FOREBAY_SIM_SEEDS=N` runs N times as many, and
//! `FOREBAY_SIM_SEED=S` one alone, with its trace when it fails.
//!
//! In order: [`random`] and [`clock`] what replays, [`faults`] what goes wrong, [`arena`] memory,
//! [`account`] what is said of it where the process dies, [`stored`] a file as the device has it,
//! [`disk`] the device, [`ledger`] what was promised, [`plan`] what a run is like, [`driver`] the
//! run, [`trace`] what happened, [`marks`] what was come by. Apart from these, [`request`]: the way
//! of a request alone; and models, in which nothing of ours runs: [`setting`] what can be set,
//! [`writeback`] several contexts over a file system's allocation groups, [`order`] a loop of
//! sources and a server by the order of its list.
#![deny(unsafe_code)]

pub mod account;
pub mod arena;
pub mod clock;
pub mod disk;
pub mod driver;
pub mod faults;
pub mod ledger;
mod level;
pub mod marks;
pub mod order;
pub mod plan;
pub mod platform;
pub mod random;
pub mod request;
pub mod setting;
pub mod stored;
pub mod trace;
pub mod world;
pub mod writeback;

pub use disk::Disk;
pub use driver::Driver;
pub use faults::Faults;
pub use ledger::Ledger;
pub use marks::Marks;
pub use plan::Plan;
pub use random::{PerMille, Random};
