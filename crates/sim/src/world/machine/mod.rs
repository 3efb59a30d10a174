//! The simulated machine: file systems, block devices, open files, leases, and requests in flight.
//!
//! One machine belongs to one world, and all its processes share it. It is made at the first use,
//! or by [`install`]. Tasks reach it through the types of [`platform`](crate::platform), other
//! programs through [`Program`](crate::world::others::Program), tests through the functions here.
//!
//! ```text
//! File, Backend, Program --> requests in flight --at their time--> stored files --flush--> durable
//!        |                                                            |
//!        +--> names, open files, locks, leases                        +--power cut--> survivors
//! ```
//!
//! The state is plain data: nothing in this directory blocks or switches tasks. A function that
//! lets a task continue wakes it and returns.

mod attributes;
mod calls;
mod control;
mod entries;
mod flying;
mod hang;
mod inode;
mod leases;
mod names;
mod open;
mod opened;
mod paths;
pub mod plan;
pub mod points;
mod port;
mod ports;
mod power;
mod priced;
mod prices;
mod replay;
mod requests;
mod serve;
mod state;
mod watch;

pub(crate) use calls::{call, error_of, wait_for};
pub use control::*;
pub(crate) use flying::{Work, call_bio};
pub use hang::{hang, hung_requests, resume};
pub(crate) use inode::Content;
pub use names::Node;
pub(crate) use opened::{Descriptor, Flags, Opening};
pub use plan::{Leases, MachinePlan, VolumePlan};
pub(crate) use port::DOORBELL;
pub use power::{Survivors, cut_power, survivors};
pub(crate) use priced::pay;
pub use prices::Prices;
pub use state::install;
pub(crate) use state::{Found, Last, Machine, with};
pub(crate) use watch::{LEASE, Turn, WATCH, WATCH_END};

#[cfg(test)]
mod tests;
