//! Reads and writes of several pieces of memory at once: one plan for all of them.

use std::io::{IoSlice, IoSliceMut};

use crate::error::Result;
use crate::file::File;
use crate::slices::{Slices, SlicesMut};
use crate::wait;

impl File {
    /// As [`File::read_at`], into one buffer after the other. Blocks as it does.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub fn read_vectored_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        wait::block_on(self.read_vectored_at_async(buffers, offset))
    }

    /// As [`File::read_vectored_at`].
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

    /// As [`File::write_at`], of one piece of data after the other. Blocks as it does.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub fn write_vectored_at(&self, data: &[IoSlice<'_>], offset: u64) -> Result<()> {
        wait::block_on(self.write_vectored_at_async(data, offset))
    }

    /// As [`File::write_vectored_at`].
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub async fn write_vectored_at_async(&self, data: &[IoSlice<'_>], offset: u64) -> Result<()> {
        self.write_all_at(Slices::new(data), offset).await
    }

    /// As [`File::append`], of one piece of data after the other: they stand together in the file.
    /// Blocks as it does.
    ///
    /// # Errors
    /// As [`File::append`].
    pub fn append_vectored(&self, data: &[IoSlice<'_>]) -> Result<u64> {
        wait::block_on(self.append_vectored_async(data))
    }

    /// As [`File::append_vectored`].
    ///
    /// # Errors
    /// As [`File::append`].
    pub async fn append_vectored_async(&self, data: &[IoSlice<'_>]) -> Result<u64> {
        let (offset, _, result) = self.append_all(Slices::new(data)).await;
        result.map(|()| offset)
    }
}
