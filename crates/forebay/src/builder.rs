//! Options of an engine, and its construction.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay_cache::Caching;
use forebay_cache::limits::PAGE;
use forebay_uring::{Arena, Buffers, ForkGuard};

use crate::core::engine::Engine;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::knobs::{self, Knob};
use crate::core::limits::PATIENCE;
use crate::core::open::adoption::Adopted;
use crate::core::policy::{Backend, ContextPriority, Flight, Prealloc};
use crate::core::recovery::inherited::forget_all_but;
use crate::core::settings::{Settings, Wanted};
use crate::core::shared::{OnError, Parts, Shared};
use crate::keeper::Keeper;
use crate::keeper::adopt::Handed;
use crate::keeper::standby::Started;
use crate::platform::thread;

/// Options of an engine; [`Builder::build`] checks them and makes the engine.
///
/// Every option has a default, so `Engine::builder().build()` is the same as
/// [`Engine::new`]. A *knob* is an option with a name, which [`Builder::set`] takes. Knobs that are
/// not only for measurement have a typed method, too. Most knobs can be changed while the engine
/// runs, with [`Engine::set`].
///
/// ```
/// use std::time::Duration;
/// use forebay::Engine;
///
/// # fn main() -> forebay::Result<()> {
/// let engine = Engine::builder()
///     .cache_bytes(64 << 20)
///     .dirty_age(Duration::from_millis(200))
///     .on_error(|error| eprintln!("late write error: {error}"))
///     .build()?;
/// assert_eq!(engine.get("dirty_age")?, "200ms");
/// # Ok(())
/// # }
/// ```
pub struct Builder {
    settings: Settings,
    patience: Duration,
    on_error: OnError,
    /// Whether the arena is shared memory, so that another process can finish writing its data.
    is_survived: bool,
    keeper: Option<Keeper>,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Builder").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            patience: PATIENCE,
            on_error: Box::new(
                |error| tracing::error!(%error, "an error that no caller waited for"),
            ),
            is_survived: false,
            keeper: None,
        }
    }
}

impl Builder {
    /// Sets the memory for cached data, in bytes (at least 8 MiB).
    ///
    /// The memory is allocated once and never grows. The default is the smaller of 256 MiB and 1/16
    /// of the memory of the machine or cgroup.
    #[must_use]
    pub fn cache_bytes(mut self, bytes: u64) -> Self {
        self.settings.cache_bytes = Some(bytes);
        self
    }

    /// Sets how many bytes may be dirty before writers wait (default: 7/8 of the cache, which is
    /// also the maximum; at least 4 MiB).
    #[must_use]
    pub fn dirty_bytes(mut self, bytes: u64) -> Self {
        self.settings.dirty_bytes = Some(bytes);
        self
    }

    /// Sets how many bytes may be dirty before writeback starts by itself (default: half of
    /// `dirty_bytes`).
    #[must_use]
    pub fn background_bytes(mut self, bytes: u64) -> Self {
        self.settings.background_bytes = Some(bytes);
        self
    }

    /// Sets how long data may stay dirty before its writeback starts (default: 1 s; from 1 ms to
    /// 24 h).
    #[must_use]
    pub fn dirty_age(mut self, age: Duration) -> Self {
        self.settings.dirty_age = age;
        self
    }

    /// Sets the size in bytes of the pool that [`Engine::buffer`] takes from (default: 16 MiB).
    #[must_use]
    pub fn buffer_bytes(mut self, bytes: u64) -> Self {
        self.settings.buffer_bytes = bytes;
        self
    }

    /// Sets whether pages leave memory once they are written or read (default: `false`).
    ///
    /// Applies to handles that do not choose themselves with
    /// [`OpenOptions::uncached`](crate::OpenOptions::uncached).
    #[must_use]
    pub fn uncached(mut self, uncached: bool) -> Self {
        self.settings.caching = if uncached { Caching::Uncached } else { Caching::Cached };
        self
    }

    /// Sets how many writeback threads share the files (at most 64). By default, the number
    /// is found by trials: the knob `contexts` at `adaptive`.
    #[must_use]
    pub fn contexts(mut self, contexts: usize) -> Self {
        self.settings.contexts = Wanted::Fixed(contexts);
        self
    }

    /// Sets the scheduling class of the writeback threads (default: `Normal`).
    #[must_use]
    pub fn context_priority(mut self, priority: ContextPriority) -> Self {
        self.settings.priority = priority;
        self
    }

    /// Sets how much background writeback is in flight to a device (default: 2 ms of its work).
    #[must_use]
    pub fn flight(mut self, flight: Flight) -> Self {
        self.settings.flight = flight;
        self
    }

    /// Sets how much space is reserved ahead of data (default: `Adaptive`).
    #[must_use]
    pub fn prealloc(mut self, prealloc: Prealloc) -> Self {
        self.settings.reserving = prealloc.into();
        self
    }

    /// Sets which system calls are used for I/O: io_uring or a thread pool (default: `Auto`).
    #[must_use]
    pub fn engine(mut self, backend: Backend) -> Self {
        self.settings.backend = backend;
        self
    }

    /// Sets how long [`File::close`](crate::File::close) and the drop of the engine wait for the
    /// device (default: 60 s).
    #[must_use]
    pub fn close_timeout(mut self, timeout: Duration) -> Self {
        self.patience = timeout;
        self
    }

    /// Sets the function that is called with each error that no caller waits for (default: log it
    /// with `tracing`).
    ///
    /// Such errors are failed writes of dropped handles, the result of the engine's drop, and the
    /// loss of the keeper. The function runs on a thread of the engine, which writes nothing until
    /// it returns, or on the thread that drops the last handle. The engine holds no lock meanwhile,
    /// and catches and logs a panic. A call that would wait for the engine fails with
    /// `WouldDeadlock`. The function may drop handles, and the last [`Engine`].
    #[must_use]
    pub fn on_error(mut self, reported: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        self.on_error = Box::new(reported);
        self
    }

    /// Starts a keeper: a second process that finishes writing accepted data if this process dies.
    ///
    /// Written data then survives `kill -9`, an abort and a crash of this process, as it would in
    /// the page cache of the kernel. The module [`keeper`](crate::keeper) describes this in full.
    ///
    /// [`Builder::build`] starts the keeper and waits until it runs. The first open and the last
    /// close of each file wait for an answer of the keeper, which takes microseconds and one second
    /// at most. [`Builder::on_error`] reports the loss of the keeper.
    #[must_use]
    pub fn survive(mut self, keeper: Keeper) -> Self {
        self.is_survived = true;
        self.keeper = Some(keeper);
        self
    }

    /// Keeps the data in shared memory with records of unwritten data, but starts no keeper.
    #[doc(hidden)]
    #[must_use]
    pub fn survivable(mut self) -> Self {
        self.is_survived = true;
        self
    }

    /// Sets a knob (option with a name) to a value given as text, such as `set("prealloc", "64m")`.
    ///
    #[doc = include_str!("core/knobs.md")]
    ///
    /// ```
    /// # fn main() -> forebay::Result<()> {
    /// let engine = forebay::Engine::builder().set("cache_bytes", "64m")?.build()?;
    /// assert_eq!(engine.get("cache_bytes")?, "67108864");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` for an unknown name or an invalid value; the message lists what is valid.
    pub fn set(mut self, key: &str, value: &str) -> Result<Self> {
        knobs::set(&mut self.settings, key, value)?;
        Ok(self)
    }

    /// Returns every knob (option with a name) with its value, its valid values and its meaning.
    #[must_use]
    pub fn knobs(&self) -> Vec<Knob> {
        knobs::list(&self.settings)
    }

    /// Builds the engine: allocates its memory, and starts its threads, rings and keeper. Blocks.
    ///
    /// # Errors
    /// - `InvalidInput` if a value is out of range; the message names it.
    /// - `Unsupported` if io_uring was required and is missing, forbidden or out of memory.
    /// - `Keeper` if the keeper cannot be started, or is of another version.
    /// - `NotPermitted` if `context_priority` is `realtime` and the system does not allow it.
    /// - `Io` if the system grants no memory or no thread.
    /// - `WouldDeadlock` on a thread of an engine.
    pub fn build(mut self) -> Result<Engine> {
        may_make()?;
        let bytes = self.settings.cache_bytes();
        self.settings.cache_bytes = Some(bytes);
        knobs::check(&self.settings)?;
        self.settings.priority.check()?;
        let frames = (bytes / PAGE) as u32;
        let arena = if self.is_survived { Arena::shared(frames) } else { Arena::new(frames) };
        let arena = Arc::new(
            arena.map_err(failed(format!("could not allocate {bytes} bytes for the cache")))?,
        );
        self.make(arena, false)
    }

    /// Builds an engine that continues where a dead program stopped: with its cache and its open
    /// files, taken from its keeper. Blocks until the keeper has written and synced what the dead
    /// program had accepted.
    ///
    /// `socket` is the path where that keeper listens ([`Keeper::socket`]). The cache keeps the
    /// size of the dead program's cache; all other options are those of this builder. With
    /// [`Builder::survive`] the new engine gets a keeper of its own, which may use the same path.
    /// It takes over before the old keeper ends, so the data is never without one. Pages that
    /// the old keeper could not write are dirty in the new engine.
    ///
    /// [`Adopted::files`] holds one handle for each file that the dead program had open for
    /// writing, including removed files. [`Engine::open`] of the same path shares that file. Close
    /// or drop each handle as usual.
    ///
    /// ```no_run
    /// use forebay::{Engine, Keeper};
    ///
    /// # fn main() -> forebay::Result<()> {
    /// forebay::keeper::run_if_asked();
    /// let keeper = || Keeper::this_program().socket("/run/table.keeper");
    /// let builder = || Engine::builder().survive(keeper());
    /// let engine = match builder().adopt("/run/table.keeper") {
    ///     Ok(adopted) => adopted.engine,             // warm cache
    ///     Err(_) => builder().build()?,              // no keeper waits there
    /// };
    /// # let _ = engine; Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Builder::build`], and `Keeper` if no keeper listens at `socket`, if it belongs to
    /// another user, is of another version, or serves a program that is still alive; also if the
    /// files cannot be taken over. After an error the old keeper still has everything and waits for
    /// the next attempt.
    pub fn adopt(mut self, socket: impl AsRef<Path>) -> Result<Adopted> {
        may_make()?;
        // `channel` is dropped last: the old keeper keeps everything until then.
        let Handed { channel, arena, process, files: handed } = Handed::ask(socket.as_ref())?;
        self.settings.cache_bytes = Some(u64::from(arena.frames()) * PAGE);
        knobs::check(&self.settings)?;
        self.settings.priority.check()?;
        let is_survived = self.is_survived;
        let engine = self.make(Arc::clone(&arena), true)?;
        let (files, pages) = engine.take_over(handed, |keeper| {
            // Confirm the new keeper first. If this process dies in between, both keepers have
            // everything.
            if let Some(keeper) = keeper {
                Handed::make_room(&channel)?;
                keeper.confirm()?;
            }
            Handed::report_taken(&channel)
        })?;
        if !is_survived {
            // No keeper follows, so the records of unwritten data are of no use.
            forget_all_but(&arena, &[]);
        }
        tracing::info!(process, files = files.len(), ?pages, "took over from a dead program");
        Ok(Adopted::new(engine, files, process, pages))
    }

    /// Makes an engine from checked settings. With `on_trial` another keeper still owns the memory.
    fn make(self, arena: Arc<Arena>, on_trial: bool) -> Result<Engine> {
        let settings = self.settings;
        let buffers = Buffers::new(settings.buffer_bytes as usize).map_err(failed(format!(
            "could not allocate {} bytes for buffers",
            settings.buffer_bytes
        )))?;
        let fork = ForkGuard::new()
            .map_err(failed("could not allocate the page that detects a fork".to_owned()))?;
        let started =
            self.keeper.map(|keeper| Started::start(keeper, &arena, on_trial)).transpose()?;
        let (keeper, watch) = started.map(Started::split).unzip();
        let parts = Parts {
            arena,
            is_survived: self.is_survived,
            buffers,
            settings,
            on_error: self.on_error,
            fork,
            keeper,
        };
        let watch = move |shared: &Arc<Shared>| watch.map_or(Ok(()), |watch| watch(shared));
        Engine::assemble(parts, watch, self.patience)
    }
}

impl Engine {
    /// Builds an engine with default options; see [`Builder`]. Blocks.
    ///
    /// # Errors
    /// As [`Builder::build`].
    #[allow(clippy::new_without_default, reason = "it can fail")]
    pub fn new() -> Result<Self> {
        Self::builder().build()
    }

    /// Continues where a dead program stopped, as [`Builder::adopt`] with default options and
    /// without a new keeper. Blocks.
    ///
    /// # Errors
    /// As [`Builder::adopt`].
    pub fn adopt(socket: impl AsRef<Path>) -> Result<Adopted> {
        Self::builder().adopt(socket)
    }

    /// Returns a builder for options that must be set before the engine starts.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }
}

fn may_make() -> Result<()> {
    if thread::is_ours() {
        return Err(Error::new(
            ErrorKind::WouldDeadlock,
            "cannot build an engine on a thread of an engine",
        )
        .remedy("build it on another thread"));
    }
    Ok(())
}

fn failed(what: String) -> impl FnOnce(std::io::Error) -> Error {
    move |error| Error::new(ErrorKind::Io, what).because(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_methods_set_the_knobs_of_their_names() {
        let builder = Builder::default()
            .contexts(3)
            .context_priority(ContextPriority::Realtime)
            .flight(Flight::Depth(7))
            .prealloc(Prealloc::Ahead(1 << 20))
            .cache_bytes(9 << 20)
            .dirty_bytes(7 << 20)
            .background_bytes(6 << 20)
            .dirty_age(Duration::from_millis(3))
            .uncached(true)
            .buffer_bytes(8192)
            .engine(Backend::Threads);
        let expected = [
            ("contexts", "3"),
            ("context_priority", "realtime"),
            ("flight", "7"),
            ("prealloc", "1048576"),
            ("cache_bytes", "9437184"),
            ("dirty_bytes", "7340032"),
            ("background_bytes", "6291456"),
            ("dirty_age", "3ms"),
            ("uncached", "on"),
            ("buffer_bytes", "8192"),
            ("engine", "threads"),
        ];
        let knobs = builder.knobs();
        let by_name_alone =
            ["plug", "merge", "tags", "clock", "doorbell", "completion", "order", "affinity"];
        let typed = knobs.iter().filter(|knob| !by_name_alone.contains(&knob.name.as_str()));
        let found = typed.map(|knob| (knob.name.as_str(), knob.value.as_str()));
        assert!(found.eq(expected), "each other knob has a typed method: {knobs:?}");
    }

    #[test]
    fn an_invalid_value_is_refused_with_the_valid_ones() {
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
