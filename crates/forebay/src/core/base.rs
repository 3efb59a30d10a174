//! The lower part of what all threads of an engine share: memory, limits, counters, flags.
//!
//! Nothing here refers to an open file or to a message for a context. So files can use all of it.
//! [`Shared`](crate::core::shared::Shared) is built on top of it and knows both.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use forebay_cache::file::Reserving;
use forebay_cache::frames::BLOCK_FRAMES;
use forebay_cache::{Caching, FrameRuns};

use crate::core::error::{Error, ErrorKind, Result};
use crate::core::intent_log::file::LogFile;
use crate::core::level::Level;
use crate::core::limits::{LOW_ONE_IN, RESERVE_OF_LOW, UNREAD_ONE_IN};
use crate::core::options::Options;
use crate::core::pool::Pool;
use crate::core::recovery::Standby;
use crate::core::share::subtract;
use crate::core::stats::Counters;
use crate::core::user_code;
use crate::platform::sync::Mutex;
use crate::platform::{Arena, Buffers, Home};

/// Callback for errors that no caller waits for.
pub(crate) type OnError = Box<dyn Fn(&Error) + Send + Sync>;

/// Memory, limits, counters and flags of an engine.
pub(crate) struct Base {
    pub(crate) pool: Pool,
    pub(crate) level: Arc<Level>,
    pub(crate) counters: Counters,
    on_error: OnError,
    /// Aligned memory for direct I/O.
    pub(crate) buffers: Arc<Buffers>,
    /// The keeper, which finishes writeback if this process dies.
    pub(crate) keeper: Option<Box<dyn Standby>>,
    /// The options.
    pub(crate) settings: Mutex<Options>,
    home: Home,
    /// Generation of the file that is opened next.
    generation: AtomicU16,
    stopping: AtomicBool,
    /// Whether pages leave memory once they are written or read, for handles that do not choose.
    uncached: AtomicBool,
    /// Reservation of space ahead of data.
    reserving: Mutex<Reserving>,
    /// Pages that readahead brought in and no reader has used yet.
    unread: AtomicU64,
    /// Set once the contexts have stopped; no I/O can complete after that.
    orphaned: AtomicBool,
    /// Set once unwritten data is left to the keeper.
    left: AtomicBool,
}

impl std::fmt::Debug for Base {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Base").field("level", &self.level).finish_non_exhaustive()
    }
}

/// The parts that an engine is made from.
pub(crate) struct Parts {
    pub(crate) arena: Arc<Arena>,
    /// Whether another process can finish writing the data in the arena.
    pub(crate) is_survived: bool,
    pub(crate) buffers: Arc<Buffers>,
    pub(crate) settings: Options,
    pub(crate) on_error: OnError,
    pub(crate) keeper: Option<Box<dyn Standby>>,
    /// The intent log, opened and recovered.
    pub(crate) log: Option<OpenLog>,
}

/// An intent log that is opened.
pub(crate) struct OpenLog {
    pub(crate) file: LogFile,
    pub(crate) directory: PathBuf,
    pub(crate) how: LogUse,
}

/// When syncs are logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LogUse {
    /// Where a flush of the disk is dear.
    ByPrice,
    /// Always, for tests.
    Always,
}

impl Base {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { arena, is_survived, buffers, settings, on_error, keeper, log: _ } = parts;
        Self {
            pool: Pool::new(arena, is_survived),
            buffers,
            level: Arc::new(Level::new(settings.throttle())),
            counters: Counters::default(),
            on_error,
            keeper,
            home: Home::here(),
            generation: AtomicU16::new(1),
            stopping: AtomicBool::new(false),
            uncached: AtomicBool::new(settings.uncached),
            reserving: Mutex::new(settings.prealloc.into()),
            settings: Mutex::new(settings),
            unread: AtomicU64::new(0),
            orphaned: AtomicBool::new(false),
            left: AtomicBool::new(false),
        }
    }

    /// Returns whether the calling process is the one that made the engine.
    pub(crate) fn is_parent(&self) -> bool {
        self.home.is_here()
    }

    /// Checks whether calls may be served.
    ///
    /// # Errors
    /// `Forked` in a forked child; `Shutdown` once the engine stops.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if !self.is_parent() {
            return Err(forked());
        }
        if self.stopping.load(Ordering::Acquire) {
            return Err(Error::shut_down());
        }
        Ok(())
    }

    /// Reports to the program an error that no caller waits for. No lock may be held.
    pub(crate) fn report(&self, error: &Error) {
        user_code::run("the callback given to Builder::on_error", || (self.on_error)(error));
    }

    /// Makes [`Base::check`] fail from now on. Returns true for the first caller.
    pub(crate) fn refuse_calls(&self) -> bool {
        !self.stopping.swap(true, Ordering::AcqRel)
    }

    /// Returns whether unwritten data is left to the keeper.
    pub(crate) fn is_left(&self) -> bool {
        self.left.load(Ordering::SeqCst)
    }

    /// Leaves unwritten data to the keeper from now on.
    pub(crate) fn mark_left(&self) {
        self.left.store(true, Ordering::SeqCst);
    }

    /// Returns whether the contexts have stopped.
    pub(crate) fn is_orphaned(&self) -> bool {
        self.orphaned.load(Ordering::SeqCst)
    }

    /// Notes that the contexts have stopped.
    pub(crate) fn mark_orphaned(&self) {
        self.orphaned.store(true, Ordering::SeqCst);
    }

    /// Returns a number that distinguishes a file from those that had its target before; never 0.
    pub(crate) fn next_generation(&self) -> u16 {
        let next = |generation: u16| Some(generation.checked_add(1).unwrap_or(1));
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let generation = self.generation.fetch_update(set, fetch, next);
        let generation = generation.expect("there is always a next one");
        assert_ne!(generation, 0, "frames of an earlier file would count as those of this one");
        generation
    }

    /// Makes the next generation follow this one.
    pub(crate) fn pass_generation(&self, generation: u16) {
        self.generation.store(generation.checked_add(1).unwrap_or(1), Ordering::Relaxed);
    }

    /// Fills the stash of a file with `wanted` frames. A small writer gets some more while many
    /// frames are free, but never a whole block: most of it would come back unused and stay in
    /// pieces, and the next one would again come from memory that no page has used. It gets no more
    /// than the file has `dirty` pages: many files that are written once each would hold most of
    /// the cache, and spread their pages over it.
    pub(crate) fn refill(&self, stash: &mut FrameRuns, wanted: usize, dirty: u64) {
        let generous = (self.pool.free() / 256).min(BLOCK_FRAMES - 1);
        let generous = u64::from(generous).min(dirty) as usize;
        debug_assert!(generous < BLOCK_FRAMES as usize, "frames would come back in pieces");
        self.pool.take(wanted.max(generous), stash);
    }

    /// Returns the number of frames that readahead may take without taking one that a caller may
    /// need sooner.
    pub(crate) fn room_ahead(&self) -> u64 {
        let frames = self.pool.arena().frames();
        let spare =
            u64::from(self.pool.free().saturating_sub(frames / LOW_ONE_IN / RESERVE_OF_LOW));
        let unread = self.unread.load(Ordering::Relaxed);
        u64::from(frames / UNREAD_ONE_IN).saturating_sub(unread).min(spare)
    }

    /// Updates the number of unread pages by those of one file.
    pub(crate) fn count_unread(&self, before: u64, now: u64) {
        if now > before {
            self.unread.fetch_add(now - before, Ordering::Relaxed);
        } else if now < before {
            let slip = "more unread pages were used than brought in";
            subtract(&self.unread, before - now, Ordering::Relaxed, slip);
        }
    }

    /// Returns how long a close waits for the device.
    pub(crate) fn close_timeout(&self) -> Duration {
        self.settings.lock().close_timeout
    }

    /// Returns whether pages stay in memory, for handles that do not choose.
    pub(crate) fn caching(&self) -> Caching {
        if self.uncached.load(Ordering::Relaxed) { Caching::Uncached } else { Caching::Cached }
    }

    /// Changes the result of [`Base::caching`].
    pub(crate) fn set_uncached(&self, uncached: bool) {
        self.uncached.store(uncached, Ordering::Relaxed);
    }

    /// Returns how space is reserved ahead of data, in files that allow it.
    pub(crate) fn reserving(&self) -> Reserving {
        *self.reserving.lock()
    }

    /// Changes the result of [`Base::reserving`]. Returns whether it was different before.
    pub(crate) fn set_reserving(&self, reserving: Reserving) -> bool {
        std::mem::replace(&mut *self.reserving.lock(), reserving) != reserving
    }
}

#[cold]
fn forked() -> Error {
    let what = "cannot use the engine of the parent process in a forked child";
    Error::new(ErrorKind::Forked, what)
        .remedy("build an engine in the child, or fork before building one")
}
