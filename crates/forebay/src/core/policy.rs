//! Values of the typed methods of [`Builder`](crate::Builder), one type for each knob.
//!
//! The default of each is the adaptive or fastest form. The others are kept for comparison and for
//! measurement.
//!
//! ```
//! use std::time::Duration;
//! use forebay::policy::{Affinity, Flight, Plugging};
//!
//! # fn main() -> forebay::Result<()> {
//! let engine = forebay::Engine::builder()
//!     .plug(Plugging::Always)
//!     .contexts(2)
//!     .affinity(Affinity::Directory)
//!     .flight(Flight::Time(Duration::from_millis(5)))
//!     .build()?;
//! assert_eq!(engine.get("flight")?, "time=5000");
//! # Ok(())
//! # }
//! ```

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

/// When a batch of requests goes to the device (knob `plug`).
///
/// ```
/// # fn main() -> forebay::Result<()> {
/// use forebay::policy::Plugging;
///
/// let engine = forebay::Engine::builder().plug(Plugging::Never).build()?;
/// assert_eq!(engine.get("plug")?, "never");
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use forebay_block::knobs::Plugging;

/// Whether adjacent operations become one request (knob `merge`).
///
/// ```
/// # fn main() -> forebay::Result<()> {
/// use forebay::policy::Merging;
///
/// let engine = forebay::Engine::builder().merge(Merging::Off).build()?;
/// assert_eq!(engine.get("merge")?, "off");
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use forebay_block::knobs::Merging;

/// How the tags of a batch are allocated (knob `tags`).
///
/// ```
/// # fn main() -> forebay::Result<()> {
/// use forebay::policy::Tagging;
///
/// let engine = forebay::Engine::builder().tags(Tagging::Single).build()?;
/// assert_eq!(engine.get("tags")?, "single");
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use forebay_block::knobs::Tagging;

/// How often the clock is read (knob `clock`).
///
/// ```
/// # fn main() -> forebay::Result<()> {
/// use forebay::policy::ClockReads;
///
/// let engine = forebay::Engine::builder().clock(ClockReads::Each).build()?;
/// assert_eq!(engine.get("clock")?, "each");
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use forebay_block::knobs::ClockReads;

/// How often the kernel is called to submit requests (knob `doorbell`).
///
/// ```
/// # fn main() -> forebay::Result<()> {
/// use forebay::policy::Ringing;
///
/// let engine = forebay::Engine::builder().doorbell(Ringing::Each).build()?;
/// assert_eq!(engine.get("doorbell")?, "each");
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use forebay_block::knobs::Ringing;

/// When completed requests wake their callers (knob `completion`).
///
/// ```
/// # fn main() -> forebay::Result<()> {
/// use std::time::Duration;
/// use forebay::policy::Holding;
///
/// let held = Holding::Delay(Duration::from_millis(1));
/// let engine = forebay::Engine::builder().completion(held).build()?;
/// assert_eq!(engine.get("completion")?, "delay=1000");
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use forebay_block::knobs::Holding;

/// Order of the completed requests that end together (knob `order`).
///
/// ```
/// # fn main() -> forebay::Result<()> {
/// use forebay::policy::Order;
///
/// let engine = forebay::Engine::builder().order(Order::Lifo).build()?;
/// assert_eq!(engine.get("order")?, "lifo");
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use forebay_block::knobs::Order;

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
pub use crate::core::home::Affinity;
#[doc(inline)]
pub use crate::core::priority::Priority as ContextPriority;

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
