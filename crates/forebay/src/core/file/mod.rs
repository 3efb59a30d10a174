//! Handle of a cached file.
//!
//! `endings` has its syncs and its close, `attributes` its metadata, `copy` copies. The other calls
//! are with their verbs: `write/write_at.rs`, `write/append.rs`, `write/discard.rs`,
//! `read/reading.rs`, `space/allocation.rs`.

pub(crate) mod attributes;
mod copy;
mod endings;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use forebay_cache::limits::MAX_OFFSET;
use forebay_cache::{Caching, Liberties};

use crate::core::error::{Error, ErrorKind, Result};
use crate::core::file::attributes::Layout;
use crate::core::inode::Inode;
use crate::core::open::open_options::OpenOptions;
use crate::core::read::file_length;
use crate::core::shared::Shared;
use crate::core::wait;

/// Handle of an open file, cached in memory.
///
/// [`Engine::open`](crate::Engine::open) opens it. A write returns once its data is in memory. Data
/// is durable after a sync.
///
/// ```
/// use forebay::{Engine, OpenOptions};
///
/// # fn main() -> forebay::Result<()> {
/// # let directory = tempfile::tempdir_in(".").unwrap();
/// # let path = directory.path().join("file");
/// let engine = Engine::new()?;
/// let file = engine.open(&path, OpenOptions::new().read(true).write(true).create(true))?;
/// file.write_at(b"hello world", 0)?;
/// let mut word = [0; 5];
/// assert_eq!(file.read_at(&mut word, 6)?, 5);
/// assert_eq!(&word, b"world");
/// file.sync_data()?;                                  // durable from here on
/// file.close()
/// # }
/// ```
///
/// All methods take `&self`, so threads can share a handle. All handles of a file, and of its hard
/// links, share one cache. Reads and writes are atomic per page of 4 KiB.
///
/// [`File::close`] writes the file out and reports the last errors. Dropping a handle only starts
/// the writeback, and errors go to [`Builder::on_error`](crate::Builder::on_error).
pub struct File {
    pub(crate) shared: Arc<Shared>,
    pub(crate) inode: Arc<Inode>,
    pub(crate) open: OpenOptions,
    /// Number of the last page error that this handle has reported.
    pub(super) seen: AtomicU64,
    pub(super) closed: bool,
}

/// Takes no lock, so it can be used anywhere.
impl std::fmt::Debug for File {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (path, is_writable) = (&self.inode.path, self.open.write);
        let mut shown = formatter.debug_struct("File");
        shown.field("path", path).field("is_writable", &is_writable).finish_non_exhaustive()
    }
}

impl File {
    pub(crate) fn new(shared: Arc<Shared>, inode: Arc<Inode>, open: OpenOptions) -> Self {
        Self { shared, inode, open, seen: AtomicU64::new(0), closed: false }
    }

    /// Returns whether pages that it writes and reads stay in memory.
    pub(crate) fn caching(&self) -> Caching {
        match self.open.uncached {
            Some(true) => Caching::Uncached,
            Some(false) => Caching::Cached,
            None => self.shared.caching(),
        }
    }

    /// Returns the size of the file in bytes, including accepted data that is not written yet. Asks
    /// the file system each time if other programs may have the file open, or if it is open for
    /// reading only.
    ///
    /// # Errors
    /// `Open` with the reason of the file system.
    #[allow(clippy::len_without_is_empty, reason = "as `std::fs::Metadata`")]
    pub fn len(&self) -> Result<u64> {
        file_length(&self.inode, &self.shared)
    }

    /// Returns the path that the first handle of the file was opened with. The file may have been
    /// renamed or removed since.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.inode.path
    }

    /// Returns how the file is accessed: `direct`, or `buffered: ` and the reason why direct I/O is
    /// not possible. `; shared` follows if other programs may have the file open, with the reason
    /// if a lease does not count on its file system; `; alone as promised` follows if
    /// [`OpenOptions::assume_exclusive`] takes the place of the lease.
    #[must_use]
    pub fn describe(&self) -> String {
        let way = self.inode.describe();
        match self.inode.lock().cache.liberties() {
            Liberties::Exclusive if self.inode.needs_lease || self.inode.is_private => way,
            Liberties::Exclusive => format!("{way}; alone as promised"),
            Liberties::Shared => match self.inode.file.lease_coverage().gap() {
                None => format!("{way}; shared"),
                Some(gap) => format!("{way}; shared: {gap}"),
            },
        }
    }

    /// Returns the extents of the file and the space reserved for it. Blocks.
    ///
    /// # Errors
    /// `Unsupported` on a block device, or if the file system does not report extents;
    /// `WouldDeadlock` on a thread of the engine.
    pub(crate) fn layout(&self) -> Result<Layout> {
        self.shared.check()?;
        wait::may_block()?;
        Layout::of(&self.inode)
    }

    pub(crate) fn may_write_at(&self) -> Result<()> {
        self.may_write()?;
        if self.open.append {
            let error = Error::new(
                ErrorKind::NotPermitted,
                "cannot write at an offset through a handle for appending",
            );
            return Err(error
                .at_path(&self.inode.path)
                .remedy("use append, or open the file with write instead"));
        }
        Ok(())
    }

    pub(crate) fn may_write(&self) -> Result<()> {
        self.shared.check()?;
        if self.open.write {
            return Ok(());
        }
        Err(Error::for_reading(&self.inode.path))
    }

    /// Checks that the end can be moved: not on a block device.
    pub(crate) fn may_move_end(&self, what: &str, remedy: &str) -> Result<()> {
        match self.inode.fixed_size {
            None => Ok(()),
            Some(_) => Err(Error::new(ErrorKind::Unsupported, what)
                .at_path(&self.inode.path)
                .remedy(remedy.to_owned())),
        }
    }

    pub(crate) fn check_end(&self, end: Option<u64>, offset: u64) -> Result<()> {
        if let Some(size) = self.inode.fixed_size {
            return check_device_end(&self.inode.path, size, end, offset);
        }
        match end {
            Some(end) if end <= MAX_OFFSET && self.inode.can_reach(end) => Ok(()),
            end => Err(Error::too_long(&self.inode.path, offset, end)),
        }
    }
}

/// Checks that a range ends on the device.
pub(crate) fn check_device_end(
    path: &Path,
    size: u64,
    end: Option<u64>,
    offset: u64,
) -> Result<()> {
    if end.is_some_and(|end| end <= size) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::NoSpace,
        format!("the range ends beyond the end of the block device ({size} bytes)"),
    )
    .at_path(path)
    .at_offset(offset)
    .remedy("nothing was changed"))
}
