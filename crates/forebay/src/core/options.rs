//! Options of an engine: their values, defaults and ranges.
//!
//! ```
//! use forebay::options::{Contexts, Flight};
//! use forebay::{Engine, Options};
//!
//! # fn main() -> forebay::Result<()> {
//! let options = Options {
//!     cache_bytes: Some(64 << 20),
//!     contexts: Contexts::Fixed(2),
//!     flight: Flight::Depth(8),
//!     ..Options::default()
//! };
//! let engine = Engine::start(options)?;
//! # drop(engine);
//! # Ok(())
//! # }
//! ```

use std::time::Duration;

use forebay_cache::Throttle;
use forebay_cache::file::Reserving;
use forebay_cache::limits::PAGE;

use crate::core::context::placement::Affinity;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::limits::{
    CACHE_OF_MEMORY, DEFAULT_BUFFER_BYTES, DEFAULT_CACHE_BYTES, DIRTY_AGES, FLIGHT_TIME,
    MAX_BUFFER_BYTES, MAX_CACHE_BYTES, MIN_CACHE_BYTES, MIN_DIRTY_BYTES, PATIENCE,
};
use crate::platform::{memory_limit, thread};

/// Options of an engine. [`Engine::start`](crate::Engine::start) takes them, and
/// [`Engine::set_options`](crate::Engine::set_options) changes most of them while the engine runs.
///
/// Each field has a name and a value as text, too, for configuration files, command lines and
/// `forebay ctl`: [`Options::set`]. With the feature `serde` they are read and written in that
/// form.
///
/// ```
/// use std::time::Duration;
/// use forebay::{Engine, Options};
///
/// # fn main() -> forebay::Result<()> {
/// let options = Options {
///     cache_bytes: Some(64 << 20),
///     dirty_age: Duration::from_millis(200),
///     ..Options::default()
/// };
/// let engine = Engine::start(options)?;
/// assert_eq!(engine.options().dirty_age, Duration::from_millis(200));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Options {
    /// Memory for cached data, in bytes. It is allocated once and never grows. At least 8 MiB;
    /// `None` is the smaller of 256 MiB and 1/16 of the memory of the machine or cgroup.
    pub cache_bytes: Option<u64>,
    /// Dirty bytes at which writers wait. At least 4 MiB, at most 7/8 of the cache. `None` is 7/8.
    pub dirty_bytes: Option<u64>,
    /// Dirty bytes at which writeback starts by itself. `None` is half of `dirty_bytes`.
    pub background_bytes: Option<u64>,
    /// Longest time that data stays dirty before its writeback starts (default: 1 s; from 1 ms to
    /// 24 h).
    pub dirty_age: Duration,
    /// Whether pages leave memory once they are written or read (default: `false`), on handles that
    /// do not choose themselves with [`OpenOptions::uncached`](crate::OpenOptions::uncached).
    pub uncached: bool,
    /// Number of writeback threads that share the files.
    pub contexts: Contexts,
    /// Scheduling class of the writeback threads.
    pub context_priority: ContextPriority,
    /// Background writeback in flight to a device (default: 2 ms of its work).
    pub flight: Flight,
    /// Space reserved ahead of data.
    pub prealloc: Prealloc,
    /// Size in bytes of the pool that [`Engine::buffer`](crate::Engine::buffer) takes from
    /// (default: 16 MiB).
    pub buffer_bytes: u64,
    /// System calls for I/O.
    pub backend: Backend,
    /// Longest wait of [`File::close`](crate::File::close), and of the drop of the engine, for the
    /// device (default: 60 s). `Duration::MAX` waits for ever.
    pub close_timeout: Duration,
    /// Knobs that only measure what a part of the engine is worth; [`Options::set`] sets them.
    #[doc(hidden)]
    pub measuring: Measuring,
}

/// Values of the knobs that only measure what a part of the engine is worth.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Measuring {
    pub(crate) queue: forebay_block::Knobs,
    pub(crate) affinity: Affinity,
}

/// Number of writeback threads that share the files.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Contexts {
    /// One, and up to 8 while each more is found to raise the rate.
    #[default]
    Adaptive,
    /// This many (1 to 64).
    Fixed(usize),
}

/// Scheduling class of the writeback threads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum ContextPriority {
    /// That of the program.
    #[default]
    Normal,
    /// The lowest real-time priority (`SCHED_FIFO`). Needs `CAP_SYS_NICE`, or `RLIMIT_RTPRIO` of at
    /// least 1.
    Realtime,
}

/// System calls that an engine uses for I/O.
#[doc(inline)]
pub use crate::platform::Choice as Backend;

/// How much background writeback is in flight to a device.
#[doc(inline)]
pub use forebay_cache::writeback::pace::Bound as Flight;

/// How much space is reserved ahead of data.
///
/// Reserved space keeps a file in few extents. It is given back when the file is closed, or at the
/// next open after a crash.
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

/// Values of the options that a context uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfContext {
    /// Longest time that a page stays dirty before its writeback starts.
    pub(crate) dirty_age: Duration,
    /// Bound of the requests in flight to each file system.
    pub(crate) flight: Flight,
    /// Knobs of the queue.
    pub(crate) queue: forebay_block::Knobs,
    /// Scheduling class of the thread.
    pub(crate) priority: ContextPriority,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cache_bytes: None,
            dirty_bytes: None,
            background_bytes: None,
            dirty_age: Duration::from_secs(1),
            uncached: false,
            contexts: Contexts::default(),
            context_priority: ContextPriority::default(),
            flight: Flight::Time(FLIGHT_TIME),
            prealloc: Prealloc::default(),
            buffer_bytes: DEFAULT_BUFFER_BYTES,
            backend: Backend::Auto,
            close_timeout: PATIENCE,
            measuring: Measuring::default(),
        }
    }
}

impl Options {
    /// Returns the bytes of memory for the cache.
    pub(crate) fn cache_bytes(&self) -> u64 {
        let default =
            || DEFAULT_CACHE_BYTES.min(memory_limit() / CACHE_OF_MEMORY).max(MIN_CACHE_BYTES);
        self.cache_bytes.unwrap_or_else(default)
    }

    /// Returns the dirty bytes at which writers wait.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes.unwrap_or_else(|| self.most_dirty_bytes())
    }

    /// Returns the dirty bytes at which writeback starts by itself.
    pub(crate) fn background_bytes(&self) -> u64 {
        self.background_bytes.unwrap_or_else(|| self.dirty_bytes() / 2)
    }

    /// Returns the maximum of dirty bytes. The rest of the cache is for pages that are replaced,
    /// filled and read.
    fn most_dirty_bytes(&self) -> u64 {
        self.cache_bytes() / PAGE * PAGE / 8 * 7
    }

    /// Returns the levels at which writeback starts and writers wait.
    pub(crate) fn throttle(&self) -> Throttle {
        Throttle::new(self.dirty_bytes() / PAGE, (self.background_bytes() / PAGE).max(1))
    }

    /// Returns the values that a context uses.
    pub(crate) fn of_context(&self) -> OfContext {
        let &Self { dirty_age, flight, context_priority: priority, .. } = self;
        OfContext { dirty_age, flight, queue: self.measuring.queue, priority }
    }

    /// Checks the sizes and times, and that they fit together. `knobs::check` checks all values.
    ///
    /// # Errors
    /// `InvalidInput` for the first value out of its range; the message names it.
    pub(crate) fn check_ranges(&self) -> Result<()> {
        range("cache_bytes", self.cache_bytes(), MIN_CACHE_BYTES, MAX_CACHE_BYTES)?;
        range("dirty_bytes", self.dirty_bytes(), MIN_DIRTY_BYTES, self.most_dirty_bytes())?;
        range("background_bytes", self.background_bytes(), 0, self.dirty_bytes())?;
        range("buffer_bytes", self.buffer_bytes, PAGE, MAX_BUFFER_BYTES)?;
        if !DIRTY_AGES.contains(&self.dirty_age) {
            let (least, most) = (DIRTY_AGES.start(), DIRTY_AGES.end());
            let allowed = format!("{least:?} to {most:?}");
            return Err(invalid("dirty_age", &format!("{:?}", self.dirty_age), &allowed));
        }
        Ok(())
    }
}

fn range(key: &str, value: u64, least: u64, most: u64) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(invalid(key, &value.to_string(), &format!("{least} to {most}")))
}

/// Returns the error for a value that a knob cannot have.
pub(crate) fn invalid(key: &str, value: &str, allowed: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("invalid value `{value}` for knob `{key}`"))
        .remedy(format!("allowed: {allowed}"))
}

impl ContextPriority {
    /// Returns the name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Realtime => "realtime",
        }
    }

    /// Checks that a thread of this process may have it.
    ///
    /// # Errors
    /// `NotPermitted` with the remedy.
    pub(crate) fn check(self) -> Result<()> {
        if self == Self::Normal {
            return Ok(());
        }
        thread::try_realtime().map_err(|error| {
            let what = "cannot set context_priority to realtime";
            Error::new(ErrorKind::NotPermitted, what)
                .because(error)
                .remedy("raise RLIMIT_RTPRIO to 1 (`ulimit -r 1`) or grant CAP_SYS_NICE")
        })
    }

    /// Gives it to the calling thread. A failure is logged: the thread goes on as it is.
    pub(crate) fn apply(self) {
        if let Err(error) = thread::set_realtime(self == Self::Realtime) {
            tracing::warn!(%error, priority = self.name(), "could not set a context's priority");
        }
    }
}

#[cfg(test)]
mod tests {
    use forebay_block::knobs::Holding;

    use super::*;
    use crate::core::knobs;

    #[test]
    fn unset_values_follow_from_set_ones() {
        let mut settings = Options { cache_bytes: Some(64 << 20), ..Options::default() };
        assert_eq!((settings.dirty_bytes(), settings.background_bytes()), (56 << 20, 28 << 20));
        settings.dirty_bytes = Some(16 << 20);
        assert_eq!(settings.background_bytes(), 8 << 20);
        knobs::check(&settings).unwrap();
        settings.background_bytes = Some(17 << 20);
        let error = knobs::check(&settings).unwrap_err().to_string();
        assert!(error.contains("background_bytes") && error.contains("0 to 16777216"), "{error}");
    }

    #[test]
    fn values_out_of_range_are_refused_by_name() {
        let refused = |settings: Options, name: &str| {
            let error = knobs::check(&settings).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(&format!("`{name}`")), "{error}");
        };
        let of = || Options { cache_bytes: Some(64 << 20), ..Options::default() };
        refused(Options { cache_bytes: Some(1 << 20), ..of() }, "cache_bytes");
        refused(Options { dirty_bytes: Some(57 << 20), ..of() }, "dirty_bytes");
        refused(Options { dirty_bytes: Some(MIN_DIRTY_BYTES - 1), ..of() }, "dirty_bytes");
        refused(Options { buffer_bytes: 0, ..of() }, "buffer_bytes");
        refused(Options { dirty_age: Duration::ZERO, ..of() }, "dirty_age");
        refused(Options { dirty_age: Duration::MAX, ..of() }, "dirty_age");
        refused(Options { contexts: Contexts::Fixed(0), ..of() }, "contexts");
        refused(Options { contexts: Contexts::Fixed(65), ..of() }, "contexts");
        refused(Options { flight: Flight::Depth(0), ..of() }, "flight");
        refused(Options { flight: Flight::Time(Duration::from_secs(2)), ..of() }, "flight");
        let mut slow = of();
        slow.measuring.queue.holding = Holding::Delay(Duration::from_secs(1));
        refused(slow, "completion");
    }
}
