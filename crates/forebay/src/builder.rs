//! An engine's knobs, their ranges, and their names on a command line.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use forebay_cache::file::Reserving;
use forebay_cache::limits::PAGE;
use forebay_cache::writeback::pace::Bound;
use forebay_cache::{Caching, Throttle};
use forebay_lists::fifo::fifo;
use forebay_uring::{Arena, Backend, BackendError, Buffers, Choice, ForkGuard, probe};

use crate::context::{Knobs, Sender, Writeback};
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::flight;
use crate::level::Level;
use crate::limits::{
    CACHE_OF_MEMORY, DEFAULT_BUFFER_BYTES, DEFAULT_CACHE_BYTES, FLIGHT_TIME, MAX_BUFFER_BYTES,
    MAX_CACHE_BYTES, MIN_CACHE_BYTES, MIN_DIRTY_AGE, PATIENCE, RING_ENTRIES,
};
use crate::pool::Pool;
use crate::shared::{OnError, Parts, Shared};
use crate::wait;

/// Makes an engine. Values are checked by [`Builder::build`].
pub struct Builder {
    cache_bytes: Option<u64>,
    dirty_bytes: Option<u64>,
    background_bytes: Option<u64>,
    dirty_age: Duration,
    flight: Bound,
    reserving: Reserving,
    backend: Choice,
    patience: Duration,
    buffer_bytes: u64,
    caching: Caching,
    queue: forebay_block::Knobs,
    on_error: OnError,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Builder")
            .field("cache_bytes", &self.cache_bytes)
            .field("dirty_bytes", &self.dirty_bytes)
            .field("dirty_age", &self.dirty_age)
            .field("flight", &self.flight)
            .field("backend", &self.backend)
            .finish_non_exhaustive()
    }
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            cache_bytes: None,
            dirty_bytes: None,
            background_bytes: None,
            dirty_age: Duration::from_secs(1),
            flight: Bound::Time(FLIGHT_TIME),
            reserving: Reserving::Adaptive,
            backend: Choice::Auto,
            patience: PATIENCE,
            buffer_bytes: DEFAULT_BUFFER_BYTES,
            caching: Caching::Cached,
            queue: forebay_block::Knobs::default(),
            on_error: Box::new(|error| tracing::error!(%error, "an error nobody waited for")),
        }
    }
}

impl Builder {
    /// Bytes of memory for data: one fixed arena. Unless told, 256 MiB or a sixteenth of memory (or of the cgroup's
    /// limit), whichever is less; at least 8 MiB.
    #[must_use]
    pub fn cache_bytes(mut self, bytes: u64) -> Self {
        self.cache_bytes = Some(bytes);
        self
    }

    /// Bytes that may be dirty before writers wait; seven eighths of the cache unless told.
    #[must_use]
    pub fn dirty_bytes(mut self, bytes: u64) -> Self {
        self.dirty_bytes = Some(bytes);
        self
    }

    /// Bytes dirty from which writeback starts by itself; half of `dirty_bytes` unless told.
    #[must_use]
    pub fn background_bytes(mut self, bytes: u64) -> Self {
        self.background_bytes = Some(bytes);
        self
    }

    /// How long a page may be dirty before it is written out; one second unless told.
    #[must_use]
    pub fn dirty_age(mut self, age: Duration) -> Self {
        self.dirty_age = age;
        self
    }

    /// Bytes of the pool that [`Engine::buffer`] takes from; 16 MiB unless told.
    #[must_use]
    pub fn buffer_bytes(mut self, bytes: u64) -> Self {
        self.buffer_bytes = bytes;
        self
    }

    /// Whether pages go when they were written, or read, on handles that do not say otherwise
    /// ([`Open::uncached`](crate::Open::uncached)); not unless told.
    #[must_use]
    pub fn uncached(mut self, uncached: bool) -> Self {
        self.caching = if uncached { Caching::Uncached } else { Caching::Cached };
        self
    }

    /// How long `close` and a dropped engine wait for the device; 60 s unless told.
    #[must_use]
    pub fn close_timeout(mut self, timeout: Duration) -> Self {
        self.patience = timeout;
        self
    }

    /// Whom to tell of errors that no caller waits for. It is called on the engine's own thread, and must not wait
    /// for the engine; once that thread has ended, by whoever drops the handle. Unless told, they are logged.
    #[must_use]
    pub fn on_error(mut self, told: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        self.on_error = Box::new(told);
        self
    }

    /// Any knob by its name, as a command line gives it: `cache_bytes`, `dirty_bytes`, `background_bytes` (bytes, or
    /// with k, m, g), `dirty_age` (us, ms, s), `flight` (how much writeback has in flight: `time=MICROSECONDS` of each
    /// device's work, or a depth), `prealloc` (`off`, `adaptive`), `buffer_bytes`, `uncached` (`off`, `on`),
    /// `engine` (`auto`, `io_uring`, `threads`: by which system calls; `auto` takes a thread pool only where io_uring is
    /// missing or forbidden); and those of [`Engine::set`].
    ///
    /// # Errors
    /// `InvalidInput` for an unknown key or a value that cannot be read; the message names what there is.
    pub fn set(mut self, key: &str, value: &str) -> Result<Self> {
        match key {
            "cache_bytes" => self.cache_bytes = Some(bytes(key, value)?),
            "dirty_bytes" => self.dirty_bytes = Some(bytes(key, value)?),
            "background_bytes" => self.background_bytes = Some(bytes(key, value)?),
            "dirty_age" => self.dirty_age = age(key, value)?,
            "flight" => {
                self.flight = flight::bound(value).ok_or_else(|| invalid(key, value, flight::CHOICES))?;
            }
            "prealloc" => {
                self.reserving = match value {
                    "off" => Reserving::Off,
                    "adaptive" => Reserving::Adaptive,
                    _ => return Err(invalid(key, value, "`off` or `adaptive`")),
                };
            }
            "engine" => {
                self.backend = Choice::by_name(value).ok_or_else(|| invalid(key, value, Choice::CHOICES))?;
            }
            "buffer_bytes" => self.buffer_bytes = bytes(key, value)?,
            "uncached" => self.caching = caching(key, value)?,
            _ => set_queue(&mut self.queue, key, value, &KEYS)?,
        }
        Ok(self)
    }

    /// Makes the engine: its memory, its ring (or a thread pool in its place), its thread.
    ///
    /// # Errors
    /// `InvalidInput` for a value out of range; `Unsupported` where io_uring was asked for and is not to be had, or
    /// has no memory; `Io` where the system gives no memory or thread.
    pub fn build(self) -> Result<Engine> {
        if wait::is_ours() {
            return Err(Error::new(
                ErrorKind::WouldDeadlock,
                "an engine cannot be made by an engine's thread",
            ));
        }
        let throttle = self.throttle()?;
        if self.dirty_age < MIN_DIRTY_AGE {
            return Err(invalid("dirty_age", &format!("{:?}", self.dirty_age), "1 ms or more"));
        }
        let failed = |what: &'static str| move |error| Error::new(ErrorKind::Io, what).because(error);
        let arena = Arena::new((self.cache()? / PAGE) as u32).map_err(failed("no memory for the cache"))?;
        let arena = Arc::new(arena);
        let backend = Backend::chosen(self.backend, Arc::clone(&arena), RING_ENTRIES).map_err(no_backend)?;
        let description = backend.describe();
        let (messages, receiver) = fifo();
        let sender = Sender::new(messages, backend.waker());
        let buffer_bytes = range("buffer_bytes", self.buffer_bytes, PAGE, MAX_BUFFER_BYTES)? as usize;
        let buffers = Buffers::new(buffer_bytes).map_err(failed("no memory for buffers"))?;
        let fork = ForkGuard::new().map_err(failed("no page for the fork guard"))?;
        let parts =
            Parts { buffers, knobs: self.queue, on_error: self.on_error, fork, caching: self.caching };
        let shared = Shared::new(Pool::new(arena), Level::new(throttle), sender, parts);
        let shared = Arc::new(shared);
        let knobs = Knobs { dirty_age: self.dirty_age, flight: self.flight, queue: self.queue };
        let context = Writeback::new(Arc::clone(&shared), receiver, backend, knobs);
        let orphans = Arc::clone(&shared);
        let (ended, has_ended) = mpsc::channel::<()>();
        let run = move || {
            wait::mark_as_ours();
            // A bug of ours must not leave callers waiting for ever; the panic itself has been reported.
            let run = std::panic::AssertUnwindSafe(|| context.run());
            let _ = std::panic::catch_unwind(run);
            orphans.orphan();
            // Tells by being dropped that the thread is done.
            drop(ended);
        };
        let thread = thread::Builder::new().name("forebay-writeback".into()).spawn(run);
        drop(thread.map_err(failed("could not start the writeback thread"))?);
        Engine::start(shared, has_ended, description, self.reserving, self.patience)
    }

    fn cache(&self) -> Result<u64> {
        let default =
            || DEFAULT_CACHE_BYTES.min(probe::memory_limit() / CACHE_OF_MEMORY).max(MIN_CACHE_BYTES);
        let bytes =
            range("cache_bytes", self.cache_bytes.unwrap_or_else(default), MIN_CACHE_BYTES, MAX_CACHE_BYTES)?;
        Ok(bytes / PAGE * PAGE)
    }

    fn throttle(&self) -> Result<Throttle> {
        let cache = self.cache()?;
        let limit = range("dirty_bytes", self.dirty_bytes.unwrap_or(cache / 8 * 7), 4 << 20, cache / 8 * 7)?;
        let background = range("background_bytes", self.background_bytes.unwrap_or(limit / 2), 0, limit)?;
        Ok(Throttle::new(limit / PAGE, (background / PAGE).max(1)))
    }
}

const KEYS: [&str; 9] = [
    "cache_bytes",
    "dirty_bytes",
    "background_bytes",
    "dirty_age",
    "flight",
    "prealloc",
    "buffer_bytes",
    "uncached",
    "engine",
];

fn no_backend(error: BackendError) -> Error {
    let kind = match error {
        BackendError::Threads(_) => ErrorKind::Io,
        _ => ErrorKind::Unsupported,
    };
    Error::new(kind, error.to_string())
}

/// Sets a policy of the queue; `others` are the knobs there are beside those.
pub(crate) fn set_queue(
    knobs: &mut forebay_block::Knobs,
    key: &str,
    value: &str,
    others: &[&str],
) -> Result<()> {
    match knobs.set(key, value) {
        Some(Ok(())) => Ok(()),
        Some(Err(unknown)) => Err(invalid(key, value, unknown.choices)),
        None => {
            let all = [others, &forebay_block::Knobs::NAMES].concat().join(", ");
            Err(Error::new(ErrorKind::InvalidInput, format!("there is no knob `{key}`"))
                .remedy(format!("there are: {all}")))
        }
    }
}

/// The knob `uncached`.
pub(crate) fn caching(key: &str, value: &str) -> Result<Caching> {
    match value {
        "off" => Ok(Caching::Cached),
        "on" => Ok(Caching::Uncached),
        _ => Err(invalid(key, value, "`off` or `on`")),
    }
}

fn range(key: &str, value: u64, least: u64, most: u64) -> Result<u64> {
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    Err(invalid(key, &value.to_string(), &format!("{least} to {most}")))
}

pub(crate) fn invalid(key: &str, value: &str, allowed: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("{key} = {value} is not possible"))
        .remedy(format!("allowed: {allowed}"))
}

/// A number of bytes, with k, m, g or t for powers of 1024.
fn bytes(key: &str, value: &str) -> Result<u64> {
    let lower = value.to_ascii_lowercase();
    let lower = lower.strip_suffix("ib").or(lower.strip_suffix('b')).unwrap_or(&lower);
    let (digits, shift) = match lower.char_indices().next_back() {
        Some((at, 'k')) => (&lower[..at], 10),
        Some((at, 'm')) => (&lower[..at], 20),
        Some((at, 'g')) => (&lower[..at], 30),
        Some((at, 't')) => (&lower[..at], 40),
        _ => (lower, 0),
    };
    let number: Option<u64> = digits.parse().ok();
    number
        .and_then(|number| number.checked_mul(1 << shift))
        .ok_or_else(|| invalid(key, value, "a number of bytes, such as 64m or 1g"))
}

/// A time with its unit.
fn age(key: &str, value: &str) -> Result<Duration> {
    let units: [(&str, u64); 3] = [("us", 1), ("ms", 1000), ("s", 1_000_000)];
    let parsed = units.iter().find_map(|(unit, micros)| {
        let number: u64 = value.strip_suffix(unit)?.trim().parse().ok()?;
        Some(Duration::from_micros(number.checked_mul(*micros)?))
    });
    parsed.ok_or_else(|| invalid(key, value, "a time with its unit, such as 500ms or 1s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_with_their_units() {
        assert_eq!(bytes("k", "64m").unwrap(), 64 << 20);
        assert_eq!(bytes("k", "1GiB").unwrap(), 1 << 30);
        assert_eq!(bytes("k", "4096").unwrap(), 4096);
        assert!(bytes("k", "12x").is_err() && bytes("k", "").is_err() && bytes("k", "99999999t").is_err());
        assert_eq!(age("k", "500ms").unwrap(), Duration::from_millis(500));
        assert_eq!(age("k", "2s").unwrap(), Duration::from_secs(2));
        assert!(age("k", "2").is_err() && age("k", "s").is_err());
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_can() {
        let unknown = Builder::default().set("cash_bytes", "1g").unwrap_err().to_string();
        assert!(unknown.contains("cash_bytes") && unknown.contains("cache_bytes"), "{unknown}");
        let small = Builder::default().cache_bytes(1 << 20).build().unwrap_err();
        assert_eq!(small.kind(), ErrorKind::InvalidInput);
        assert!(small.to_string().contains("8388608"), "{small}");
        assert!(Builder::default().cache_bytes(64 << 20).dirty_bytes(64 << 20).build().is_err());
        let flight = Builder::default().set("flight", "0").unwrap_err().to_string();
        assert!(flight.contains("time=MICROSECONDS"), "{flight}");
        let engine = Builder::default().set("engine", "ring").unwrap_err().to_string();
        assert!(engine.contains("io_uring") && engine.contains("threads"), "{engine}");
    }
}
