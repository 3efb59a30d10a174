//! New small files: their data goes to the page cache of the source.
//!
//! ```text
//! created, or cut to nothing --> small --grows, is opened twice, or no room--> in the engine
//!                                  \--last close--> written after a second --> closed, dropped
//! ```
//!
//! The engine needs about 40 system calls to open and close a file. A file that is written once
//! and closed does not repay them. The kernel has the data when the write returns, so it is kept if
//! this process dies. The time of writing is the kernel's, too. The page cache that such
//! files take has a limit. A file that the device refuses goes to the engine, which keeps its data
//! and tries again.
//!
//! If the kernel reads files itself, the written pages of closed files stay for a while: programs
//! often read what they have just made. They have a limit of their own.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use forebay::{Engine, File, OpenOptions};
use forebay_uring::page_cache::{self, WHOLE};
use rustix::fs::OFlags;

use crate::data::Held;
use crate::error::of_engine;
use crate::limits::{SMALL_BYTES, SMALL_FILE_BYTES, SMALL_OF_CACHE, SMALL_ROOM};

/// An engine, and the page cache that small files take beside it.
#[derive(Debug)]
pub(crate) struct Stack {
    pub(crate) engine: Engine,
    /// Whether the source has an intent log, which programs do not see.
    pub(crate) hides_log: bool,
    /// For open files, and for closed ones until they are written.
    room: Room,
    /// For closed files that are written.
    pub(crate) kept: Room,
}

impl Stack {
    pub(crate) fn new(engine: Engine, cache_bytes: u64) -> Self {
        let room = || Room::beside(cache_bytes);
        Self { engine, hides_log: false, room: room(), kept: room() }
    }

    /// Returns whether closed small files have to be written, and whether they have to be closed
    /// and dropped, although they are young.
    pub(crate) fn pressure(&self) -> (bool, bool) {
        (self.room.is_filling(), self.room.is_full())
    }
}

/// Page cache for small files.
#[derive(Debug)]
pub(crate) struct Room {
    limit: u64,
    used: AtomicU64,
}

impl Room {
    /// Returns the room beside a cache of an engine.
    fn beside(cache_bytes: u64) -> Self {
        let limit = (cache_bytes / SMALL_OF_CACHE).min(SMALL_ROOM);
        Self { limit, used: AtomicU64::new(0) }
    }

    fn take(&self, bytes: u64) -> bool {
        let taken = |used: u64| Some(used + bytes).filter(|&used| used <= self.limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok()
    }

    pub(crate) fn give_back(&self, bytes: u64) {
        let rest = |used: u64| used.checked_sub(bytes);
        let given = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
        assert!(given.is_ok(), "room is given back once");
    }

    #[cfg(test)]
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn is_filling(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.limit / 2
    }

    fn is_full(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.limit / 4 * 3
    }
}

/// A file that was small when it was opened. It is the only open one of its node while it is small.
#[derive(Debug)]
pub(crate) struct Small {
    stage: RwLock<Stage>,
    /// Set once it is in the engine.
    is_grown: AtomicBool,
    /// Set once a write to the device has failed, until the engine has the file. The kernel reports
    /// that once and does not write the pages again, so no later sync may succeed before.
    is_refused: AtomicBool,
    /// Set if its pages stay when it is closed.
    keeps_pages: AtomicBool,
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

impl Small {
    pub(crate) fn new(stack: &Arc<Stack>, file: fs::File) -> Self {
        let share = Share { stack: Arc::clone(stack), taken: AtomicU64::new(0) };
        let stage = RwLock::new(Stage::Small(file));
        let [is_grown, is_refused, keeps_pages] = [(); 3].map(|()| AtomicBool::new(false));
        Self { stage, is_grown, is_refused, keeps_pages, share }
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

    /// Opens the file in the engine, unless it is there. Its dirty pages are written before. The
    /// engine gets the content of a file whose pages the device has refused.
    pub(crate) fn grow(&self) -> io::Result<()> {
        let mut stage = self.stage.write().unwrap_or_else(PoisonError::into_inner);
        let Stage::Small(file) = &*stage else { return Ok(()) };
        if page_cache::write_out(file, WHOLE).is_err() {
            self.is_refused.store(true, Ordering::Release);
        }
        let again = if self.is_refused() { content_of(file)? } else { Vec::new() };
        let given = file.try_clone()?;
        let grown = match self.share.enter_engine(given, &again) {
            Ok(grown) => grown,
            Err(error) => {
                // The engine may have switched it to direct I/O already.
                go_buffered(file)?;
                return Err(error);
            }
        };
        // Not before: if the engine does not take the file, its refused pages are only here.
        page_cache::drop_pages(file);
        *stage = Stage::Grown(grown);
        self.is_grown.store(true, Ordering::Release);
        self.is_refused.store(false, Ordering::Release);
        self.share.end();
        Ok(())
    }

    /// Returns whether the device has refused pages that the engine does not have.
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Acquire)
    }

    /// Makes a call that reports the pages that the device has refused. The engine gets these.
    pub(crate) fn report(&self, call: impl Fn(Held<'_>) -> io::Result<()>) -> io::Result<()> {
        if self.is_refused() {
            // The kernel has reported the failure, and would report success now.
            self.grow()?;
        }
        let done = self.with(|file| {
            let done = call(file);
            if done.is_err() && matches!(file, Held::Plain(_)) {
                // Before another call can take the pages for written ones.
                self.is_refused.store(true, Ordering::Release);
            }
            done
        });
        if self.is_refused() {
            // The caller gets the first error. The next call tries this again.
            let _ = self.grow();
        }
        done
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
        self.report(|file| match file {
            Held::Plain(file) => page_cache::write_out(file, WHOLE),
            Held::Engine(file) => file.write_out().map_err(of_engine),
        })
    }

    /// Lets the pages stay when the file is closed, if there is room. Returns their bytes, which
    /// the caller gives back to the room later.
    pub(crate) fn keep_pages(&self) -> u64 {
        let bytes = self.share.taken.load(Ordering::Relaxed);
        let is_kept = self.is_small() && !self.is_refused() && self.share.stack.kept.take(bytes);
        self.keeps_pages.store(is_kept, Ordering::Relaxed);
        if is_kept { bytes } else { 0 }
    }

    /// Writes everything out, and closes the file.
    ///
    /// # Errors
    /// The error of the write. Pages that the engine does not take are lost.
    pub(crate) fn close(
        self,
        of_engine: impl FnOnce(forebay::Error) -> io::Error,
    ) -> io::Result<()> {
        // The engine has the file after most errors.
        let written = self.write_out();
        let keeps_pages = self.keeps_pages.load(Ordering::Relaxed);
        match self.stage.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Stage::Small(file) => {
                if !keeps_pages {
                    page_cache::drop_pages(&file);
                }
                written
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

    /// Opens a file in the engine, and writes the content that the device has refused.
    fn enter_engine(&self, given: fs::File, again: &[u8]) -> io::Result<File> {
        let file = self
            .stack
            .engine
            .open_fd(given, OpenOptions::new().read(true).write(true))
            .map_err(of_engine)?;
        forebay::inside::leave_accessed(&file);
        if !again.is_empty()
            && let Err(error) = file.write_at(again, 0)
        {
            // Later writes go to the page cache. The bytes accepted here must not follow them.
            discard(file);
            return Err(of_engine(error));
        }
        Ok(file)
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
    let _ = file.abandon_unwritten();
    let _ = file.close();
}

/// Switches an open file to the page cache, with all duplicates of its descriptor.
fn go_buffered(file: &fs::File) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    Ok(rustix::fs::fcntl_setfl(file, flags - OFlags::DIRECT)?)
}

/// Reads the pages of a small file, which the kernel has kept.
///
/// # Errors
/// `EIO` for a file that a program has made much longer, past the engine: there is no memory for
/// it. Each sync fails then.
fn content_of(file: &fs::File) -> io::Result<Vec<u8>> {
    let bytes = file.metadata()?.len();
    if bytes > SMALL_BYTES {
        return Err(io::Error::from_raw_os_error(libc::EIO));
    }
    let mut content = vec![0; bytes as usize];
    file.read_exact_at(&mut content, 0)?;
    Ok(content)
}

#[cfg(test)]
mod tests;
