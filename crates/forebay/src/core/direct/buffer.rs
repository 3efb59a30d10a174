//! Memory for direct operations. It is owned, so that the device can use it while an operation is
//! in flight.

use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::platform::{Memory, Piece};

/// Owned memory for an operation of a [`DirectFile`](crate::DirectFile).
///
/// The operation takes the buffer and returns it with the result. Its length is the length of the
/// operation; the spare capacity of a vector is not used. Implemented for `Vec<u8>`, `Box<[u8]>`,
/// [`Buffer`], and with the feature `bytes` for `BytesMut`.
///
/// ```
/// use forebay::{DirectBuffer, DirectFile};
///
/// /// Writes anything that can be a buffer, and drops it.
/// fn write(file: &DirectFile, buffer: impl DirectBuffer) -> forebay::Result<usize> {
///     file.write_at(buffer, 0).wait().0
/// }
/// # let directory = tempfile::tempdir_in(".").unwrap();
/// # let engine = forebay::Engine::new().unwrap();
/// # let open = forebay::OpenOptions::new().read(true).write(true).create(true).clone();
/// # let file = engine.open_direct(directory.path().join("f"), &open).unwrap();
/// assert_eq!(write(&file, vec![1; 100]).unwrap(), 100);
/// assert_eq!(write(&file, vec![1; 50].into_boxed_slice()).unwrap(), 50);
/// ```
pub trait DirectBuffer: private::Owned + Send + 'static {}

impl DirectBuffer for Vec<u8> {}
impl DirectBuffer for Box<[u8]> {}
impl DirectBuffer for Buffer {}

/// Buffer from the pool of the engine, aligned to a page so that direct I/O needs no copy.
///
/// [`Engine::buffer`](crate::Engine::buffer) takes it from the pool, and dropping it returns it.
/// Its initial content is unspecified. Access in a forked child panics.
///
/// ```
/// # fn main() -> forebay::Result<()> {
/// let engine = forebay::Engine::new()?;
/// let mut buffer = engine.buffer(8192)?;
/// buffer.fill(7);
/// assert_eq!(buffer.len(), 8192);
/// // Smaller operations can use it as well.
/// buffer.set_len(4096);
/// assert_eq!((buffer.len(), buffer.capacity()), (4096, 8192));
/// # Ok(())
/// # }
/// ```
pub struct Buffer(Option<Piece>);

impl Buffer {
    pub(crate) fn new(piece: Piece) -> Self {
        Self(Some(piece))
    }

    /// Returns the largest length that [`Buffer::set_len`] accepts: whole pages.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.as_ref().map_or(0, Piece::capacity)
    }

    /// Sets the length, which is that of the next operation. Bytes that this adds have unspecified
    /// content.
    ///
    /// # Panics
    /// If `bytes` is more than [`Buffer::capacity`].
    pub fn set_len(&mut self, bytes: usize) {
        match &mut self.0 {
            Some(piece) => piece.set_length(bytes),
            None => assert_eq!(bytes, 0, "an empty buffer has no bytes"),
        }
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
    use crate::platform::Memory;

    /// Keeps other crates from implementing `DirectBuffer`.
    pub trait Owned: Sized {
        fn into_memory(self) -> Memory;
        fn from_memory(memory: Memory) -> Self;
        /// Returned instead of memory that the device still uses.
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
            other => unreachable!("an operation took a vector and returned {other:?}"),
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
