//! The request path alone, over devices that do everything a device may do.
//!
//! The driver of the cache submits only the bios that a cache submits. This run submits all
//! operations, sources and classes at random, over random layers, and changes knobs and layers in
//! flight. The contracts are checked from outside, for each of many seeds:
//!
//! ```text
//! run --bios, knobs--> Queue --> witness --> layers: delay, errors, short, ... --> memory device
//!  |                           tags, order                                             |
//!  +-- model: each bio ends once, with its own bytes; durable data survives a power loss +
//! ```
//!
//! [`word`] bytes that identify their writer, [`device`] the device at the bottom, [`stack`] the
//! layers, [`witness`] the observer between them and the queue, [`model`] the expected results,
//! [`run`] one seed.

pub mod device;
pub mod model;
pub mod run;
pub mod stack;
pub mod witness;
pub mod word;

pub use run::{Features, Files, Run};
