//! Values of the typed methods of [`Builder`](crate::Builder), one type for each knob.
//!
//! ```
//! use std::time::Duration;
//! use forebay::policy::{ContextPriority, Flight};
//!
//! # fn main() -> forebay::Result<()> {
//! let engine = forebay::Engine::builder()
//!     .contexts(2)
//!     .context_priority(ContextPriority::Normal)
//!     .flight(Flight::Time(Duration::from_millis(5)))
//!     .build()?;
//! assert_eq!(engine.get("flight")?, "time=5000");
//! # Ok(())
//! # }
//! ```
//!
//! Knobs that only measure what a part of the engine is worth have no type here. [`Builder::set`]
//! takes them by name, such as `set("plug", "never")`.
//!
//! [`Builder::set`]: crate::Builder::set

use forebay_cache::file::Reserving;

/// System calls that an engine uses for I/O (knob `engine`).
///
/// ```
/// # fn main() -> forebay::Result<()> {
/// use forebay::policy::Backend;
///
/// let engine = forebay::Engine::builder().engine(Backend::Threads).build()?;
/// assert!(engine.describe().starts_with("thread pool"));
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use crate::platform::Choice as Backend;

/// How much background writeback is in flight to a device (knob `flight`).
///
/// ```
/// # fn main() -> forebay::Result<()> {
/// use forebay::policy::Flight;
///
/// let engine = forebay::Engine::builder().flight(Flight::Depth(8)).build()?;
/// assert_eq!(engine.get("flight")?, "8");
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use forebay_cache::writeback::pace::Bound as Flight;

#[doc(inline)]
pub use crate::core::settings::Priority as ContextPriority;

/// How much space is reserved ahead of data (knob `prealloc`).
///
/// Reserved space keeps a file in few extents. It is given back when the file is closed, or at the
/// next open after a crash.
///
/// ```
/// # fn main() -> forebay::Result<()> {
/// use forebay::policy::Prealloc;
///
/// let engine = forebay::Engine::builder().prealloc(Prealloc::Ahead(64 << 20)).build()?;
/// assert_eq!(engine.get("prealloc")?, "67108864");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Prealloc {
    /// Reserves nothing.
    Off,
    /// Reserves space in files that become dense.
    #[default]
    Adaptive,
    /// As `Adaptive`, and reserves this many bytes beyond the end of files that grow, at most 1 %
    /// of the free space.
    Ahead(u64),
}

impl From<Prealloc> for Reserving {
    fn from(prealloc: Prealloc) -> Self {
        match prealloc {
            Prealloc::Off => Self::Paused,
            Prealloc::Adaptive => Self::Adaptive,
            Prealloc::Ahead(bytes) => Self::Ahead(bytes),
        }
    }
}
