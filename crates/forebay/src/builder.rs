//! Construction of an engine.

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_cache::limits::PAGE;
use forebay_log::{BLOCK, Mark};
use forebay_uring::{Arena, Buffers, free_bytes};

use crate::core::base::{LogUse, OpenLog};
use crate::core::engine::Engine;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::intent_log::marks::{Marked, mark_of};
use crate::core::knobs;
use crate::core::logged;
use crate::core::logged::bounds::{LOG_BLOCKS, LOG_BLOCKS_LEAST, LOG_OF_FREE};
use crate::core::open::adoption::Adopted;
use crate::core::options::Options;
use crate::core::recovery::inherited::forget_all_but;
use crate::core::shared::{OnError, Parts, Shared};
use crate::keeper::Keeper;
use crate::keeper::Started;
use crate::keeper::adopt::Handed;
use crate::platform::thread;

/// Starts an engine with a callback for errors or a keeper; see [`Engine::builder`].
///
/// ```
/// use forebay::{Engine, Options};
///
/// # fn main() -> forebay::Result<()> {
/// let engine = Engine::builder(Options::default())
///     .on_error(|error| eprintln!("late write error: {error}"))
///     .build()?;
/// # drop(engine);
/// # Ok(())
/// # }
/// ```
pub struct Builder {
    options: Options,
    on_error: OnError,
    /// Whether the arena is shared memory, so that another process can finish writing its data.
    pub(crate) is_survived: bool,
    keeper: Option<Keeper>,
    log: Option<(PathBuf, LogUse)>,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Builder").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Builder {
    fn new(options: Options) -> Self {
        Self {
            options,
            on_error: Box::new(
                |error| tracing::error!(%error, "an error that no caller waited for"),
            ),
            is_survived: false,
            keeper: None,
            log: None,
        }
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

    /// Gives the engine an intent log in a directory.
    ///
    /// [`File::sync_data`](crate::File::sync_data) of files below the directory, on the same file
    /// system, then returns once their new bytes are in the log and flushed. One write and one
    /// flush of the log serve the syncs of many files.
    ///
    /// **After a power cut or a crash nobody may open the files of the directory before the log is
    /// replayed**: by the next engine with this log, or by `forebay recover`. A copy of a file
    /// without its log may be old. The page `docs/intent-log.md` has the rules.
    ///
    /// [`Builder::build`] makes the log if it is missing, and replays it otherwise. A new one
    /// has 512 MiB, or a 32nd of the free space if that is less, but not below 4 MiB. Syncs are
    /// logged only where a flush of the disk takes 0.2 ms or more, and of files that were synced
    /// before since they were opened. [`File::close`](crate::File::close) and [`Engine::shutdown`]
    /// bring everything into place.
    #[must_use]
    pub fn intent_log(mut self, directory: impl AsRef<Path>) -> Self {
        self.log = Some((directory.as_ref().to_owned(), LogUse::ByPrice));
        self
    }

    /// As [`Builder::intent_log`], on any disk, after the first sync of each file. For tests.
    #[must_use]
    pub fn intent_log_always(mut self, directory: impl AsRef<Path>) -> Self {
        self.log = Some((directory.as_ref().to_owned(), LogUse::Always));
        self
    }

    /// Builds the engine: allocates its memory, and starts its threads, rings and keeper. Blocks.
    ///
    /// # Errors
    /// - `InvalidInput` if a value is out of range; the message names it.
    /// - `Unsupported` if io_uring was required and is missing, forbidden or out of memory.
    /// - `Keeper` if the keeper cannot be started, or is of another version.
    /// - `Busy`, `Open`, `Unsupported` or `Io` if the intent log cannot be used; the message has
    ///   the reason and a remedy.
    /// - `NotPermitted` if `context_priority` is `Realtime` and the system does not allow it.
    /// - `Io` if the system grants no memory or no thread.
    /// - `WouldDeadlock` on a thread of an engine.
    pub fn build(mut self) -> Result<Engine> {
        may_make()?;
        let bytes = self.options.cache_bytes();
        self.options.cache_bytes = Some(bytes);
        knobs::check(&self.options)?;
        self.options.context_priority.check()?;
        let frames = (bytes / PAGE) as u32;
        let arena = if self.is_survived { Arena::shared(frames) } else { Arena::new(frames) };
        let arena = Arc::new(
            arena.map_err(failed(format!("could not allocate {bytes} bytes for the cache")))?,
        );
        self.make(arena, false, &[])
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
    /// use forebay::{Engine, Keeper, Options};
    ///
    /// # fn main() -> forebay::Result<()> {
    /// forebay::keeper::run_if_asked();
    /// let keeper = || Keeper {
    ///     socket: Some("/run/table.keeper".into()),
    ///     ..Keeper::this_program()
    /// };
    /// let builder = || Engine::builder(Options::default()).survive(keeper());
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
        let Handed { channel, arena, process, files } = Handed::ask(socket.as_ref())?;
        self.options.cache_bytes = Some(u64::from(arena.frames()) * PAGE);
        knobs::check(&self.options)?;
        self.options.context_priority.check()?;
        let is_survived = self.is_survived;
        let marks = files.iter().filter_map(|handed| match mark_of(&handed.file) {
            Ok(Marked::By(mark)) => Some(mark),
            _ => None,
        });
        let engine = self.make(Arc::clone(&arena), true, &marks.collect::<Vec<_>>())?;
        let (files, pages) = engine.take_over(files, |keeper| {
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

    /// Makes an engine from checked settings. With `on_trial` another keeper still owns the memory,
    /// and holds files with these marks of an intent log.
    fn make(self, arena: Arc<Arena>, on_trial: bool, held: &[Mark]) -> Result<Engine> {
        let log = self.log.map(|(directory, how)| open_log(&directory, how, held)).transpose()?;
        let settings = self.options;
        let buffers = Buffers::new(settings.buffer_bytes as usize).map_err(failed(format!(
            "could not allocate {} bytes for buffers",
            settings.buffer_bytes
        )))?;
        let of_log = log.as_ref().map(|log| log.file.file());
        let start = |keeper| Started::start(keeper, &arena, of_log, on_trial);
        let started = self.keeper.map(start).transpose()?;
        let (keeper, watch) = started.map(Started::split).unzip();
        let parts = Parts {
            arena,
            is_survived: self.is_survived,
            buffers,
            settings,
            on_error: self.on_error,
            keeper,
            log,
        };
        let watch = move |shared: &Arc<Shared>| watch.map_or(Ok(()), |watch| watch(shared));
        Engine::assemble(parts, watch)
    }
}

impl Engine {
    /// Starts an engine with the default options. Blocks.
    ///
    /// # Errors
    /// As [`Builder::build`].
    #[allow(clippy::new_without_default, reason = "it can fail")]
    pub fn new() -> Result<Self> {
        Self::start(Options::default())
    }

    /// Starts an engine. Blocks.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn start(options: Options) -> Result<Self> {
        Self::builder(options).build()
    }

    /// Returns a builder, which starts an engine with a callback for errors or a keeper.
    #[must_use]
    pub fn builder(options: Options) -> Builder {
        Builder::new(options)
    }
}

/// Opens the intent log of a directory.
fn open_log(directory: &Path, how: LogUse, held: &[Mark]) -> Result<OpenLog> {
    let found = std::fs::canonicalize(directory).map_err(|error| {
        let what = "could not find the directory of the intent log";
        Error::new(ErrorKind::at_open(&error), what).at_path(directory).because(error)
    })?;
    let free = std::fs::File::open(&found).and_then(|opened| free_bytes(opened.as_fd()));
    let most = free.unwrap_or(u64::MAX) / LOG_OF_FREE / BLOCK as u64;
    logged::open::open(&found, LOG_BLOCKS.min(most).max(LOG_BLOCKS_LEAST), how, held)
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
    fn an_invalid_value_is_refused_with_the_valid_ones() {
        let of = || Options { cache_bytes: Some(64 << 20), ..Options::default() };
        let small = Engine::start(Options { cache_bytes: Some(1 << 20), ..of() }).unwrap_err();
        assert_eq!(small.kind(), ErrorKind::InvalidInput);
        assert!(small.to_string().contains("8388608"), "{small}");
        assert!(Engine::start(Options { dirty_bytes: Some(64 << 20), ..of() }).is_err());
        let set = |name, value| Options::default().set(name, value).unwrap_err().to_string();
        let flight = set("flight", "0");
        assert!(flight.contains("time=MICROSECONDS"), "{flight}");
        let backend = set("backend", "ring");
        assert!(backend.contains("io_uring") && backend.contains("threads"), "{backend}");
    }
}
