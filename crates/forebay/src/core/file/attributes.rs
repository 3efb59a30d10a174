//! Attributes of a file: size, owner, permission bits and times, extents and reserved space.

use std::sync::Arc;

use forebay_cache::TicketKind;

use crate::core::error::{Error, ErrorKind, Result};
use crate::core::file::File;
use crate::core::inode::Inode;
use crate::core::wait;
use crate::platform::{FileTime, Times};

/// Attributes of a file, as [`File::metadata`] returns them.
///
/// ```
/// use forebay::{Engine, OpenOptions};
///
/// # fn main() -> forebay::Result<()> {
/// # let directory = tempfile::tempdir_in(".").unwrap();
/// # let path = directory.path().join("file");
/// # let engine = Engine::new()?;
/// let mut open = OpenOptions::new();
/// let file = engine.open(&path, open.read(true).write(true).create(true).mode(0o600))?;
/// file.write_at(b"hello", 0)?;
/// let metadata = file.metadata()?;
/// assert_eq!((metadata.len, metadata.mode & 0o7777, metadata.links), (5, 0o600, 1));
/// # file.close()
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Metadata {
    /// Size in bytes, including accepted data that is not written yet.
    pub len: u64,
    /// Bytes of allocated space, including space that the engine has reserved.
    pub allocated_bytes: u64,
    /// Type and permission bits (`st_mode`).
    pub mode: u32,
    /// User that owns the file.
    pub user: u32,
    /// Group that owns the file.
    pub group: u32,
    /// Number of names.
    pub links: u64,
    /// Device number of the file system (`st_dev`), or of the block device itself.
    pub device: u64,
    /// Inode number. For a block device, a number that no file has.
    pub inode: u64,
    /// Time of the last read that reached the file system. Reads from memory do not count.
    pub accessed: FileTime,
    /// Time of the last write that reached the file system. Accepted data that is not written yet
    /// does not count.
    pub modified: FileTime,
    /// Time of the last change of an attribute in the file system.
    pub changed: FileTime,
}

impl File {
    /// Returns the attributes of the file. Does not wait for the device; it makes one system call.
    ///
    /// The size is exact. The times are those of the file system, so they change when data is
    /// written back, not when it is accepted.
    ///
    /// # Errors
    /// `Shutdown` and `Forked`; otherwise the error of the system.
    pub fn metadata(&self) -> Result<Metadata> {
        self.shared.check()?;
        let status = self.inode.file.status().map_err(|error| {
            Error::at_open("could not examine the file", &self.inode.path, error)
        })?;
        Ok(Metadata {
            len: self.len()?,
            allocated_bytes: status.allocated_bytes,
            mode: status.mode,
            user: status.user,
            group: status.group,
            links: status.links,
            device: self.inode.identity.device,
            inode: self.inode.identity.inode,
            accessed: status.accessed,
            modified: status.modified,
            changed: status.changed,
        })
    }

    /// Sets times of the file. Blocks until all data accepted before is written, because the
    /// writing would set the time of the last write again. Later writes do.
    ///
    /// The times are durable after the next [`File::sync_all`].
    ///
    /// # Errors
    /// As [`File::write_out`]; `NotPermitted` on a handle for reading; `PermissionDenied` for a
    /// file of another user; `Io` with the reason of the system.
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use forebay::{Engine, OpenOptions, Times};
    ///
    /// # fn main() -> forebay::Result<()> {
    /// # let directory = tempfile::tempdir_in(".").unwrap();
    /// # let path = directory.path().join("file");
    /// # let engine = Engine::new()?;
    /// let file = engine.open(&path, OpenOptions::new().read(true).write(true).create(true))?;
    /// let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    /// file.set_times(Times { modified: Some(then), ..Times::default() })?;
    /// assert_eq!(file.metadata()?.modified, then);
    /// # file.close()
    /// # }
    /// ```
    pub fn set_times(&self, times: Times) -> Result<()> {
        wait::block_on(self.set_times_async(times))
    }

    /// Asynchronous form of [`File::set_times`]. If the future is dropped, the times may be set.
    pub(crate) async fn set_times_async(&self, times: Times) -> Result<()> {
        self.may_write()?;
        // Reserved space is given back, too: that would set the time when the file is closed.
        let written = self.ask(TicketKind::Release).await;
        self.and_unreported(written)?;
        let inode = Arc::clone(&self.inode);
        let set = move || {
            inode.file.set_times(times).map_err(|error| {
                let kind = match ErrorKind::at_open(&error) {
                    ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
                    _ => ErrorKind::Io,
                };
                Error::new(kind, "could not set the times of the file")
                    .at_path(&inode.path)
                    .because(error)
            })
        };
        wait::offload(&self.shared, set).await
    }
}

/// Extents and allocated space of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Layout {
    /// Number of extents, as the file system counts them. Reserved space counts as extents of its
    /// own.
    pub extents: u64,
    /// Bytes of allocated space, including the space reserved beyond the end of the file.
    pub allocated_bytes: u64,
    /// Bytes of space that the engine has reserved beyond the end of the file. Closing the file
    /// gives them back.
    pub reserved_bytes: u64,
}

impl Layout {
    pub(crate) fn of(inode: &Inode) -> Result<Self> {
        let reserved_bytes = inode.lock().cache.reserved_beyond_end();
        let extents = inode.file.extents().map_err(|error| {
            Error::new(ErrorKind::Unsupported, "could not read the extents of the file")
                .at_path(&inode.path)
                .because(error)
        })?;
        Ok(Self { extents: extents.count, allocated_bytes: extents.bytes, reserved_bytes })
    }
}
