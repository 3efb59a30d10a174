//! Each layer against a naive model, over a device whose times are known.

mod delay;
mod error;
mod limit;
mod short;
mod stats;
mod timed;
