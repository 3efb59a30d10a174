//! The engine: opens files, and writes everything out at the end.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay_block::Target;

use crate::core::batch::Batch;
use crate::core::context::start::Contexts;
use crate::core::engine::owner::{Control, Last, Life, Owner};
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::file::File;
use crate::core::inode::Inode;
use crate::core::lease;
use crate::core::logged::{IntentLog, atomic, both_threads};
use crate::core::open::open_options::OpenOptions;
use crate::core::options::Options;
use crate::core::recovery::KeeperState;
use crate::core::shared::{Parts, Shared};
use crate::core::stats::Stats;
use crate::core::sync::together::{self, SyncManyError};
use crate::core::wait;
use crate::platform::sync::Mutex;
use crate::platform::{LeaseWatch, thread};

mod controls;
mod direct;
pub(crate) mod owner;

pub(crate) use self::owner::Serving;

/// Cache in a fixed amount of memory, with the threads that write it out. It opens files.
///
/// A program normally has one engine and opens all its files with it. Clones share the same engine.
///
/// ```
/// use std::time::Duration;
/// use forebay::{Engine, OpenOptions};
///
/// # fn main() -> forebay::Result<()> {
/// # let directory = tempfile::tempdir_in(".").unwrap();
/// # let path = directory.path().join("file");
/// let engine = Engine::new()?;
/// let file = engine.open(&path, OpenOptions::new().read(true).write(true).create(true))?;
/// file.write_at(b"hello", 0)?;
/// file.close()?;
/// engine.shutdown(Duration::from_secs(10))
/// # }
/// ```
///
/// Dropping the last clone writes everything out and waits for that, up to
/// [`Options::close_timeout`](crate::Options::close_timeout). Errors go to
/// [`Builder::on_error`](crate::Builder::on_error). [`Engine::shutdown`] does the same and returns
/// the error. Remaining handles then fail with `Shutdown`.
///
/// A callback or a waker may drop the last clone on a thread of the engine. That drop returns at
/// once, and a new thread does the rest. If the program exits before that thread has ended, it
/// loses data that is not written.
#[derive(Clone)]
pub struct Engine {
    pub(crate) owner: Arc<Last>,
}

/// Takes no lock, so it can be used anywhere.
impl std::fmt::Debug for Engine {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let description = &self.owner.description;
        formatter.debug_struct("Engine").field("description", description).finish_non_exhaustive()
    }
}

impl Engine {
    pub(crate) fn assemble(
        mut parts: Parts,
        watch_keeper: impl FnOnce(&Arc<Shared>) -> Result<()>,
    ) -> Result<Self> {
        let alive = parts.keeper.as_ref().and_then(|keeper| keeper.alive());
        let arena = Arc::clone(&parts.arena);
        let (contexts, ended) = Contexts::new(parts.settings.backend, arena, alive);
        let opened = parts.log.take();
        let log = opened.as_ref().map(|opened| Arc::new(IntentLog::new(opened)));
        let shared = Arc::new(Shared::new(parts, Box::new(contexts), log));
        watch_keeper(&shared)?;
        let description = shared.start()?;
        if let (Some(log), Some(opened)) = (&shared.log, opened) {
            both_threads::start(&shared, log, opened.file)?;
        }
        let weak = Arc::downgrade(&shared);
        let watch = LeaseWatch::new(move |key| {
            thread::mark_as_ours();
            if let Some(shared) = weak.upgrade() {
                lease::on_break(&shared, Target(key as u32));
            }
        });
        let watch = watch
            .map_err(|error| Error::new(ErrorKind::Io, "could not watch leases").because(error))?;
        let owner = Owner {
            shared,
            leases: watch,
            ended,
            description,
            life: Life::default(),
            control: Mutex::default(),
        };
        Ok(Self { owner: Arc::new(Last(Arc::new(owner))) })
    }

    /// Opens a file or block device. Blocks, for a few seconds if another program holds a lease on
    /// the file. Opens of one file wait for each other; opens of different files do not.
    ///
    /// A handle for reading opens the file for reading only, so other programs can execute it. The
    /// first handle for writing opens it for writing too, until all handles are closed.
    ///
    /// All handles of a file in this engine share one cache. A file is read and written with direct
    /// I/O if the file system supports that; otherwise I/O goes through the page cache of the
    /// kernel, and [`File::describe`] says why.
    ///
    /// A block device is opened exclusively, even for reading: no other program can mount it, or
    /// open it exclusively, until all handles are closed. Its size stays what it was when opened.
    ///
    /// # Errors
    /// - `NotFound`, `AlreadyExists`, `PermissionDenied`, or for any other reason of the system
    ///   `Open`. A handle for writing needs the right to read, too. A file with the attribute `a`
    ///   of `chattr` is refused: the engine rewrites the last block of a file.
    /// - `Busy` if another engine has the file open for writing, if this engine has it open by
    ///   [`Engine::open_direct`], or if a block device is mounted or in use.
    /// - `Unsupported` for anything but a regular file or block device, and for appending to or
    ///   truncating a block device.
    /// - `NotPermitted` for writing to a block device that is already open in this engine and could
    ///   only be opened for reading.
    /// - `InvalidInput` for [options](OpenOptions) that contradict each other.
    /// - `Shutdown` if the engine was shut down before the open ended.
    pub fn open(&self, path: impl AsRef<Path>, options: &OpenOptions) -> Result<File> {
        let path = path.as_ref();
        let open = self.may_open(path, options)?;
        let file = self.open_cached(path, open);
        // Dropped if the engine was shut down meanwhile.
        self.owner.shared.check()?;
        file
    }

    fn open_cached(&self, path: &Path, open: OpenOptions) -> Result<File> {
        self.handle(self.find(path, &open)?, open)
    }

    /// Returns a handle of a file that is counted in the table.
    pub(crate) fn handle(&self, inode: Arc<Inode>, open: OpenOptions) -> Result<File> {
        let (shared, is_cut) = (Arc::clone(&self.owner.shared), open.truncate);
        let file = File::new(shared, inode, open);
        if is_cut && file.len()? > 0 {
            file.set_len_unchecked(0)?;
        }
        Ok(file)
    }

    /// Makes all data of several files durable that was accepted before the call. It takes fewer
    /// commits of the journal and flushes of the device than a sync of each. Blocks.
    ///
    /// Only these files are written. The file system may have to commit changes of other files with
    /// theirs, and the device flushes its whole cache.
    ///
    /// ```
    /// use forebay::{Engine, OpenOptions};
    ///
    /// # fn main() -> forebay::Result<()> {
    /// # let directory = tempfile::tempdir_in(".").unwrap();
    /// let engine = Engine::new()?;
    /// let mut options = OpenOptions::new();
    /// options.write(true).create(true);
    /// let open = |name: &str| engine.open(directory.path().join(name), &options);
    /// let (table, index) = (open("table")?, open("index")?);
    /// table.write_at(b"rows", 0)?;
    /// index.write_at(b"keys", 0)?;
    /// engine.sync_many(&[&table, &index])?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`SyncManyError`] has the index and the error of each file that may not be durable: an error
    /// as from [`File::sync_data`], or `InvalidInput` for a file of another engine. An error of one
    /// file does not stop the others.
    pub fn sync_many(&self, files: &[&File]) -> std::result::Result<(), SyncManyError> {
        if wait::may_block().is_err() {
            return SyncManyError::check(files.iter().map(|_| wait::may_block()).collect());
        }
        wait::drive(self.sync_many_async(files))
    }

    /// Asynchronous form of [`Engine::sync_many`]. Dropping the future does not stop what has
    /// begun.
    pub(crate) async fn sync_many_async(
        &self,
        files: &[&File],
    ) -> std::result::Result<(), SyncManyError> {
        SyncManyError::check(together::sync(&self.owner.shared, files).await)
    }

    /// Writes ranges of several files, all or none: after a crash at any moment the files have all
    /// of these bytes, or none. They are durable when this returns. Blocks.
    ///
    /// It needs an intent log ([`Builder::intent_log`](crate::Builder::intent_log)), and files that
    /// can use it. It is one write of the log and one flush. The first write of a file costs some
    /// syncs more. The ranges of a file must not overlap, and all have at most 16 MiB, or a quarter
    /// of the log.
    ///
    /// The bytes are seen by reads once they are durable, one range after the other. A write of the
    /// same bytes at the same time is before or after. Data that was written before becomes durable
    /// by a sync only.
    ///
    /// ```
    /// use forebay::{Engine, OpenOptions, Options};
    ///
    /// # fn main() -> forebay::Result<()> {
    /// # let directory = tempfile::tempdir_in(".").unwrap();
    /// let engine = Engine::builder(Options::default()).intent_log(directory.path()).build()?;
    /// let mut options = OpenOptions::new();
    /// options.write(true).create(true);
    /// let open = |name: &str| engine.open(directory.path().join(name), &options);
    /// let (table, index) = (open("table")?, open("index")?);
    /// let written = engine.atomic(&[(&table, 0, b"rows"), (&index, 0, b"keys")]);
    /// # let is_possible = !matches!(&written, Err(error)
    /// #     if error.kind() == forebay::ErrorKind::Unsupported);
    /// # if is_possible {
    /// written?;
    /// # }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// After all but `Unknown` nothing has changed:
    /// - `Unsupported` without an intent log, or for a file that cannot use it.
    /// - `InvalidInput` for a file of another engine, ranges that overlap, or too many bytes.
    /// - `Busy` if the files or the log were busy for 20 s.
    /// - As [`File::write_at`] and [`File::sync_all`].
    /// - `Unknown` if a write of the log failed: see [`ErrorKind::Unknown`].
    pub fn atomic(&self, writes: &[(&File, u64, &[u8])]) -> Result<()> {
        atomic::write(&self.owner.shared, writes)
    }

    /// Begins a [`Batch`]: many new files that become durable, and get their names, together. Does
    /// not block.
    #[must_use]
    pub fn batch(&self) -> Batch {
        Batch::new(&self.owner.shared)
    }

    /// Returns the options of the engine. Does not block.
    #[must_use]
    pub fn options(&self) -> Options {
        self.owner.shared.options()
    }

    /// Changes the options of the running engine, except those that are fixed once it is built
    /// (`cache_bytes`, `buffer_bytes` and `backend`). Does not block, except to start the threads
    /// of more `contexts`.
    ///
    /// A change takes effect from the next pass of each context on. Lower limits of dirty bytes
    /// make writers wait until enough is written. Files that move to another context keep their
    /// writes in flight. Space reserved before a change of `prealloc` is given back when its file
    /// is closed.
    ///
    /// ```
    /// use std::time::Duration;
    /// use forebay::{Engine, Options};
    ///
    /// # fn main() -> forebay::Result<()> {
    /// let engine = Engine::new()?;
    /// engine.set_options(Options { dirty_age: Duration::from_millis(500), ..engine.options() })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// After an error nothing has changed.
    /// - `InvalidInput` for an invalid value, values that do not fit each other, or a change of an
    ///   option that is fixed; the message lists what is valid.
    /// - `NotPermitted` if `context_priority` is `Realtime` and the system does not allow it.
    /// - `Io` or `Unsupported` if another context could not be started.
    /// - `Shutdown` if the engine was shut down.
    pub fn set_options(&self, options: Options) -> Result<()> {
        self.owner.shared.change_options(|now| {
            *now = options;
            Ok(())
        })
    }

    /// Returns the counters of the engine since it was built. Does not block.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.owner.shared.stats()
    }

    /// Returns the state of the keeper, or `None` if the engine was built without one
    /// ([`Builder::survive`](crate::Builder::survive)). Blocks at most while the keeper answers
    /// another call.
    #[must_use]
    pub fn keeper(&self) -> Option<KeeperState> {
        self.owner.shared.keeper.as_ref().map(|keeper| keeper.state())
    }

    /// Starts a service that runs until the engine ends, such as a control socket. An engine has
    /// one at most.
    ///
    /// # Errors
    /// `Busy` if the engine has one already; otherwise the error of the start.
    pub(crate) fn serve(
        &self,
        start: impl FnOnce(&Arc<Shared>) -> Result<Box<dyn Serving>>,
    ) -> Result<()> {
        let owner = &self.owner;
        wait::may_block()?;
        owner.shared.check()?;
        Control::begin(&owner.control)?;
        // Without the lock: this accesses the file system.
        let started = start(&owner.shared);
        Control::served(&owner.control, started)
    }

    /// Returns which system calls the engine uses and which features are missing, in one line, such
    /// as `io_uring: full` or `thread pool: io_uring is forbidden here: ...`. The prices of disks
    /// follow, once completions have shown them, with the number of each device, such as
    /// `; disk 259:1: about 3,000 requests/s, 125 MB/s, a flush takes 1.1 ms; a request costs as
    /// much as 41 KiB`. With an intent log, its directory and its state follow.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut text = self.owner.description.clone();
        for (device, price) in self.owner.shared.table().prices() {
            let (major, minor) = (libc::major(device), libc::minor(device));
            text.push_str(&format!("; disk {major}:{minor}: {price}"));
        }
        if let Some(log) = &self.owner.shared.log {
            text.push_str(&log.describe());
        }
        text
    }

    /// Writes everything out, gives back reserved space, and stops the engine. Blocks for at most
    /// `timeout`.
    ///
    /// Written data is not flushed: call a sync before, if data must survive a power cut. Remaining
    /// handles then fail with `Shutdown`. A second call does nothing.
    ///
    /// # Errors
    /// - `Io` or `NoSpace` for the first page that could not be written, and `Io` if the engine
    ///   broke before it had written everything.
    /// - `Poisoned` after a failed flush that no call has returned, of a file with handles.
    /// - `TimedOut` if the device did not finish in time. Memory in flight is then never freed. A
    ///   second call only waits for the first, and reports `TimedOut` if that takes too long.
    /// - `WouldDeadlock` on a thread of the engine, and `Forked` in a forked child.
    ///
    /// Unwritten data is lost without a keeper. A keeper continues to write it, and keeps the files
    /// locked until it is done.
    pub fn shutdown(&self, timeout: Duration) -> Result<()> {
        self.owner.shutdown(timeout)
    }
}
