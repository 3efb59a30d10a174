//! Extents of a file and the space reserved for it.

use crate::core::error::{Error, ErrorKind, Result};
use crate::core::inode::Inode;

/// Extents and allocated space of a file, as [`File::layout`](crate::File::layout) returns them.
///
/// ```
/// # use forebay::{Engine, ErrorKind, Open};
/// # fn main() -> forebay::Result<()> {
/// # let directory = tempfile::tempdir_in(".").unwrap();
/// # let path = directory.path().join("file");
/// # let engine = Engine::new()?;
/// let file = engine.open(&path, Open::create())?;
/// file.write_at(&[1; 65536], 0)?;
/// file.sync_data()?;
/// match file.layout() {
///     Ok(layout) => println!("{} bytes in {} extents", layout.allocated_bytes, layout.extents),
///     Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported),   // such as tmpfs
/// }
/// # file.close()
/// # }
/// ```
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

    /// Returns the mean size of an extent in bytes, or 0 if the file has none.
    #[must_use]
    pub fn mean_extent_bytes(&self) -> u64 {
        self.allocated_bytes.checked_div(self.extents).unwrap_or(0)
    }
}
