//! Reads and writes of several slices, as one operation.

use std::io::{IoSlice, IoSliceMut};

use crate::core::error::Result;
use crate::core::file::File;
use crate::core::slices::{Slices, SlicesMut};
use crate::core::wait;

impl File {
    /// Reads from `offset` into several buffers in order. Returns the number of bytes read. Blocks
    /// as [`File::read_at`].
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub fn read_vectored_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        wait::block_on(self.read_vectored_at_async(buffers, offset))
    }

    /// Asynchronous form of [`File::read_vectored_at`].
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub async fn read_vectored_at_async(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        offset: u64,
    ) -> Result<usize> {
        self.read_into(SlicesMut::new(buffers), offset).await
    }

    /// Writes several slices, one after the other, at `offset`. Blocks as [`File::write_at`].
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub fn write_vectored_at(&self, data: &[IoSlice<'_>], offset: u64) -> Result<()> {
        wait::block_on(self.write_vectored_at_async(data, offset))
    }

    /// Asynchronous form of [`File::write_vectored_at`]. A dropped future has written a prefix.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub async fn write_vectored_at_async(&self, data: &[IoSlice<'_>], offset: u64) -> Result<()> {
        self.write_all_at(Slices::new(data), offset).await
    }

    /// Appends several slices as one contiguous record and returns its offset. Blocks as
    /// [`File::append`].
    ///
    /// # Errors
    /// As [`File::append`].
    pub fn append_vectored(&self, data: &[IoSlice<'_>]) -> Result<u64> {
        wait::block_on(self.append_vectored_async(data))
    }

    /// Asynchronous form of [`File::append_vectored`]. A dropped future has appended a prefix.
    ///
    /// # Errors
    /// As [`File::append`].
    pub async fn append_vectored_async(&self, data: &[IoSlice<'_>]) -> Result<u64> {
        let (offset, _, result) = self.append_all(Slices::new(data)).await;
        result.map(|()| offset)
    }
}
