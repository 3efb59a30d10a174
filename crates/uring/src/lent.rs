//! Lent memory: what a caller owns, handed to the device for the time of a flight and named by
//! number.
//!
//! Why a table and not a pointer in the request: a request that carries an address is only as good
//! as the promise that the memory stays, and a promise is broken by a dropped future. Here the
//! memory itself changes hands. While it is lent no owner of it exists outside the table, and the
//! table gives it back only when nothing at the device uses it; so safe code cannot hand the kernel
//! an address that dies.
//!
//! ```text
//! Memory --lend--> BufferId --depart--> address at the device --arrive--> BufferId
//!    ^                         counted: one for each request that uses it      |
//!    +---------------------------------take_back------------------------------+
//! ```
//!
//! The guarantee: a number names one lending only; after its `take_back` it names nothing, for a
//! place used again carries the next generation (of 4096, and a place is used again only when all
//! other free ones have been). A table dropped with something in flight leaks that memory and frees
//! the rest. The price: a few words for each thing lent, and a count up and down for each request.

use std::collections::VecDeque;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use forebay_block::BufferId;

use crate::aligned::AlignedMemory;
use crate::buffers::Piece;

/// Bits of a number that say which place of the table; the others are the generation.
const PLACE_BITS: u32 = 20;

/// Places of a table at most.
const PLACES: usize = 1 << PLACE_BITS;

/// Owned memory that can be lent to a device: bytes that do not move with their owner.
#[derive(Debug)]
pub enum Memory {
    /// The bytes of a vector, without its spare capacity.
    Vector(Vec<u8>),
    /// An aligned allocation.
    Aligned(AlignedMemory),
    /// A piece of a pool of buffers.
    Piece(Piece),
}

impl Memory {
    /// Returns the bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Memory::Vector(vector) => vector,
            Memory::Aligned(aligned) => aligned,
            Memory::Piece(piece) => piece,
        }
    }

    /// Returns the bytes for writing.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Memory::Vector(vector) => vector,
            Memory::Aligned(aligned) => aligned,
            Memory::Piece(piece) => piece,
        }
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        match self {
            Memory::Vector(vector) => vector.len(),
            Memory::Aligned(aligned) => aligned.length(),
            Memory::Piece(piece) => piece.length(),
        }
    }

    /// Returns whether the address of the first byte is a multiple of `alignment`.
    #[must_use]
    pub fn is_aligned(&self, alignment: usize) -> bool {
        self.is_aligned_from(0, alignment)
    }

    /// Returns whether the address of byte `at` is a multiple of `alignment`.
    #[must_use]
    pub fn is_aligned_from(&self, at: usize, alignment: usize) -> bool {
        let start = match self {
            Memory::Vector(vector) => vector.as_ptr(),
            Memory::Aligned(aligned) => aligned.start().as_ptr().cast_const(),
            Memory::Piece(piece) => piece.start().as_ptr().cast_const(),
        };
        start.addr().wrapping_add(at).is_multiple_of(alignment)
    }
}

impl From<Vec<u8>> for Memory {
    fn from(vector: Vec<u8>) -> Self {
        Memory::Vector(vector)
    }
}

impl From<Box<[u8]>> for Memory {
    fn from(slice: Box<[u8]>) -> Self {
        Memory::Vector(slice.into_vec())
    }
}

impl From<AlignedMemory> for Memory {
    fn from(aligned: AlignedMemory) -> Self {
        Memory::Aligned(aligned)
    }
}

impl From<Piece> for Memory {
    fn from(piece: Piece) -> Self {
        Memory::Piece(piece)
    }
}

/// Memory while it is lent. A vector is taken apart, because one that is moved claims its bytes for
/// itself alone, and the table moves what is in it when it grows; the others are addresses anyway.
#[derive(Debug)]
enum Held {
    Vector { start: NonNull<u8>, length: usize, capacity: usize },
    Aligned(AlignedMemory),
    Piece(Piece),
}

// SAFETY: the parts of a vector are a vector, which may go to another thread; the others may by
// themselves.
unsafe impl Send for Held {}

impl Held {
    fn new(memory: Memory) -> Self {
        match memory {
            Memory::Vector(vector) => {
                let mut vector = ManuallyDrop::new(vector);
                let start =
                    NonNull::new(vector.as_mut_ptr()).expect("a vector's address is never zero");
                Held::Vector { start, length: vector.len(), capacity: vector.capacity() }
            }
            Memory::Aligned(aligned) => Held::Aligned(aligned),
            Memory::Piece(piece) => Held::Piece(piece),
        }
    }

    fn give_back(self) -> Memory {
        match self {
            Held::Vector { start, length, capacity } => {
                // SAFETY: these are the parts of a vector that was taken apart in `new` and
                // forgotten there; `self` is consumed, so they are put together once. The device
                // may have written the bytes, which were initialised before.
                Memory::Vector(unsafe { Vec::from_raw_parts(start.as_ptr(), length, capacity) })
            }
            Held::Aligned(aligned) => Memory::Aligned(aligned),
            Held::Piece(piece) => Memory::Piece(piece),
        }
    }

    fn start(&self) -> NonNull<u8> {
        match self {
            Held::Vector { start, .. } => *start,
            Held::Aligned(aligned) => aligned.start(),
            Held::Piece(piece) => piece.start(),
        }
    }

    fn length(&self) -> usize {
        match self {
            Held::Vector { length, .. } => *length,
            Held::Aligned(aligned) => aligned.length(),
            Held::Piece(piece) => piece.length(),
        }
    }
}

#[derive(Debug, Default)]
struct Place {
    generation: u32,
    held: Option<Held>,
    /// Requests at the device that use it.
    flights: u32,
}

/// Table of the memory that is lent to one device.
#[derive(Default)]
pub struct Lent {
    places: Vec<Place>,
    /// First in, first out, so that a number is as long as possible not used again.
    free: VecDeque<u32>,
}

impl Lent {
    /// Creates an empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Lends memory and returns its number, which is valid until it is taken back.
    ///
    /// # Panics
    /// If a million pieces are lent already.
    pub fn lend(&mut self, memory: Memory) -> BufferId {
        let index = self.free.pop_front().unwrap_or_else(|| {
            assert!(self.places.len() < PLACES, "too much is lent at once");
            self.places.push(Place::default());
            u32::try_from(self.places.len() - 1).expect("at most a million")
        });
        let place = &mut self.places[index as usize];
        place.held = Some(Held::new(memory));
        BufferId(place.generation << PLACE_BITS | index)
    }

    /// Ends a loan and returns the memory.
    ///
    /// # Panics
    /// If the number is not lent, or a request at the device uses it.
    pub fn take_back(&mut self, buffer: BufferId) -> Memory {
        let place = self.place(buffer);
        assert_eq!(place.flights, 0, "{buffer:?} is at the device");
        let held = place.held.take().expect("looked at by `place`");
        place.generation = (place.generation + 1) % (1 << (u32::BITS - PLACE_BITS));
        self.free.push_back(index_of(buffer));
        held.give_back()
    }

    /// Returns the number of pieces that are lent.
    #[must_use]
    pub fn count(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// The address of a range, for a request that is about to use it. It stays until the matching
    /// [`Lent::arrive`].
    ///
    /// # Panics
    /// When the number names nothing that is lent, or the range is beyond its end.
    pub(crate) fn depart(&mut self, buffer: BufferId, offset: u32, length: u32) -> *mut u8 {
        let place = self.place(buffer);
        let held = place.held.as_ref().expect("looked at by `place`");
        let (offset, length) = (offset as usize, length as usize);
        assert!(
            offset.checked_add(length).is_some_and(|end| end <= held.length()),
            "{length} bytes at {offset} are beyond {buffer:?}"
        );
        // SAFETY: the offset is within the memory, as just asserted.
        let address = unsafe { held.start().as_ptr().add(offset) };
        place.flights += 1;
        address
    }

    /// A request that used it has ended.
    pub(crate) fn arrive(&mut self, buffer: BufferId) {
        let place = self.place(buffer);
        place.flights = place.flights.checked_sub(1).expect("what arrives has departed");
    }

    fn place(&mut self, buffer: BufferId) -> &mut Place {
        let place = self.places.get_mut(index_of(buffer) as usize);
        place
            .filter(|place| place.held.is_some() && place.generation == buffer.0 >> PLACE_BITS)
            .unwrap_or_else(|| panic!("{buffer:?} is not lent"))
    }
}

/// Frees what is lent, but for what the device still uses: that is leaked.
impl Drop for Lent {
    fn drop(&mut self) {
        for place in &mut self.places {
            match (place.held.take(), place.flights) {
                (Some(held), 0) => drop(held.give_back()),
                (Some(held), _) => {
                    tracing::warn!(
                        bytes = held.length(),
                        "lent memory is still in flight: it is leaked"
                    );
                    std::mem::forget(held);
                }
                (None, _) => {}
            }
        }
    }
}

impl fmt::Debug for Lent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Lent").field("count", &self.count()).finish_non_exhaustive()
    }
}

fn index_of(buffer: BufferId) -> u32 {
    buffer.0 & (u32::try_from(PLACES).expect("a million") - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers::Buffers;

    #[test]
    fn what_comes_back_is_what_was_lent() {
        let pool = Buffers::new(1 << 20).unwrap();
        let mut roomy = Vec::with_capacity(100);
        roomy.extend_from_slice(b"in a vector with room");
        let slice: Box<[u8]> = Box::from(&b"in a slice"[..]);
        let mut lent = Lent::new();
        let vector = lent.lend(roomy.into());
        let slice = lent.lend(slice.into());
        let aligned = lent.lend(AlignedMemory::new(100).into());
        let piece = lent.lend(pool.take(5000).unwrap().into());
        // The table grows with things in it.
        let more: Vec<BufferId> = (0..100).map(|_| lent.lend(vec![1; 3].into())).collect();
        let address = lent.depart(vector, 3, 8);
        // SAFETY: the range is lent and this test is the only one that uses it.
        unsafe { address.write(b'A') };
        lent.arrive(vector);
        assert_eq!(lent.take_back(vector).bytes(), b"in A vector with room");
        assert_eq!(lent.take_back(slice).bytes(), b"in a slice");
        let aligned = lent.take_back(aligned);
        assert!(aligned.is_aligned(4096) && aligned.bytes() == [0; 100]);
        let piece = lent.take_back(piece);
        assert!(piece.is_aligned(4096) && piece.length() == 5000);
        for buffer in more {
            assert_eq!(lent.take_back(buffer).bytes(), [1; 3]);
        }
        assert_eq!(lent.count(), 0);
    }

    #[test]
    #[should_panic(expected = "is at the device")]
    fn contract_13_memory_in_flight_is_not_given_back() {
        let mut lent = Lent::new();
        let buffer = lent.lend(vec![0; 10].into());
        lent.depart(buffer, 0, 10);
        lent.depart(buffer, 5, 1);
        lent.arrive(buffer);
        lent.take_back(buffer);
    }

    #[test]
    #[should_panic(expected = "is not lent")]
    fn contract_13_an_old_number_names_nothing() {
        let mut lent = Lent::new();
        let old = lent.lend(vec![0; 10].into());
        lent.take_back(old);
        let new = lent.lend(vec![0; 10].into());
        assert_ne!(old, new);
        lent.depart(old, 0, 1);
    }

    #[test]
    #[should_panic(expected = "beyond")]
    fn a_range_beyond_the_end_is_refused() {
        let mut lent = Lent::new();
        let buffer = lent.lend(vec![0; 10].into());
        lent.depart(buffer, 4, 7);
    }

    #[test]
    fn a_table_that_goes_frees_what_is_not_in_flight() {
        let pool = Buffers::new(8192).unwrap();
        let mut lent = Lent::new();
        let flying = lent.lend(pool.take(4096).unwrap().into());
        lent.lend(pool.take(4096).unwrap().into());
        assert!(pool.take(1).is_none());
        lent.depart(flying, 0, 4096);
        drop(lent);
        let back = pool.take(4096).expect("one piece came back");
        assert!(pool.take(1).is_none(), "and the other is leaked");
        drop(back);
    }
}
