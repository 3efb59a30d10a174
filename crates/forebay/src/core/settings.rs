//! Values of all knobs of an engine, their defaults and their ranges.

use std::time::Duration;

use forebay_cache::file::Reserving;
use forebay_cache::limits::PAGE;
use forebay_cache::writeback::pace::Bound;
use forebay_cache::{Caching, Throttle};

use crate::core::context::placement::Affinity;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::limits::{
    CACHE_OF_MEMORY, DEFAULT_BUFFER_BYTES, DEFAULT_CACHE_BYTES, DIRTY_AGES, FLIGHT_TIME,
    MAX_BUFFER_BYTES, MAX_CACHE_BYTES, MIN_CACHE_BYTES, MIN_DIRTY_BYTES,
};
use crate::platform::{Choice, memory_limit, thread};

/// Number of writeback contexts (knob `contexts`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    /// As many as the load and the device are found to use.
    Adaptive,
    Fixed(usize),
}

/// Values of all knobs.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Memory of the cache; if unset, a share of the machine's memory.
    pub(crate) cache_bytes: Option<u64>,
    /// If unset, a share of the cache.
    pub(crate) dirty_bytes: Option<u64>,
    /// If unset, a share of `dirty_bytes`.
    pub(crate) background_bytes: Option<u64>,
    pub(crate) dirty_age: Duration,
    pub(crate) flight: Bound,
    pub(crate) reserving: Reserving,
    pub(crate) backend: Choice,
    pub(crate) buffer_bytes: u64,
    pub(crate) caching: Caching,
    pub(crate) queue: forebay_block::Knobs,
    pub(crate) contexts: Wanted,
    pub(crate) affinity: Affinity,
    pub(crate) priority: Priority,
}

/// Values of the knobs that a context uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfContext {
    /// Longest time that a page stays dirty before its writeback starts.
    pub(crate) dirty_age: Duration,
    /// Bound of the requests in flight to each file system.
    pub(crate) flight: Bound,
    /// Knobs of the queue.
    pub(crate) queue: forebay_block::Knobs,
    /// Scheduling class of the thread.
    pub(crate) priority: Priority,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            cache_bytes: None,
            dirty_bytes: None,
            background_bytes: None,
            dirty_age: Duration::from_secs(1),
            flight: Bound::Time(FLIGHT_TIME),
            reserving: Reserving::Adaptive,
            backend: Choice::Auto,
            buffer_bytes: DEFAULT_BUFFER_BYTES,
            caching: Caching::Cached,
            queue: forebay_block::Knobs::default(),
            contexts: Wanted::Adaptive,
            affinity: Affinity::default(),
            priority: Priority::default(),
        }
    }
}

impl Settings {
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
        let &Self { dirty_age, flight, queue, priority, .. } = self;
        OfContext { dirty_age, flight, queue, priority }
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

/// Scheduling class of the writeback threads (knob `context_priority`).
///
/// ```no_run
/// # fn main() -> forebay::Result<()> {
/// use forebay::policy::ContextPriority;
///
/// let engine = forebay::Engine::builder().context_priority(ContextPriority::Realtime).build()?;
/// assert_eq!(engine.get("context_priority")?, "realtime");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Priority {
    /// That of the program.
    #[default]
    Normal,
    /// The lowest real-time priority (`SCHED_FIFO`). Needs `CAP_SYS_NICE`, or `RLIMIT_RTPRIO` of at
    /// least 1.
    Realtime,
}

impl Priority {
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
        let mut settings = Settings { cache_bytes: Some(64 << 20), ..Settings::default() };
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
        let refused = |settings: Settings, name: &str| {
            let error = knobs::check(&settings).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(&format!("`{name}`")), "{error}");
        };
        let of = || Settings { cache_bytes: Some(64 << 20), ..Settings::default() };
        refused(Settings { cache_bytes: Some(1 << 20), ..of() }, "cache_bytes");
        refused(Settings { dirty_bytes: Some(57 << 20), ..of() }, "dirty_bytes");
        refused(Settings { dirty_bytes: Some(MIN_DIRTY_BYTES - 1), ..of() }, "dirty_bytes");
        refused(Settings { buffer_bytes: 0, ..of() }, "buffer_bytes");
        refused(Settings { dirty_age: Duration::ZERO, ..of() }, "dirty_age");
        refused(Settings { dirty_age: Duration::MAX, ..of() }, "dirty_age");
        refused(Settings { contexts: Wanted::Fixed(0), ..of() }, "contexts");
        refused(Settings { contexts: Wanted::Fixed(65), ..of() }, "contexts");
        refused(Settings { flight: Bound::Depth(0), ..of() }, "flight");
        refused(Settings { flight: Bound::Time(Duration::from_secs(2)), ..of() }, "flight");
        let mut slow = of();
        slow.queue.holding = Holding::Delay(Duration::from_secs(1));
        refused(slow, "completion");
    }
}
