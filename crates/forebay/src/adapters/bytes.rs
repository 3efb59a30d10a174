//! The buffers of the crate `bytes`.

use bytes::{Bytes, BytesMut};
use forebay_uring::Memory;

use crate::core::direct::buffer::{DirectBuffer, private};

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
