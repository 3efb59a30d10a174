//! Request queue: from the bio of a caller to the device and back.
//!
//! The crate is pure: no system call, clock, thread or `unsafe`; time is an argument. It is
//! `no_std`, so the compiler enforces that.
//!
//! A [`Queue`] holds bios in a plug, merges adjacent ones into requests, submits requests in
//! batches to a [`Device`], and ends their completions in order. [`Knobs`] select the policies,
//! [`Counters`] show what they do, and [`walk`] reports every step.
//!
//! ```text
//! Bio --submit--> plug --> merge --> Request --tag--> dispatch ==one doorbell==> device
//!                                       ^                                          |
//!                                       +---- again: short, interrupted -----+     |
//!                                                                            |     |
//! Ended <------------------ in the order reaped ------------------------- run <--reap
//! ```
#![no_std]
#![forbid(unsafe_code)]

// Modules in order of a request's life: `bio` the operation of a caller, `footprint` the range it
// touches, `crowd` whether any other may conflict with it, `fair` the share of its source, `slab`
// its storage, `plug` the hold with its neighbours, `touch` whether any are adjacent, `unplug`
// when the plug goes, `trial` whether all at once, `merge` adjacent bios into one request,
// `request` that request until it is done, `line` and `dispatch` which request goes first, `tags`
// the numbers of requests in flight, `flight` what is at the device, `device` its interface, `hold`
// the hold of completions, `queue` all of it together, with its `knobs`, `counters` and `walk`.
// `layers` are devices that wrap a device: slower, failing, short, counted, limited; `random` has
// the pseudorandom numbers of all crates.

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod bio;
pub mod counters;
mod crowd;
pub mod device;
mod dispatch;
mod fair;
mod flight;
mod footprint;
mod hashed;
mod hold;
pub mod knobs;
pub mod layers;
pub mod limits;
mod line;
mod merge;
mod plug;
pub mod queue;
pub mod random;
pub mod request;
mod slab;
mod tags;
pub mod time;
mod touch;
mod trial;
mod unplug;
pub mod walk;

pub use bio::{Bio, BufferId, Class, Errno, Frame, Operation, Segment, Segments, Source, Target};
pub use counters::{Counters, Latency};
pub use device::{Completion, Device, Refused, Tag, Wait};
pub use knobs::Knobs;
pub use queue::Queue;
pub use request::Ended;
pub use time::Moment;
pub use walk::{Asked, Step, Unwatched, Walk};
