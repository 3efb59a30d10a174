//! New small files: their data goes to the page cache of the source.
//!
//! ```text
//! created, or cut to nothing --> small --grows, is opened twice, or no room--> in the engine
//!                                  \--last close--> written after a second --> dropped and closed
//! ```
//!
//! The engine needs about 40 system calls to open and close a file. A file that is written once
//! and closed does not repay them. The kernel has the data when the write returns, so it is kept if
//! this process dies. The time of writing is the kernel's, too. The page cache that such
//! files take has a limit. A file that the device refuses goes to the engine, which keeps its data
//! and tries again.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use forebay::{Engine, File, Open};
use forebay_uring::page_cache::{self, WHOLE};

use crate::data::Held;
use crate::error::of_engine;
use crate::limits::{SMALL_BYTES, SMALL_FILE_BYTES, SMALL_OF_CACHE};

/// An engine, and the page cache that small files take beside it.
#[derive(Debug)]
pub(crate) struct Stack {
    pub(crate) engine: Engine,
    pub(crate) room: Room,
}

/// Page cache for small files.
#[derive(Debug)]
pub(crate) struct Room {
    limit: u64,
    used: AtomicU64,
}

impl Room {
    /// Returns the room beside a cache of an engine.
    pub(crate) fn beside(cache_bytes: u64) -> Self {
        let limit = (cache_bytes / SMALL_OF_CACHE).min(SMALL_BYTES);
        Self { limit, used: AtomicU64::new(0) }
    }

    fn take(&self, bytes: u64) -> bool {
        let taken = |used: u64| Some(used + bytes).filter(|&used| used <= self.limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns whether closed files have to be written, although they are young.
    pub(crate) fn is_filling(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.limit / 4
    }

    /// Returns whether closed files have to be dropped.
    pub(crate) fn is_full(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.limit / 2
    }
}

/// A file that was small when it was opened. It is the only open one of its node while it is small.
#[derive(Debug)]
pub(crate) struct Small {
    stage: RwLock<Stage>,
    /// Set once it is in the engine.
    is_grown: AtomicBool,
    share: Share,
}

/// Bytes of the room that a file takes while it is small.
#[derive(Debug)]
struct Share {
    stack: Arc<Stack>,
    taken: AtomicU64,
}

#[derive(Debug)]
enum Stage {
    Small(fs::File),
    Grown(File),
}

/// State of the data of a small file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Content {
    /// Nothing failed so far.
    Sound,
    /// A write to the device failed. The kernel does not repeat it.
    Refused,
}

impl Small {
    pub(crate) fn new(stack: &Arc<Stack>, file: fs::File) -> Self {
        let share = Share { stack: Arc::clone(stack), taken: AtomicU64::new(0) };
        let stage = RwLock::new(Stage::Small(file));
        Self { stage, is_grown: AtomicBool::new(false), share }
    }

    fn stage(&self) -> RwLockReadGuard<'_, Stage> {
        self.stage.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether it is not in the engine. Does not wait.
    pub(crate) fn is_small(&self) -> bool {
        !self.is_grown.load(Ordering::Acquire)
    }

    /// Uses the file where it is now.
    pub(crate) fn with<T>(&self, operation: impl FnOnce(Held<'_>) -> T) -> T {
        match &*self.stage() {
            Stage::Small(file) => operation(Held::Plain(file)),
            Stage::Grown(file) => operation(Held::Engine(file)),
        }
    }

    /// Uses the file where it is once it may be `end` bytes long.
    pub(crate) fn with_size<T>(
        &self,
        end: u64,
        operation: impl FnOnce(Held<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        {
            let stage = self.stage();
            if let Stage::Small(file) = &*stage
                && self.share.has_room(end)
            {
                return operation(Held::Plain(file));
            }
        }
        self.grow()?;
        self.with(operation)
    }

    /// Opens the file in the engine, unless it is there. Its dirty pages are written before.
    pub(crate) fn grow(&self) -> io::Result<()> {
        self.enter_engine(Content::Sound)
    }

    fn enter_engine(&self, mut content: Content) -> io::Result<()> {
        let mut stage = self.stage.write().unwrap_or_else(PoisonError::into_inner);
        let Stage::Small(file) = &*stage else { return Ok(()) };
        if content == Content::Sound && page_cache::write_out(file, WHOLE).is_err() {
            content = Content::Refused;
        }
        let again = match content {
            Content::Sound => Vec::new(),
            Content::Refused => content_of(file)?,
        };
        let given = file.try_clone()?;
        let grown = self.share.stack.engine.open_fd(given, Open::write()).map_err(of_engine)?;
        if !again.is_empty() {
            grown.write_at(&again, 0).map_err(of_engine)?;
        }
        // Not before: if the engine does not take the file, its refused pages are only here.
        page_cache::drop_pages(file);
        *stage = Stage::Grown(grown);
        self.is_grown.store(true, Ordering::Release);
        self.share.end();
        Ok(())
    }

    /// Has the engine write what the device refused, if `done` says so.
    pub(crate) fn keep_refused(&self, done: io::Result<()>) -> io::Result<()> {
        done.inspect_err(|_| {
            // The caller gets the first error.
            let _ = self.enter_engine(Content::Refused);
        })
    }

    /// Starts to write the file to the device, if it is small.
    pub(crate) fn start_writing(&self) {
        if let Stage::Small(file) = &*self.stage() {
            // An error is reported by the next call that waits.
            let _ = page_cache::start_writing(file, WHOLE);
        }
    }

    /// Waits until the file is written to the device. Not a flush.
    pub(crate) fn write_out(&self) -> io::Result<()> {
        let written = match &*self.stage() {
            Stage::Small(file) => page_cache::write_out(file, WHOLE),
            Stage::Grown(file) => return file.write_out().map_err(of_engine),
        };
        self.keep_refused(written)
    }

    /// Writes everything out, and closes the file.
    pub(crate) fn close(self) -> io::Result<()> {
        // The engine has the file after an error.
        let _ = self.write_out();
        match self.stage.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Stage::Small(file) => {
                page_cache::drop_pages(&file);
                Ok(())
            }
            Stage::Grown(file) => file.close().map_err(of_engine),
        }
    }

    /// Drops what was written and not written out: for a file without a name.
    pub(crate) fn discard(self) {
        match self.stage.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Stage::Small(_) => {}
            Stage::Grown(file) => discard(file),
        }
    }
}

impl Share {
    /// Returns whether the file may have this size. Takes room for it.
    fn has_room(&self, end: u64) -> bool {
        if end > SMALL_FILE_BYTES {
            return false;
        }
        let needed = end.next_multiple_of(4096);
        let mut taken = self.taken.load(Ordering::Relaxed);
        while taken < needed {
            if !self.stack.room.take(needed - taken) {
                return false;
            }
            let order = Ordering::Relaxed;
            match self.taken.compare_exchange(taken, needed, order, order) {
                Ok(_) => return true,
                Err(now) => {
                    self.stack.room.give_back(needed - taken);
                    taken = now;
                }
            }
        }
        true
    }

    fn end(&self) {
        self.stack.room.give_back(self.taken.swap(0, Ordering::Relaxed));
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.end();
    }
}

/// Drops what was written to a file and not written out, and closes it.
pub(crate) fn discard(file: File) {
    // An error here concerns a file that is gone.
    let _ = file.discard_dirty();
    let _ = file.close();
}

/// Reads the pages of a small file, which the kernel has kept.
fn content_of(file: &fs::File) -> io::Result<Vec<u8>> {
    let bytes = file.metadata()?.len().min(SMALL_FILE_BYTES);
    let mut content = vec![0; bytes as usize];
    file.read_exact_at(&mut content, 0)?;
    Ok(content)
}
