//! The buffers of the crate `bytes`.

use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};
use forebay_uring::Memory;

use crate::direct::buffer::{DirectBuffer, private};
use crate::error::Result;
use crate::file::File;
use crate::slices::Slices;
use crate::wait;

/// Pieces of a buffer that are planned together.
const PIECES: usize = 64;

impl File {
    /// As [`File::write_at`], of all that is left in a buffer, whose pieces are neither joined nor
    /// copied but into the cache. `&mut` a buffer is one too. Needs the feature `bytes`. Blocks as
    /// [`File::write_at`].
    ///
    /// ```
    /// use bytes::{Buf, Bytes};
    /// # use forebay::{Engine, Open};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir_in(".")?;
    /// # let engine = Engine::new()?;
    /// # let file = engine.open(directory.path().join("file"), Open::create())?;
    /// let (header, body) = (Bytes::from_static(b"header "), Bytes::from(vec![b'x'; 100]));
    /// file.write_buf_at(header.chain(body), 0)?;
    /// assert_eq!(file.len(), 107);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub fn write_buf_at(&self, data: impl Buf, offset: u64) -> Result<()> {
        wait::block_on(self.write_buf_at_async(data, offset))
    }

    /// As [`File::write_buf_at`].
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub async fn write_buf_at_async(&self, data: impl Buf, offset: u64) -> Result<()> {
        self.may_write_at()?;
        self.write_buf(data, offset).await
    }

    /// As [`File::append`], of all that is left in a buffer. Needs the feature `bytes`. Blocks as
    /// [`File::append`].
    ///
    /// # Errors
    /// As [`File::append`].
    pub fn append_buf(&self, data: impl Buf) -> Result<u64> {
        wait::block_on(self.append_buf_async(data))
    }

    /// As [`File::append_buf`].
    ///
    /// # Errors
    /// As [`File::append`].
    pub async fn append_buf_async(&self, data: impl Buf) -> Result<u64> {
        self.may_append()?;
        let _turn = std::future::poll_fn(|context| self.poll_append(context)).await;
        let offset = self.len();
        self.write_buf(data, offset).await?;
        Ok(offset)
    }

    async fn write_buf(&self, mut data: impl Buf, mut offset: u64) -> Result<()> {
        // All of it, before any of it is accepted.
        self.check_end(offset.checked_add(data.remaining() as u64), offset)?;
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

/// Nothing is copied where it is the only one that has its memory, and begins where that does; else
/// it is, on the way there. [`Bytes`], which nobody may change, is no buffer to be read into: turn
/// it by [`Bytes::try_into_mut`].
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
