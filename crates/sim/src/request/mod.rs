//! The way of a request alone, over devices that do everything a device may do.
//!
//! The driver of the cache asks of its disk what a cache asks. Here a queue is asked for
//! everything: all operations, sources and classes at random, over layers at random, while knobs
//! and layers are changed in flight. What must hold is checked from outside, for each of many
//! seeds:
//!
//! ```text
//! run --bios, knobs--> Queue --> witness --> layers: delay, errors, short, limit, stats --> memory device
//!  |                               tags, order                                                  |
//!  +---- model: each bio ends once, with its own bytes; what is durable survives a loss of power +
//! ```
//!
//! [`word`] bytes that say who wrote them, [`device`] the device at the bottom, [`stack`] the
//! layers, [`witness`] what lies between them and the queue, [`model`] what was promised, [`run`]
//! one seed.

pub mod device;
pub mod model;
pub mod run;
pub mod stack;
pub mod witness;
pub mod word;

pub use run::{Features, Files, Run};
