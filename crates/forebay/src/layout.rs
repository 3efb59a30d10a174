//! How a file lies: in how many pieces, and what is reserved for it.

use crate::error::{Error, ErrorKind, Result};
use crate::inode::Inode;

/// How a file lies on its device, as [`File::layout`](crate::File::layout) tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Layout {
    /// Its extents, as its file system counts them: what is reserved counts for itself beside what
    /// is written.
    pub extents: u64,
    /// Bytes of space it has, those reserved beyond its end included.
    pub allocated_bytes: u64,
    /// Bytes reserved beyond its end now, which its close gives back.
    pub reserved_bytes: u64,
    /// Bytes of the stretches its file system was told to allocate for it; zero where it was not
    /// told.
    pub extent_hint_bytes: u64,
}

impl Layout {
    pub(crate) fn of(inode: &Inode) -> Result<Self> {
        let reserved_bytes = inode.lock().cache.reserved_beyond_end();
        let extents = inode.file.extents().map_err(|error| {
            Error::new(ErrorKind::Unsupported, "its file system does not tell how a file lies")
                .at_path(&inode.path)
                .because(error)
        })?;
        // Most have none: that is no error.
        let hint = inode.file.extent_hint().ok().flatten();
        Ok(Self {
            extents: extents.count,
            allocated_bytes: extents.bytes,
            reserved_bytes,
            extent_hint_bytes: hint.map_or(0, u64::from),
        })
    }

    /// Bytes of an extent on average; zero where there is none.
    #[must_use]
    pub fn mean_extent_bytes(&self) -> u64 {
        self.allocated_bytes.checked_div(self.extents).unwrap_or(0)
    }
}
