//! What an engine is made with, and how.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay_cache::Caching;
use forebay_cache::limits::PAGE;
use forebay_uring::{Arena, Buffers, ForkGuard};

use crate::contexts::Contexts;
use crate::engine::Engine;
use crate::engine::adopt::Adopted;
use crate::error::{Error, ErrorKind, Result};
use crate::keeper::Keeper;
use crate::keeper::adopt::{Handed, forget_all_but};
use crate::keeper::standby::Standby;
use crate::knobs::{self, Knob};
use crate::level::Level;
use crate::limits::PATIENCE;
use crate::pool::Pool;
use crate::settings::Settings;
use crate::shared::{OnError, Parts, Shared};
use crate::wait;

/// Makes an engine. Values are checked by [`Builder::build`].
pub struct Builder {
    settings: Settings,
    patience: Duration,
    on_error: OnError,
    /// Another process can finish what this one had accepted.
    is_survived: bool,
    /// That process.
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
            on_error: Box::new(|error| tracing::error!(%error, "an error nobody waited for")),
            is_survived: false,
            keeper: None,
        }
    }
}

impl Builder {
    /// Bytes of memory for data: one fixed arena. Unless told, 256 MiB or a sixteenth of memory (or
    /// of the cgroup's limit), whichever is less; at least 8 MiB.
    #[must_use]
    pub fn cache_bytes(mut self, bytes: u64) -> Self {
        self.settings.cache_bytes = Some(bytes);
        self
    }

    /// Bytes that may be dirty before writers wait; seven eighths of the cache unless told.
    #[must_use]
    pub fn dirty_bytes(mut self, bytes: u64) -> Self {
        self.settings.dirty_bytes = Some(bytes);
        self
    }

    /// Bytes dirty from which writeback starts by itself; half of `dirty_bytes` unless told.
    #[must_use]
    pub fn background_bytes(mut self, bytes: u64) -> Self {
        self.settings.background_bytes = Some(bytes);
        self
    }

    /// How long a page may be dirty before it is written out; one second unless told.
    #[must_use]
    pub fn dirty_age(mut self, age: Duration) -> Self {
        self.settings.dirty_age = age;
        self
    }

    /// Bytes of the pool that [`Engine::buffer`] takes from; 16 MiB unless told.
    #[must_use]
    pub fn buffer_bytes(mut self, bytes: u64) -> Self {
        self.settings.buffer_bytes = bytes;
        self
    }

    /// Whether pages go when they were written, or read, on handles that do not say otherwise
    /// ([`Open::uncached`](crate::Open::uncached)); not unless told.
    #[must_use]
    pub fn uncached(mut self, uncached: bool) -> Self {
        self.settings.caching = if uncached { Caching::Uncached } else { Caching::Cached };
        self
    }

    /// How long `close` and a dropped engine wait for the device; 60 s unless told.
    #[must_use]
    pub fn close_timeout(mut self, timeout: Duration) -> Self {
        self.patience = timeout;
        self
    }

    /// Whom to tell of errors that no caller waits for. It is called on the engine's own thread,
    /// and must not wait for the engine; once that thread has ended, by whoever drops the handle.
    /// Unless told, they are logged.
    #[must_use]
    pub fn on_error(mut self, told: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        self.on_error = Box::new(told);
        self
    }

    /// Has a second process stand by: should this one die, it finishes what was accepted, so that
    /// written data survives the process as it does with the kernel's page cache. See
    /// [`keeper`](crate::keeper).
    ///
    /// [`Builder::build`] starts it and waits until it is there; each first open and last close of
    /// a file waits for one answer of it, which takes microseconds, and a second at most. A thread
    /// of the engine's waits for its end, and tells [`Builder::on_error`] of that.
    #[must_use]
    pub fn survive(mut self, keeper: Keeper) -> Self {
        self.is_survived = true;
        self.keeper = Some(keeper);
        self
    }

    /// Keeps an account of what is not written yet in memory that another process can be given, and
    /// gives it to nobody.
    #[doc(hidden)]
    #[must_use]
    pub fn survivable(mut self) -> Self {
        self.is_survived = true;
        self
    }

    /// Any knob by its name, as a command line gives it; [`Builder::knobs`] lists them. Beside
    /// those of [`Engine::set`] there are `cache_bytes` and `buffer_bytes` (bytes, or with k, m,
    /// g), and `engine` (`auto`, `io_uring`, `threads`: by which system calls; `auto` takes a
    /// thread pool only where io_uring is missing or forbidden).
    ///
    /// # Errors
    /// `InvalidInput` for an unknown key or a value that cannot be read; the message names what
    /// there is.
    pub fn set(mut self, key: &str, value: &str) -> Result<Self> {
        knobs::set(&mut self.settings, key, value)?;
        Ok(self)
    }

    /// Every knob, with what it stands at and what it can be set to.
    #[must_use]
    pub fn knobs(&self) -> Vec<Knob> {
        knobs::list(&self.settings)
    }

    /// Makes the engine: its memory, its ring (or a thread pool in its place), its thread; more of
    /// both where more `contexts` are asked for.
    ///
    /// # Errors
    /// `Keeper` where there is to be one and it cannot be started, or is of another version;
    /// `InvalidInput` for a value out of range; `Unsupported` where io_uring was asked for and is
    /// not to be had, or has no memory; `Io` where the system gives no memory or thread.
    pub fn build(mut self) -> Result<Engine> {
        may_make()?;
        let bytes = self.settings.cache_bytes();
        self.settings.cache_bytes = Some(bytes);
        self.settings.check()?;
        let frames = (bytes / PAGE) as u32;
        let arena = if self.is_survived { Arena::shared(frames) } else { Arena::new(frames) };
        let arena = Arc::new(arena.map_err(failed("no memory for the cache"))?);
        self.make(arena, false)
    }

    /// Makes an engine of what a dead program's keeper holds: its memory becomes this engine's,
    /// with every page that was in it, and its files are open here, as they were open there.
    /// `socket` is where that keeper listens ([`Keeper::socket`]). Blocks: until the keeper has
    /// written and synced what the dead program had accepted.
    ///
    /// The cache is as large as that memory, whatever was told; everything else is as it was told
    /// to this builder. With [`Builder::survive`] the new engine has a keeper of its own, which may
    /// have the same socket, before the old one lets go. What the old keeper could not write is
    /// dirty here, and is tried again.
    ///
    /// Every file the dead program had open for writing is in [`Adopted::files`] with one handle,
    /// those that have no path any more too; [`Engine::open`] shares them. Each has to be closed,
    /// or dropped, as any other.
    ///
    /// ```no_run
    /// use forebay::{Engine, Keeper};
    ///
    /// # fn main() -> forebay::Result<()> {
    /// forebay::keeper::run_if_asked();
    /// let builder = || Engine::builder().survive(Keeper::this_program().socket("/run/table.keeper"));
    /// let engine = match builder().adopt("/run/table.keeper") {
    ///     Ok(adopted) => adopted.engine,             // warm, and the files open it needs are found by `open`
    ///     Err(_) => builder().build()?,              // nobody died, or too long ago
    /// };
    /// # let _ = engine; Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Keeper` where nobody listens there, or who does is another user, no keeper, one of another
    /// version, or one whose program lives; and where the files cannot be taken over, or not be
    /// given to a keeper of this engine's. As [`Builder::build`], too. The old keeper has
    /// everything still then, and waits for the next who asks.
    pub fn adopt(mut self, socket: impl AsRef<Path>) -> Result<Adopted> {
        may_make()?;
        // Dropped last: until it is told otherwise the keeper has everything.
        let Handed { channel, arena, process, files: handed } = Handed::ask(socket.as_ref())?;
        self.settings.cache_bytes = Some(u64::from(arena.frames()) * PAGE);
        self.settings.check()?;
        let is_survived = self.is_survived;
        let engine = self.make(Arc::clone(&arena), true)?;
        let (files, pages) = engine.take_over(handed, |keeper| {
            // The new one first: whoever dies between the two leaves everything to both, and not to
            // none.
            Handed::make_room(&channel)?;
            keeper.confirm()?;
            Handed::tell_taken(&channel);
            Ok(())
        })?;
        if engine.keeper().is_none() {
            Handed::tell_taken(&channel);
        }
        if !is_survived {
            // Nobody is told what becomes of it.
            forget_all_but(&arena, &[]);
        }
        tracing::info!(process, files = files.len(), ?pages, "took over from a dead program");
        Ok(Adopted::new(engine, files, process, pages))
    }

    /// An engine with this memory, which may be another keeper's still; its settings are checked.
    fn make(self, arena: Arc<Arena>, on_trial: bool) -> Result<Engine> {
        let settings = self.settings;
        let buffers = Buffers::new(settings.buffer_bytes as usize)
            .map_err(failed("no memory for buffers"))?;
        let fork = ForkGuard::new().map_err(failed("no page for the fork guard"))?;
        let level = Level::new(settings.throttle());
        let started =
            self.keeper.map(|keeper| Standby::start(keeper, &arena, on_trial)).transpose()?;
        let (keeper, process) = started.unzip();
        let alive = keeper.as_ref().and_then(Standby::alive);
        let (contexts, has_ended) = Contexts::new(settings.backend, Arc::clone(&arena), alive);
        let parts = Parts { buffers, contexts, settings, on_error: self.on_error, fork, keeper };
        let shared = Arc::new(Shared::new(Pool::new(arena, self.is_survived), level, parts));
        if let (Some(keeper), Some(process)) = (&shared.keeper, process) {
            keeper.watch(&shared, process)?;
        }
        let description = shared.start()?;
        Engine::start(shared, has_ended, description, self.patience)
    }
}

fn may_make() -> Result<()> {
    if wait::is_ours() {
        return Err(Error::new(
            ErrorKind::WouldDeadlock,
            "an engine cannot be made by an engine's thread",
        ));
    }
    Ok(())
}

fn failed(what: &'static str) -> impl Fn(std::io::Error) -> Error {
    move |error| Error::new(ErrorKind::Io, what).because(error)
}

#[cfg(test)]
mod tests {
    use super::*;

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
