//! Buffered file I/O from user space.
#![forbid(unsafe_code)]

mod error;
mod open;
mod stats;
mod passthrough;

pub use error::{Error, ErrorKind, Result};
pub use open::Open;
pub use passthrough::{Builder, Engine, File};
pub use stats::Stats;
