//! Appends of several slices, as one operation.

use std::io::IoSlice;

use crate::core::error::Result;
use crate::core::file::File;
use crate::core::slices::Slices;
use crate::core::wait;

impl File {
    /// Appends several slices as one contiguous record and returns its offset. Blocks as
    /// [`File::append`].
    ///
    /// # Errors
    /// As [`File::append`].
    pub fn append_vectored(&self, data: &[IoSlice<'_>]) -> Result<u64> {
        wait::block_on(self.append_vectored_async(data))
    }

    /// Asynchronous form of [`File::append_vectored`].
    pub(crate) async fn append_vectored_async(&self, data: &[IoSlice<'_>]) -> Result<u64> {
        let (offset, _, result) = self.append_all(Slices::new(data)).await;
        result.map(|()| offset)
    }
}
