//! The engine: opens files, and writes everything out at the end.

pub(crate) mod adopt;
mod copying;
mod device;
mod direct;
pub(crate) mod given;
mod knobs;
pub(crate) mod lease;
mod life;
mod offloaded;
mod opening;
mod owner;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay_block::Target;
use forebay_cache::file::{Entry, Reserving};
use forebay_cache::limits::PAGE;
use forebay_cache::{CachedFile, Liberties, Origin};
use forebay_lists::Until;

use self::lease::Claim;
pub(crate) use self::life::Serving;
use self::life::{Control, Life};
use self::opening::{Found, Sought, find_holes};
use self::owner::{Last, Owner};
use crate::core::batch::Batch;
use crate::core::contexts::Contexts;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::file::File;
use crate::core::inode::{Hold, Inode};
use crate::core::knobs::Knob;
use crate::core::message::Message;
use crate::core::open::Open;
use crate::core::shared::{Parts, Shared};
use crate::core::standby::KeeperState;
use crate::core::stats::Stats;
use crate::core::table::Table;
use crate::core::together;
use crate::core::wait;
use crate::platform::sync::Mutex;
use crate::platform::{Access, Identity, Kind, LeaseWatch, thread};

/// Cache for files, with its memory, threads and rings.
///
/// A program normally has one engine and opens all its files with it. Clones share the same engine.
///
/// Dropping the last clone writes everything out and waits for that, up to
/// [`Builder::close_timeout`](crate::Builder::close_timeout). Errors go to
/// [`Builder::on_error`](crate::Builder::on_error). [`Engine::shutdown`] does the same and returns
/// the error. Remaining handles then fail with `Shutdown`.
///
/// A callback or a waker may drop the last clone on a thread of the engine. That drop returns at
/// once, and a new thread does the rest. If the program exits before that thread has ended, it
/// loses data that is not written.
///
/// ```
/// use std::time::Duration;
/// use forebay::{Engine, Open};
///
/// # fn main() -> forebay::Result<()> {
/// # let directory = tempfile::tempdir_in(".").unwrap();
/// # let path = directory.path().join("file");
/// let engine = Engine::new()?;
/// let file = engine.open(&path, Open::create())?;
/// file.write_at(b"hello", 0)?;
/// file.close()?;
/// engine.shutdown(Duration::from_secs(10))
/// # }
/// ```
#[derive(Clone)]
pub struct Engine {
    owner: Arc<Last>,
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
        parts: Parts,
        watch_keeper: impl FnOnce(&Arc<Shared>) -> Result<()>,
        patience: Duration,
    ) -> Result<Self> {
        let alive = parts.keeper.as_ref().and_then(|keeper| keeper.alive());
        let arena = Arc::clone(&parts.arena);
        let (contexts, ended) = Contexts::new(parts.settings.backend, arena, alive);
        let shared = Arc::new(Shared::new(parts, Box::new(contexts)));
        watch_keeper(&shared)?;
        let description = shared.start()?;
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
            patience,
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
    /// - `InvalidInput` for [`Open::truncate`] with a handle for reading.
    /// - `Shutdown` if the engine was shut down before the open ended.
    pub fn open(&self, path: impl AsRef<Path>, open: Open) -> Result<File> {
        let path = path.as_ref();
        self.may_open(path, &open)?;
        let file = self.open_cached(path, &open);
        // Dropped if the engine was shut down meanwhile.
        self.owner.shared.check()?;
        file
    }

    fn open_cached(&self, path: &Path, open: &Open) -> Result<File> {
        let inode = self.find(
            path,
            open,
            |sought, identity| self.share(sought, identity),
            |found| self.open_new(path, open, found),
        )?;
        self.handle(inode, open.clone())
    }

    /// Returns a handle of a file that is counted in the table.
    fn handle(&self, inode: Arc<Inode>, open: Open) -> Result<File> {
        let (shared, is_cut) = (Arc::clone(&self.owner.shared), open.truncate);
        let file = File::new(shared, inode, open, self.owner.patience);
        if is_cut && !file.is_empty()? {
            file.set_len_unchecked(0)?;
        }
        Ok(file)
    }

    /// Makes all data of several files durable that was accepted before the call. It takes fewer
    /// commits of the journal and flushes of the device than a sync of each. Returns a result for
    /// each file, as [`File::sync_data`] does. Blocks.
    ///
    /// Only these files are written. The file system may have to commit changes of other files with
    /// theirs, and the device flushes its whole cache.
    ///
    /// ```
    /// use forebay::{Engine, Open};
    ///
    /// # fn main() -> forebay::Result<()> {
    /// # let directory = tempfile::tempdir_in(".").unwrap();
    /// let engine = Engine::new()?;
    /// let open = |name: &str| engine.open(directory.path().join(name), Open::create());
    /// let (table, index) = (open("table")?, open("index")?);
    /// table.write_at(b"rows", 0)?;
    /// index.write_at(b"keys", 0)?;
    /// for result in engine.sync_many(&[&table, &index]) {
    ///     result?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Each result as from [`File::sync_data`]; `InvalidInput` for a file of another engine. An
    /// error of one file does not stop the others.
    pub fn sync_many(&self, files: &[&File]) -> Vec<Result<()>> {
        if wait::may_block().is_err() {
            return files.iter().map(|_| wait::may_block()).collect();
        }
        wait::drive(self.sync_many_async(files))
    }

    /// Asynchronous form of [`Engine::sync_many`]. Dropping the future does not stop what has
    /// begun.
    ///
    /// # Errors
    /// As [`Engine::sync_many`].
    pub async fn sync_many_async(&self, files: &[&File]) -> Vec<Result<()>> {
        together::sync(&self.owner.shared, files).await
    }

    /// Begins a batch: many new files that become durable, and get their names, together. Does not
    /// block.
    #[must_use]
    pub fn batch(&self) -> Batch {
        Batch::new(&self.owner.shared)
    }

    /// Changes a knob of the running engine by name, such as `set("dirty_age", "500ms")`.
    ///
    /// Does not block, except to start the threads of more `contexts`. A change takes effect from
    /// the next pass of each context on. Lower limits of dirty bytes make writers wait until enough
    /// is written. Files that move to another context keep their writes in flight.
    /// Space reserved before a change of `prealloc` is given back when its file is closed.
    ///
    #[doc = include_str!("knobs.md")]
    ///
    /// ```
    /// # fn main() -> forebay::Result<()> {
    /// let engine = forebay::Engine::new()?;
    /// engine.set("dirty_age", "500ms")?;
    /// assert_eq!(engine.get("dirty_age")?, "500ms");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// After an error nothing has changed.
    /// - `InvalidInput` for an unknown name, an invalid value, a value that does not fit the other
    ///   knobs, or a knob that is fixed; the message lists what is valid.
    /// - `Io` or `Unsupported` if another context could not be started.
    /// - `Shutdown` if the engine was shut down.
    pub fn set(&self, name: &str, value: &str) -> Result<()> {
        self.owner.shared.set(name, value)
    }

    /// Returns the value of a knob, as [`Engine::set`] takes it. Does not block.
    ///
    /// # Errors
    /// `InvalidInput` for an unknown name; the message lists the known names.
    pub fn get(&self, name: &str) -> Result<String> {
        self.owner.shared.get(name)
    }

    /// Returns every knob with its value, its valid values and its meaning. Does not block.
    #[must_use]
    pub fn knobs(&self) -> Vec<Knob> {
        self.owner.shared.knobs()
    }

    /// Checks whether a file may be opened with these options on this thread.
    fn may_open(&self, path: &Path, open: &Open) -> Result<()> {
        self.owner.shared.check()?;
        if thread::is_ours() {
            return Err(Error::new(
                ErrorKind::WouldDeadlock,
                "cannot open a file on a thread of the engine",
            ));
        }
        if open.truncate && !open.write {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "cannot truncate the file through a handle for reading",
            )
            .at_path(path)
            .remedy("open it with Open::write().truncate(true)"));
        }
        Ok(())
    }

    /// Returns a file that is already open here, for one more handle.
    fn share(&self, sought: Sought<'_>, identity: Identity) -> Result<Option<Arc<Inode>>> {
        let Sought { path, open, is_made } = sought;
        let mut table = self.owner.shared.table_unless_closing(identity);
        self.owner.shared.check()?;
        if table.is_direct(identity) {
            return Err(open_otherwise(path, "past the cache"));
        }
        let Some(inode) = table.share(identity) else { return Ok(None) };
        if is_made {
            // Another open has entered the file that this one created, and its syncs make the entry
            // durable (`Creating`).
            table.unsynced.take(identity);
        }
        drop(table);
        let refused = if open.create_new && !is_made {
            Some(already_there())
        } else if inode.file.kind() == Kind::Block
            && let Err(error) = device::check(path, open)
        {
            Some(error)
        } else if open.write {
            self.make_writable(&inode, path, open).and_then(|()| self.claim_shared(&inode)).err()
        } else {
            None
        };
        match refused {
            None => {
                // Another thread may be waiting for the close of the previous last handle.
                inode.wake_all();
                Ok(Some(inode))
            }
            Some(error) => {
                let mut table = self.owner.shared.table();
                table.drop_handle(identity);
                drop(table);
                self.owner.shared.send(Message::Inode(inode));
                Err(error.at_path(path))
            }
        }
    }

    /// Opens the file of an inode for writing if it is open for reading only.
    fn make_writable(&self, inode: &Arc<Inode>, path: &Path, open: &Open) -> Result<()> {
        let shared = &self.owner.shared;
        if inode.is_writable(shared) {
            return Ok(());
        }
        if inode.file.access() == Access::Read {
            // A read lease is in the way of our own open for writing, too. A device has none.
            let is_exclusive = inode.lock().cache.liberties() == Liberties::Exclusive;
            if is_exclusive && inode.needs_lease {
                inode.break_lease(shared);
            }
            let file = Self::open_for_writing(path, open, &inode.file)?;
            inode.file.make_writable(file).map_err(cannot_look)?;
        }
        // The context registers the new descriptor once no request uses the old one. Then the old
        // one is closed, and does not prevent a lease.
        inode.renew(shared)?;
        inode.enter_arena(shared)?;
        inode.have_kept(shared).inspect_err(|_| inode.lock().leave_arena(shared))
    }

    fn open_new(&self, path: &Path, open: &Open, found: Found) -> Result<Arc<Inode>> {
        let Found { mut file, created, turn: _turn } = found;
        let identity = file.identity();
        let entry = if open.temporary && created {
            Entry::Old
        } else {
            self.take_entry(path, &mut file, created)
        };
        let target = self.owner.shared.table().new_target();
        let entered = self.enter(path, open, file, (created, entry), target);
        if entered.is_err() {
            self.owner.shared.table().free_target(target);
            self.keep_entry(identity, entry);
        }
        entered
    }

    /// Returns whether the directory entry of a just opened file still has to be made durable. If
    /// so, from now on the file holds the directory to flush. The caller must flush it or hand the
    /// entry back to [`Engine::keep_entry`].
    fn take_entry(
        &self,
        path: &Path,
        file: &mut crate::platform::OpenFile,
        created: bool,
    ) -> Entry {
        if created {
            return Entry::New;
        }
        // The table's lock is released before `made_at` opens the directory.
        let is_unsynced = file.kind() == Kind::Regular
            && self.owner.shared.table().unsynced.take(file.identity());
        if !is_unsynced {
            return Entry::Old;
        }
        file.made_at(path);
        Entry::New
    }

    /// Remembers an entry that was taken by an open that failed afterwards.
    fn keep_entry(&self, identity: Identity, entry: Entry) {
        if entry == Entry::New {
            self.owner.shared.table().unsynced.remember(identity);
        }
    }

    fn enter(
        &self,
        path: &Path,
        open: &Open,
        file: crate::platform::OpenFile,
        (created, entry): (bool, Entry),
        target: Target,
    ) -> Result<Arc<Inode>> {
        let at_path = |error: Error| error.at_path(path);
        let is_device = file.kind() == Kind::Block;
        let is_temporary = open.temporary && created;
        let claim = Claim { is_created: created, is_promised: open.exclusive };
        let hold = match open.write {
            _ if is_device || is_temporary => Hold::Private,
            true => self.claim(&file, target, claim).map_err(at_path)?,
            false => self.lease_for_reading(&file, target, claim),
        };
        let liberties = hold.liberties();
        // Another program may have written to a file that was just created. Not to a temporary one.
        let length = match is_temporary {
            true => 0,
            false => file.length().map_err(cannot_look).map_err(at_path)?,
        };
        let is_new = created && length == 0;
        if liberties == Liberties::Exclusive && open.write && !is_device && !created {
            give_back_after_crash(path, &file, length);
        }
        if let crate::platform::Direct::Refused(reason) = file.direct() {
            tracing::warn!(
                path = %path.display(),
                reason,
                "direct I/O is not possible; the file is accessed through the kernel's cache"
            );
        }
        let origin = match length {
            _ if is_device => Origin::Device(length),
            0 => Origin::Empty { entry },
            _ => Origin::Existing(length),
        };
        let mut cache = CachedFile::new(target, origin, liberties);
        cache.set_entry(entry);
        if liberties == Liberties::Exclusive && open.write && matches!(origin, Origin::Existing(_))
        {
            find_holes(&file, length, &mut cache);
        }
        cache.set_reserving(match (is_device, is_new) {
            (true, _) => Reserving::Off,
            (false, true) => self.owner.shared.reserving(),
            (false, false) => self.reserving(&file, length),
        });
        let volume = self.owner.shared.table().volume(file.identity().device, file.kind());
        // Without the lock of the table: this accesses the file system.
        let inode = Arc::new(Inode::new(cache, file, volume, path.to_owned(), hold));
        inode.arm(&self.owner.shared);
        // Nobody looks for a temporary file after the death of its process.
        if !is_temporary {
            inode.enter_arena(&self.owner.shared).map_err(at_path)?;
            if let Err(error) = inode.have_kept(&self.owner.shared) {
                inode.lock().leave_arena(&self.owner.shared);
                return Err(at_path(error));
            }
        }
        if let Err(error) = self.insert(&inode) {
            self.take_back(&inode);
            return Err(error);
        }
        self.look_at_lease(&inode);
        if !is_device && open.write {
            self.flush_what_was_there(&inode);
        }
        Ok(inode)
    }

    /// Enters a file with one handle into the table, and gives it to a context.
    ///
    /// # Errors
    /// `Shutdown` once the engine stops. A shutdown lists the table after setting that state, and
    /// would not write out a file entered later.
    fn insert(&self, inode: &Arc<Inode>) -> Result<()> {
        let mut table = self.owner.shared.table();
        self.owner.shared.check()?;
        self.insert_into(&mut table, inode);
        Ok(())
    }

    fn insert_into(&self, table: &mut Table, inode: &Arc<Inode>) {
        let mut state = inode.lock();
        // Set again: it may have changed meanwhile for all files in the table.
        state.cache.change_reserving(self.owner.shared.reserving());
        drop(state);
        inode.home.set_context(self.owner.shared.contexts.place(&inode.home, &inode.volume));
        let attach = Message::Attach(Arc::clone(inode));
        self.owner.shared.contexts.send_quietly(inode, attach, Until::Message);
        table.insert(Arc::clone(inode));
    }

    /// Removes a file from the arena and the keeper, because it is not entered after all.
    fn take_back(&self, inode: &Inode) {
        let mut state = inode.lock();
        let generation = state.generation();
        state.leave_arena(&self.owner.shared);
        drop(state);
        if let (Some(keeper), Some(generation)) = (&self.owner.shared.keeper, generation) {
            keeper.remove(inode.target.0, generation);
        }
    }

    /// Returns how space may be reserved in an existing file. Space beyond its end belongs to the
    /// user, and could not be distinguished from ours when that is given back.
    fn reserving(&self, file: &crate::platform::OpenFile, length: u64) -> Reserving {
        let beyond = length.next_multiple_of(PAGE);
        match file.has_space_from(beyond) {
            Ok(false) => self.owner.shared.reserving(),
            _ => Reserving::Off,
        }
    }

    /// Returns the counters of the engine since it was built. Does not block.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.owner.shared.stats()
    }

    /// Returns a histogram of how long finished requests waited before their callers were woken, so
    /// that several callers are woken together. Does not block.
    ///
    /// Each entry is the lower edge of a bucket and its count, shortest first, with four buckets
    /// per doubling; the edge is zero for completions that were not held. Waits inside the
    /// kernel (io_uring's `min_wait`) are not included.
    #[must_use]
    pub fn holds(&self) -> Vec<(Duration, u64)> {
        self.owner.shared.holds()
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
    /// as `io_uring: full` or `thread pool: io_uring is forbidden here: ...`.
    #[must_use]
    pub fn describe(&self) -> String {
        self.owner.description.clone()
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

fn already_there() -> Error {
    let there = std::io::Error::from_raw_os_error(libc::EEXIST);
    Error::new(ErrorKind::AlreadyExists, "could not create the file").because(there)
}

fn only_for_reading() -> Error {
    let what = "the device is open for reading, and could not be opened for writing";
    Error::new(ErrorKind::NotPermitted, what).remedy("close its handles, then open it for writing")
}

fn open_otherwise(path: &Path, how: &str) -> Error {
    Error::new(ErrorKind::Busy, format!("the file is open {how} in this engine"))
        .at_path(path)
        .remedy("close its handles first; a file is open either cached or direct")
}

/// Gives back space beyond the end that a crash left reserved. The mark says that it was ours.
fn give_back_after_crash(path: &Path, file: &crate::platform::OpenFile, length: u64) {
    if !matches!(file.reservation_mark(), Ok(Some(_))) {
        return;
    }
    let given_back = file.truncate(length).and_then(|()| file.remove_reservation_mark());
    match given_back {
        Ok(()) => tracing::info!(path = %path.display(), "gave back space reserved before a crash"),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "could not give back reserved space");
        }
    }
}

fn not_served(path: &Path) -> Error {
    Error::new(ErrorKind::Unsupported, "neither a regular file nor a block device")
        .at_path(path)
        .remedy("use std::fs for pipes, sockets and character devices")
}

fn cannot_look(error: std::io::Error) -> Error {
    Error::new(ErrorKind::at_open(&error), "could not examine the file").because(error)
}

fn add_open_remedy(error: Error, cause: &std::io::Error) -> Error {
    match cause.raw_os_error() {
        Some(libc::EACCES) => {
            error.remedy("writing needs read permission, too: a partly written page is read first")
        }
        Some(libc::EPERM) => error.remedy(
            "lsattr shows the attributes: a file that may only be appended to cannot be used, \
             because the engine rewrites its last block; use std::fs",
        ),
        Some(libc::EROFS) => error.remedy("the file system is read-only: open it with Open::read"),
        Some(libc::EWOULDBLOCK) => {
            error.remedy("another program holds a lease on the file and does not release it")
        }
        _ => error,
    }
}

fn copy(error: &std::io::Error) -> std::io::Error {
    error
        .raw_os_error()
        .map_or_else(|| std::io::Error::other(error.to_string()), std::io::Error::from_raw_os_error)
}
