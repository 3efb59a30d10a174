//! Reads of a file.

use std::future::poll_fn;
use std::io::IoSliceMut;
use std::task::Poll;

use forebay_cache::Caching;

use crate::core::direct::plug::plugged_no_more;
use crate::core::error::{Error, ErrorKind, Result};
use crate::core::file::File;
use crate::core::read::{Reading, poll_read, start_read};
use crate::core::slices::SlicesMut;
use crate::core::wait;

impl File {
    /// Reads from `offset` into `buffer`. Returns the number of bytes read, which is less than
    /// asked only at the end of the file. Blocks if a page is not in memory.
    ///
    /// # Errors
    /// `NotPermitted` on a handle for writing only; `Io` if the device could not be read; as
    /// [`File::len`]; `Poisoned` after a panic has
    /// interrupted a change of the file's state, until all handles of the file are closed.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.may_read()?;
        let mut reading = self.start_read(buffer.len(), offset);
        let mut slices = [IoSliceMut::new(buffer)];
        let mut buffer = SlicesMut::new(&mut slices);
        let mut done = 0;
        if buffer.len() > 0 {
            match poll_read(&self.inode, &self.shared, None, &mut reading, &mut buffer, offset) {
                Poll::Ready(Ok(read)) if read == 0 || buffer.len() == 0 => return Ok(read),
                Poll::Ready(read) => done = read?,
                Poll::Pending => {}
            }
        }
        wait::block_on(self.read_on(reading, buffer, offset, done))
    }

    /// Asynchronous form of [`File::read_at`].
    pub(crate) async fn read_at_async(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.read_into(SlicesMut::new(&mut [IoSliceMut::new(buffer)]), offset).await
    }

    /// Reads exactly `buffer.len()` bytes from `offset` on. Blocks as [`File::read_at`].
    ///
    /// # Errors
    /// `EndOfFile` if the file ends before the range does; the content of `buffer` is then
    /// unspecified. Otherwise as [`File::read_at`].
    pub fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        wait::block_on(self.read_exact_at_async(buffer, offset))
    }

    /// Asynchronous form of [`File::read_exact_at`].
    pub(crate) async fn read_exact_at_async(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let wanted = buffer.len();
        let read = self.read_at_async(buffer, offset).await?;
        if read == wanted {
            return Ok(());
        }
        let what = format!("the file ended after {read} of {wanted} bytes to read");
        Err(Error::new(ErrorKind::EndOfFile, what).at_path(&self.inode.path).at_offset(offset))
    }

    pub(crate) async fn read_into(&self, buffer: SlicesMut<'_, '_>, offset: u64) -> Result<usize> {
        self.may_read()?;
        let reading = self.start_read(buffer.len(), offset);
        self.read_on(reading, buffer, offset, 0).await
    }

    /// Brings the page at an offset into memory, also of a handle that may not be read.
    pub(crate) async fn bring(&self, offset: u64) -> Result<()> {
        let reading = start_read(&self.inode, &self.shared, offset..offset + 1, Caching::Cached);
        let mut byte = [0];
        let mut slices = [IoSliceMut::new(&mut byte)];
        self.read_on(reading, SlicesMut::new(&mut slices), offset, 0).await.map(drop)
    }

    /// Checks whether this handle may be read.
    pub(crate) fn may_read(&self) -> Result<()> {
        self.shared.check()?;
        if self.open.read {
            return Ok(());
        }
        Err(Error::for_writing(&self.inode.path))
    }

    fn start_read(&self, length: usize, offset: u64) -> Reading {
        let bytes = offset..offset.saturating_add(length as u64);
        start_read(&self.inode, &self.shared, bytes, self.caching())
    }

    /// Continues a read after `done` bytes.
    async fn read_on(
        &self,
        mut reading: Reading,
        mut buffer: SlicesMut<'_, '_>,
        offset: u64,
        mut done: usize,
    ) -> Result<usize> {
        while buffer.len() > 0 {
            let Some(position) = offset.checked_add(done as u64) else { break };
            let step = poll_fn(|context| {
                plugged_no_more(poll_read(
                    &self.inode,
                    &self.shared,
                    Some(context.waker()),
                    &mut reading,
                    &mut buffer,
                    position,
                ))
            });
            match step.await? {
                0 => break,
                read => done += read,
            }
        }
        Ok(done)
    }
}
