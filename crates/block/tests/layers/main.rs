//! Each layer against a naive model, over a device with known times.

mod delay;
mod error;
mod limit;
mod short;
mod stats;
mod timed;
