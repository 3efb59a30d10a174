//! The names through which the engine reaches the machine, on the simulated world.
//!
//! The crate `forebay` has a module of the same names on the real machine. Signatures are equal,
//! so that the same source compiles against both.

pub mod clock;
pub mod collections;
pub mod sync;
pub mod thread;

pub use crate::world::Gone;
