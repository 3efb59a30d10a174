//! The memory of a direct operation: owned, so that it can change hands for the time of the flight.

use std::fmt;
use std::ops::{Deref, DerefMut};

use forebay_uring::{Memory, Piece};

/// Memory that a direct operation can be made with: it is taken when the operation is submitted,
/// and given back with the result. A vector counts with its length, not with its capacity.
pub trait DirectBuffer: private::Owned + Send + 'static {}

impl DirectBuffer for Vec<u8> {}
impl DirectBuffer for Box<[u8]> {}
impl DirectBuffer for Buffer {}

/// A buffer from the engine's pool: aligned to a page, so that nothing has to be copied on its way
/// to the device.
///
/// Made by [`Engine::buffer`](crate::Engine::buffer); goes back to the pool when dropped. Holds
/// whatever was in that memory last. In a forked child it must not be touched: that panics.
pub struct Buffer(Option<Piece>);

impl Buffer {
    pub(crate) fn new(piece: Piece) -> Self {
        Self(Some(piece))
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.as_deref_mut().unwrap_or_default()
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = self.0.as_ref().map_or(0, Piece::length);
        formatter.debug_struct("Buffer").field("length", &length).finish_non_exhaustive()
    }
}

pub(crate) mod private {
    use forebay_uring::Memory;

    /// What only the types above are.
    pub trait Owned: Sized {
        fn into_memory(self) -> Memory;
        fn from_memory(memory: Memory) -> Self;
        /// What is given back where the memory cannot be.
        fn nothing() -> Self;
        fn bytes(&self) -> &[u8];
        fn bytes_mut(&mut self) -> &mut [u8];
    }
}

impl private::Owned for Vec<u8> {
    fn into_memory(self) -> Memory {
        Memory::Vector(self)
    }

    fn from_memory(memory: Memory) -> Self {
        match memory {
            Memory::Vector(vector) => vector,
            other => unreachable!("a vector was lent, and {other:?} came back"),
        }
    }

    fn nothing() -> Self {
        Vec::new()
    }

    fn bytes(&self) -> &[u8] {
        self
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl private::Owned for Box<[u8]> {
    fn into_memory(self) -> Memory {
        self.into()
    }

    fn from_memory(memory: Memory) -> Self {
        Vec::from_memory(memory).into_boxed_slice()
    }

    fn nothing() -> Self {
        Box::default()
    }

    fn bytes(&self) -> &[u8] {
        self
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl private::Owned for Buffer {
    fn into_memory(self) -> Memory {
        self.0.map_or_else(|| Memory::Vector(Vec::new()), Memory::Piece)
    }

    fn from_memory(memory: Memory) -> Self {
        match memory {
            Memory::Piece(piece) => Self(Some(piece)),
            _ => Self(None),
        }
    }

    fn nothing() -> Self {
        Self(None)
    }

    fn bytes(&self) -> &[u8] {
        self
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }
}
