//! Storage of [redb] over a cached file of Forebay.
//!
//! ```
//! use forebay::Engine;
//! use redb::{Database, ReadableDatabase, TableDefinition};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir_in(".")?;
//! # let path = directory.path().join("file");
//! let engine = Engine::new()?;
//! let database =
//!     Database::builder().create_with_backend(forebay_redb::Backend::open(&engine, &path)?)?;
//! let table = TableDefinition::<u64, &str>::new("table");
//! let write = database.begin_write()?;
//! write.open_table(table)?.insert(1, "one")?;
//! write.commit()?;                                    // durable from here on
//! let read = database.begin_read()?;
//! assert_eq!(read.open_table(table)?.get(1)?.unwrap().value(), "one");
//! # Ok(())
//! # }
//! ```
//!
//! redb has a cache of its own ([`redb::Builder::set_cache_size`], 1 GiB by default), in front of
//! that of the engine. Give most of the memory to one of them.
//!
//! # Locks
//! Other engines and programs are kept out by the lock of the engine, and other databases of this
//! process by a list of the open files. Only redb's default concurrency mode, `ExclusiveWriter`,
//! works: ranges of a file cannot be locked.

mod locks;

use std::fmt;
use std::io;
use std::ops::Bound;
use std::path::Path;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use forebay::{Engine, File, OpenOptions};
use redb::{BackendError, StorageBackend};

use locks::Locks;

/// Storage of one database in a file of Forebay.
///
/// A commit of redb syncs the file, so it is durable as [`File::sync_data`] describes. An error of
/// a write that was accepted before reaches the next sync, and with it the commit.
pub struct Backend {
    /// `None` once the database is closed.
    file: RwLock<Option<File>>,
    locks: Locks,
    /// Dropping the last handle of an engine ends it, and with it the file.
    _engine: Option<Engine>,
}

/// Takes no lock of the engine.
impl fmt::Debug for Backend {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Backend").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Backend {
    /// Opens a file for a database, and creates it if it does not exist. Blocks as
    /// [`Engine::open`]. The engine lives at least as long as the database.
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub fn open(engine: &Engine, path: impl AsRef<Path>) -> forebay::Result<Self> {
        let backend =
            Self::new(engine.open(path, OpenOptions::new().read(true).write(true).create(true))?)?;
        Ok(Self { _engine: Some(engine.clone()), ..backend })
    }

    /// Uses an open file for a database. A handle for reading serves a read-only database.
    ///
    /// # Errors
    /// As [`File::metadata`].
    pub fn new(file: File) -> forebay::Result<Self> {
        let metadata = file.metadata()?;
        let locks = Locks::new((metadata.device, metadata.inode));
        Ok(Self { file: RwLock::new(Some(file)), locks, _engine: None })
    }

    fn with_file<T>(&self, call: impl FnOnce(&File) -> forebay::Result<T>) -> io::Result<T> {
        let file: RwLockReadGuard<'_, Option<File>> =
            self.file.read().unwrap_or_else(PoisonError::into_inner);
        let file = file.as_ref().ok_or_else(|| io::Error::other("the database is closed"))?;
        Ok(call(file)?)
    }
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.with_file(File::len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.with_file(|file| file.read_exact_at(out, offset))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.with_file(|file| file.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.with_file(File::sync_data)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.with_file(|file| file.write_at(data, offset))
    }

    /// Writes the file out, closes it, and reports the last errors.
    fn close(&self) -> io::Result<()> {
        let file = self.file.write().unwrap_or_else(PoisonError::into_inner).take();
        let closed = file.map_or(Ok(()), File::close);
        self.locks.release();
        Ok(closed?)
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        whole(start, end).map(|()| self.locks.try_lock())
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        whole(start, end).map(|()| self.locks.try_lock_shared())
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        whole(start, end).map(|()| self.locks.release())
    }
}

/// Refuses any range but the whole file.
fn whole(start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
    let is_whole =
        matches!(start, Bound::Unbounded | Bound::Included(0)) && end == Bound::Unbounded;
    if is_whole { Ok(()) } else { Err(BackendError::Unsupported) }
}
