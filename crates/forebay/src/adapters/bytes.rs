//! The buffers of the crate `bytes`.

use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};
use forebay_uring::Memory;

use crate::core::direct::buffer::{DirectBuffer, private};
use crate::core::error::Result;
use crate::core::file::File;
use crate::core::slices::Slices;
use crate::core::wait;

/// Pieces of a buffer that are planned together.
const PIECES: usize = 64;

impl File {
    /// Writes the remaining bytes of a `bytes::Buf` at `offset`. Blocks as [`File::write_at`].
    ///
    /// The pieces of the buffer are copied straight into the cache, without joining them first. A
    /// `&mut` reference to a buffer works, too. Needs the feature `bytes`.
    ///
    /// ```
    /// use bytes::{Buf, Bytes};
    /// # use forebay::{Engine, OpenOptions};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir_in(".")?;
    /// # let engine = Engine::new()?;
    /// # let file = engine.open(directory.path().join("file"), OpenOptions::new().read(true).write(true).create(true))?;
    /// let (header, body) = (Bytes::from_static(b"header "), Bytes::from(vec![b'x'; 100]));
    /// file.write_buf_at(header.chain(body), 0)?;
    /// assert_eq!(file.len()?, 107);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub fn write_buf_at(&self, data: impl Buf, offset: u64) -> Result<()> {
        wait::block_on(self.write_buf_at_async(data, offset))
    }

    /// Asynchronous form of [`File::write_buf_at`]. A dropped future has written a prefix.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub async fn write_buf_at_async(&self, data: impl Buf, offset: u64) -> Result<()> {
        self.may_write_at()?;
        self.write_buf(data, offset).await
    }

    /// Appends the remaining bytes of a `bytes::Buf` and returns their offset. Blocks as
    /// [`File::append`].
    ///
    /// Needs the feature `bytes`.
    ///
    /// # Errors
    /// As [`File::append`].
    pub fn append_buf(&self, data: impl Buf) -> Result<u64> {
        wait::block_on(self.append_buf_async(data))
    }

    /// Asynchronous form of [`File::append_buf`]. A dropped future has appended a prefix.
    ///
    /// # Errors
    /// As [`File::append`].
    pub async fn append_buf_async(&self, data: impl Buf) -> Result<u64> {
        self.may_append()?;
        let _turn = std::future::poll_fn(|context| self.poll_append(context)).await;
        let (mut data, mut begin) = (data, None);
        self.check_all(&data, self.len()?)?;
        while data.has_remaining() {
            let mut pieces = [IoSlice::new(&[]); PIECES];
            let count = data.chunks_vectored(&mut pieces);
            let (offset, accepted, result) =
                self.append_in_turn(Slices::new(&pieces[..count])).await;
            data.advance(accepted);
            begin.get_or_insert(offset);
            result?;
        }
        begin.map_or_else(|| self.len(), Ok)
    }

    /// Checks all of the data, before any of it is accepted.
    fn check_all(&self, data: &impl Buf, offset: u64) -> Result<()> {
        self.check_end(offset.checked_add(data.remaining() as u64), offset)
    }

    async fn write_buf(&self, mut data: impl Buf, mut offset: u64) -> Result<()> {
        self.check_all(&data, offset)?;
        while data.has_remaining() {
            let mut pieces = [IoSlice::new(&[]); PIECES];
            let count = data.chunks_vectored(&mut pieces);
            let (accepted, result) = self.write_all(Slices::new(&pieces[..count]), offset).await;
            data.advance(accepted);
            offset += accepted as u64;
            result?;
        }
        Ok(())
    }
}

/// Needs the feature `bytes`. The content is copied unless this handle is the only one of its
/// allocation and starts at its beginning. For [`Bytes`], which is immutable, use
/// [`Bytes::try_into_mut`] first.
impl DirectBuffer for BytesMut {}

impl private::Owned for BytesMut {
    fn into_memory(self) -> Memory {
        Memory::Vector(self.into())
    }

    fn from_memory(memory: Memory) -> Self {
        BytesMut::from(Bytes::from(Vec::from_memory(memory)))
    }

    fn nothing() -> Self {
        BytesMut::new()
    }

    fn bytes(&self) -> &[u8] {
        self
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }
}
