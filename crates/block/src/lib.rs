//! The way of a request, from the caller's bio to the device and back. Pure: no system call, no
//! clock, no thread, no unsafe; time is an argument. Not even the standard library is linked, so
//! the compiler keeps it so.
//!
//! In order of a request's life:
//! [`bio`] what one caller asks; `footprint` what of its target it touches; `crowd` whether
//! anything on its way may be in its way; `fair` what its source has had; `slab` where it stays;
//! `plug` held a moment with its neighbours, `touch` whether it has any, `unplug` when they go,
//! `trial` whether all at once; `merge` bios that touch become one; [`request`] one or more bios
//! that touch, from planned to done; `line` and `dispatch` who goes first; `tags` no tag, no
//! flight; `flight` what is at the device; [`device`] what takes requests and ends them; `hold`
//! completions gathered a moment; [`queue`] all of it tied together, its [`knobs`] and
//! [`counters`], and [`walk`] every step of it, told to who watches. [`layers`] are devices that
//! wrap a device: slower, failing, falling short, counted, limited.
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
pub mod request;
mod slab;
mod tags;
pub mod time;
mod touch;
mod trial;
mod unplug;
pub mod walk;

pub use bio::{Bio, Buffer, Class, Errno, Frame, Operation, Segment, Segments, Source, Target};
pub use counters::{Counters, Latency};
pub use device::{Completion, Device, Refused, Tag, Wait};
pub use knobs::Knobs;
pub use queue::Queue;
pub use request::Ended;
pub use time::Moment;
pub use walk::{Asked, Step, Unwatched, Walk};
