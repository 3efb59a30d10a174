//! Copies between files.

use super::Engine;
use crate::core::error::Result;
use crate::core::file::File;
use crate::core::wait;

impl Engine {
    /// Copies the whole content of `from` to `to`, and makes `to` as long. Returns the number of
    /// bytes. Blocks.
    ///
    /// The copy has all data accepted by `from` before the call. It is in the cache, like any
    /// written data: a sync of `to` makes it durable. Reading runs ahead of writing, in a few
    /// MiB of memory beside the cache. If the handles are [uncached](crate::Open::uncached), the
    /// copied pages leave the cache at once, so a large copy evicts nothing else.
    ///
    /// Writes to either file during the copy may be missing from it. Holes become zeroes.
    /// Permission bits and times are not copied; [`File::set_times`] sets times.
    ///
    /// # Errors
    /// As [`File::read_at`] for `from`, and as [`File::write_at`] and [`File::set_len`] for `to`;
    /// `InvalidInput` if both are the same file. After an error, `to` has unspecified content.
    ///
    /// ```
    /// use forebay::{Engine, Open};
    ///
    /// # fn main() -> forebay::Result<()> {
    /// # let directory = tempfile::tempdir_in(".").unwrap();
    /// # let (one, other) = (directory.path().join("one"), directory.path().join("other"));
    /// # std::fs::write(&one, b"hello").unwrap();
    /// let engine = Engine::new()?;
    /// let from = engine.open(&one, Open::read().uncached(true))?;
    /// let to = engine.open(&other, Open::create().uncached(true))?;
    /// assert_eq!(engine.copy(&from, &to)?, 5);
    /// to.sync_all()?;
    /// # to.close()
    /// # }
    /// ```
    pub fn copy(&self, from: &File, to: &File) -> Result<u64> {
        wait::block_on(self.copy_async(from, to))
    }

    /// Asynchronous form of [`Engine::copy`]. The data is copied while the future is polled; a
    /// dropped future leaves `to` with unspecified content.
    ///
    /// # Errors
    /// As [`Engine::copy`].
    pub async fn copy_async(&self, from: &File, to: &File) -> Result<u64> {
        self.owner.shared.check()?;
        from.copy_to(to).await
    }
}
